// How fast the engine plays. 1F1B of 64 stages and 1,024 micro-batches is made of tiny instances,
// so it measures the cost of an instance; the layers show what templates save; the flows and the
// moving instances measure the clock. `items` are tasks (for flows: ends), building is excluded.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "sim/engine/flow_network.hpp"
#include "sim/engine/simulator.hpp"

namespace headway {
namespace {

constexpr int kForward = 0, kBackward = 1;

// Adds instances in the order of 1F1B: rank r warms up with min(m, p - r - 1) forwards, then
// alternates, then drains (Megatron-LM's schedules.py). `add(stage, pass, micro_batch)`.
template <typename Add>
void one_f_one_b(int stages, int micro_batches, Add add) {
  for (int stage = 0; stage < stages; ++stage) {
    const int warm_up = std::min(micro_batches, stages - stage - 1);
    for (int f = 0; f < warm_up; ++f) add(stage, kForward, f);
    for (int f = warm_up; f < micro_batches; ++f) {
      add(stage, kForward, f);
      add(stage, kBackward, f - warm_up);
    }
    for (int b = micro_batches - warm_up; b < micro_batches; ++b) add(stage, kBackward, b);
  }
}

// One task per pass, ports between the stages, numbered in the order of their release.
TaskGraph pipeline_with_ports(int stages, int micro_batches) {
  TaskGraph graph;
  graph.devices = stages;
  // Templates: pass, whether it awaits, whether it releases.
  for (int t = 0; t < 8; ++t) {
    Task task;
    task.duration = Time{t < 4 ? 1'000'000 : 2'000'000};
    if ((t & 2) != 0) task.awaits = {0};
    if ((t & 1) != 0) task.releases = {0};
    graph.templates.push_back({{task}});
  }
  const auto message = [&](int stage, int pass, int micro_batch) {
    return static_cast<std::size_t>((pass * stages + stage) * micro_batches + micro_batch);
  };
  std::vector<int> port(static_cast<std::size_t>(2 * stages * micro_batches), -1);
  std::vector<std::size_t> awaited;
  one_f_one_b(stages, micro_batches, [&](int stage, int pass, int micro_batch) {
    const int from = pass == kForward ? stage - 1 : stage + 1;
    const int to = pass == kForward ? stage + 1 : stage - 1;
    const bool awaits = from >= 0 && from < stages, releases = to >= 0 && to < stages;
    Instance instance;
    instance.device = stage;
    instance.task_template = pass * 4 + (awaits ? 2 : 0) + (releases ? 1 : 0);
    instance.first_awaited = static_cast<int>(awaited.size());
    instance.first_released = graph.ports;
    if (awaits) awaited.push_back(message(from, pass, micro_batch));
    if (releases) port[message(stage, pass, micro_batch)] = graph.ports++;
    graph.instances.push_back(instance);
  });
  for (const std::size_t from : awaited) graph.awaited_ports.push_back(port[from]);
  graph.released_ports.resize(static_cast<std::size_t>(graph.ports));
  std::iota(graph.released_ports.begin(), graph.released_ports.end(), 0);
  return graph;
}

// A receive, the pass and a send, with an activity for each message.
TaskGraph pipeline_with_messages(int stages, int micro_batches) {
  TaskGraph graph;
  graph.devices = stages;
  graph.streams_per_device = 5;
  for (int t = 0; t < 8; ++t) {
    const int pass = t / 4;
    TaskTemplate passes;
    Task work, receive, send;
    work.duration = Time{pass == kForward ? 1'000'000 : 2'000'000};
    int slot = 0;
    if ((t & 2) != 0) {
      receive.stream = 1 + pass;
      receive.activity = slot++;
      receive.cause = 1;
      passes.tasks.push_back(receive);
      work.after = {0};
    }
    passes.tasks.push_back(work);
    if ((t & 1) != 0) {
      send.stream = 3 + pass;
      send.activity = slot++;
      send.cause = 1;
      send.after = {static_cast<int>(passes.tasks.size()) - 1};
      passes.tasks.push_back(send);
    }
    graph.templates.push_back(passes);
  }
  const auto message = [&](int stage, int pass, int micro_batch) {
    const int link = pass == kForward ? stage : stage - 1;
    return (pass * (stages - 1) + link) * micro_batches + micro_batch;
  };
  Activity activity;
  activity.members = 2;
  activity.latency = Time{100'000};
  graph.activities.assign(static_cast<std::size_t>(2 * (stages - 1) * micro_batches), activity);
  one_f_one_b(stages, micro_batches, [&](int stage, int pass, int micro_batch) {
    const int from = pass == kForward ? stage - 1 : stage + 1;
    const int to = pass == kForward ? stage + 1 : stage - 1;
    const bool receives = from >= 0 && from < stages, sends = to >= 0 && to < stages;
    Instance instance;
    instance.device = stage;
    instance.task_template = pass * 4 + (receives ? 2 : 0) + (sends ? 1 : 0);
    instance.first_activity = static_cast<int>(graph.bound_activities.size());
    if (receives) graph.bound_activities.push_back(message(from, pass, micro_batch));
    if (sends) graph.bound_activities.push_back(message(stage, pass, micro_batch));
    graph.instances.push_back(instance);
  });
  return graph;
}

std::int64_t tasks_of(const TaskGraph& graph) {
  std::size_t tasks = 0;
  for (const Instance& instance : graph.instances) {
    tasks += graph.templates[static_cast<std::size_t>(instance.task_template)].tasks.size();
  }
  return static_cast<std::int64_t>(tasks);
}

void play(benchmark::State& state, const TaskGraph& graph) {
  Time makespan;
  for (auto _ : state) {
    const Timeline timeline = simulate(graph);
    if (!timeline.deadlock.empty()) std::abort();
    makespan = timeline.makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * tasks_of(graph));
  state.counters["makespan_us"] = makespan.microseconds();
}

void pipeline_ports(benchmark::State& state) { play(state, pipeline_with_ports(64, 1024)); }
BENCHMARK(pipeline_ports)->Unit(benchmark::kMillisecond);

void pipeline_messages(benchmark::State& state) { play(state, pipeline_with_messages(64, 1024)); }
BENCHMARK(pipeline_messages)->Unit(benchmark::kMillisecond);

// Layers of 60 tasks on two streams, as templates: an instance is a few steps whatever its tasks.
void layers(benchmark::State& state) {
  TaskGraph graph;
  graph.devices = 16;
  graph.streams_per_device = 2;
  TaskTemplate layer;
  for (int t = 0; t < 60; ++t) {
    Task task;
    task.duration = Time{100'000 + t};
    task.stream = t % 15 == 14 ? 1 : 0;
    if (t % 15 == 14) task.after = {t - 1};
    if (t % 15 == 0) task.joins = {1};
    layer.tasks.push_back(task);
  }
  graph.templates = {layer};
  for (int device = 0; device < graph.devices; ++device) {
    for (int i = 0; i < 1536; ++i) graph.instances.push_back(Instance{.device = device});
  }
  play(state, graph);
}
BENCHMARK(layers)->Unit(benchmark::kMillisecond);

// A pipeline stage's instances, each slowed by a message that overlaps part of it.
void moving_layers(benchmark::State& state) {
  TaskGraph graph;
  graph.devices = 1;
  graph.streams_per_device = 2;
  Task message;
  message.stream = 1;
  message.activity = 0;
  TaskTemplate layer{{message}};
  for (int t = 0; t < 60; ++t) {
    Task task;
    task.duration = Time{100'000 + t};
    task.sensitivity = t % 2;
    layer.tasks.push_back(task);
  }
  graph.templates = {layer};
  graph.slowdowns = {{1 << 20, 3 << 19}, {1 << 20, 5 << 18}};
  for (int i = 0; i < 1024; ++i) {
    Instance instance;
    instance.first_activity = i;
    instance.moves_with_clock = true;
    graph.instances.push_back(instance);
    graph.bound_activities.push_back(i);
    graph.activities.push_back(Activity{.latency = Time{5'000'000}, .environment = 0});
  }
  play(state, graph);
}
BENCHMARK(moving_layers)->Unit(benchmark::kMicrosecond);

// One flow ends and another begins, among `components` x `flows`, each from a host to a host.
void flows(benchmark::State& state) {
  const int components = static_cast<int>(state.range(0)), each = static_cast<int>(state.range(1));
  const int hosts = static_cast<int>(state.range(2));
  std::mt19937 random(1);
  TaskGraph graph;
  for (int l = 0; l < 2 * hosts * components; ++l) {
    graph.links.push_back({50e9 * (1 + static_cast<double>(random() % 4))});
  }
  for (int f = 0; f < 4 * components * each; ++f) {
    const int first = 2 * hosts * (f % components);
    Activity activity;
    activity.first_load = static_cast<int>(graph.loads.size());
    activity.load_count = 2;
    graph.loads.push_back({first + static_cast<int>(random() % static_cast<unsigned>(hosts)), 1});
    graph.loads.push_back(
        {first + hosts + static_cast<int>(random() % static_cast<unsigned>(hosts)), 1});
    graph.activities.push_back(activity);
  }
  const int present = components * each, all = static_cast<int>(graph.activities.size());
  FlowNetwork network(graph);
  for (int f = 0; f < present; ++f) network.add(f);
  network.solve();
  int oldest = 0;
  for (auto _ : state) {
    network.remove(oldest);
    network.add((oldest + present) % all);
    oldest = (oldest + 1) % all;
    benchmark::DoNotOptimize(network.solve().size());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
  state.counters["solved_per_event"] =
      static_cast<double>(network.flows_solved()) / static_cast<double>(state.iterations());
}
BENCHMARK(flows)->Args({125, 8, 8})->Args({1, 1000, 512})->Args({1, 1000, 64});

}  // namespace
}  // namespace headway
