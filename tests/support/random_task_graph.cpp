#include "tests/support/random_task_graph.hpp"

#include <algorithm>
#include <random>

namespace headway {
namespace {

constexpr int kCauses = 4;

class Builder {
 public:
  Builder(std::uint32_t seed, const RandomGraphOptions& options)
      : random_(seed), options_(options) {}

  TaskGraph build() {
    graph_.devices = draw(1, 4);
    graph_.streams_per_device = draw(1, 3);
    if (draw(0, 1) == 1) graph_.host_cause = kCauses - 1;
    for (int l = draw(1, 4); options_.fluid && l > 0; --l) {
      graph_.links.push_back({1e9 * draw(1, 50)});
    }
    for (int s = draw(1, 3); s > 0; --s) {
      std::vector<std::int64_t> row;
      for (int e = 0; e < 4; ++e) row.push_back((1 << 20) + (e == 0 ? 0 : draw(0, 1 << 20)));
      graph_.slowdowns.push_back(row);
    }
    for (int t = draw(1, 4); t > 0; --t) graph_.templates.push_back(random_template());
    for (int i = 0; i < options_.instances; ++i) add_instance();
    return std::move(graph_);
  }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(int percent) { return draw(1, 100) <= percent; }

  // Short and often equal, so that many things happen at one instant.
  Time duration() { return {chance(50) ? draw(0, 4) : draw(0, 60)}; }

  TaskTemplate random_template() {
    TaskTemplate out;
    const int tasks = draw(1, 7);
    const bool single_stream = chance(30);
    int activities = 0, awaited = 0, released = 0;
    for (int t = 0; t < tasks; ++t) {
      Task task;
      task.stream = single_stream ? 0 : draw(0, graph_.streams_per_device - 1);
      task.duration = duration();
      task.cause = draw(0, kCauses - 1);
      task.label = t;
      if (options_.host) {
        task.host = {chance(60) ? draw(0, 12) : 0};
        task.host_waits = chance(8);
      }
      if (options_.activities && chance(20)) task.activity = activities++;
      if (chance(60)) task.sensitivity = draw(0, static_cast<int>(graph_.slowdowns.size()) - 1);
      if (t > 0 && chance(30)) task.after.push_back(draw(0, t - 1));
      if (t > 0 && chance(10)) task.after.push_back(draw(0, t - 1));
      if (chance(12)) task.joins.push_back(draw(0, graph_.streams_per_device - 1));
      if (chance(20)) task.awaits.push_back(awaited++);
      if (chance(30)) task.releases.push_back(released++);
      if (chance(5)) task.releases.push_back(released++);
      out.tasks.push_back(task);
    }
    return out;
  }

  // Instances are drawn in an order in which everything awaited has been drawn before, so that,
  // unless `backwards`, the graph can be played. An activity's members must then all be ready
  // before anything that its members' streams issue later: groups are closed within one round of
  // devices.
  void add_instance() {
    Instance instance;
    instance.device = draw(0, graph_.devices - 1);
    instance.task_template = draw(0, static_cast<int>(graph_.templates.size()) - 1);
    instance.label = static_cast<int>(graph_.instances.size());
    instance.moves_with_clock = options_.moving && chance(50);
    bind(instance);
    graph_.instances.push_back(instance);
    // Activities shared between devices: the same template at once on a second device.
    const bool shares = !open_.empty() && graph_.devices > 1 && chance(80);
    if (shares) {
      Instance other = instance;
      other.device = (instance.device + draw(1, graph_.devices - 1)) % graph_.devices;
      other.moves_with_clock = options_.moving && chance(50);
      bind_ports(other);
      graph_.instances.push_back(other);
      for (const int activity : open_) {
        ++graph_.activities[static_cast<std::size_t>(activity)].members;
      }
    }
    // Ports of both become available only now: neither may await the other's within a rendezvous.
    available_ = graph_.ports;
    open_.clear();
  }

  void bind(Instance& instance) {
    bind_ports(instance);
    const auto& tasks = graph_.templates[static_cast<std::size_t>(instance.task_template)].tasks;
    instance.first_activity = static_cast<int>(graph_.bound_activities.size());
    for (const Task& task : tasks) {
      if (task.activity == -1) continue;
      graph_.bound_activities.push_back(static_cast<int>(graph_.activities.size()));
      open_.push_back(static_cast<int>(graph_.activities.size()));
      add_activity();
    }
  }

  void bind_ports(Instance& instance) {
    // A copy: a port to start from adds a template.
    const auto tasks = graph_.templates[static_cast<std::size_t>(instance.task_template)].tasks;
    std::vector<int> awaited;
    for (const Task& task : tasks) {
      for (std::size_t a = 0; a < task.awaits.size(); ++a) {
        awaited.push_back(available_ == 0 ? start_port() : draw(0, available_ - 1));
      }
    }
    instance.first_awaited = static_cast<int>(graph_.awaited_ports.size());
    instance.first_released = static_cast<int>(graph_.released_ports.size());
    for (const Task& task : tasks) {
      for (std::size_t r = 0; r < task.releases.size(); ++r) {
        graph_.released_ports.push_back(graph_.ports++);
      }
    }
    for (int& port : awaited) {
      if (options_.backwards && chance(10)) port = draw(0, graph_.ports - 1);
    }
    graph_.awaited_ports.insert(graph_.awaited_ports.end(), awaited.begin(), awaited.end());
  }

  int start_port() {
    if (start_port_ >= 0) return start_port_;
    Task task;
    task.releases = {0};
    graph_.templates.push_back({{task}});
    Instance instance;
    instance.device = 0;
    instance.task_template = static_cast<int>(graph_.templates.size()) - 1;
    instance.first_released = static_cast<int>(graph_.released_ports.size());
    graph_.released_ports.push_back(start_port_ = graph_.ports++);
    graph_.instances.insert(graph_.instances.begin(), instance);
    return start_port_;
  }

  void add_activity() {
    Activity activity;
    activity.latency = duration();
    if (options_.moving && chance(60)) activity.environment = draw(0, 1);
    if (options_.fluid && chance(70)) {
      activity.work = draw(1, 3000);
      activity.weight = draw(1, 3);
      if (chance(30)) activity.rate_limit = 1e9 * draw(1, 20);
      activity.first_load = static_cast<int>(graph_.loads.size());
      for (int l = 0; l < static_cast<int>(graph_.links.size()); ++l) {
        if (chance(60)) graph_.loads.push_back({l, draw(1, 3)});
      }
      activity.load_count = static_cast<int>(graph_.loads.size()) - activity.first_load;
      if (activity.load_count == 0 && activity.rate_limit == 0) activity.rate_limit = 1e9;
    }
    graph_.activities.push_back(activity);
  }

  std::mt19937 random_;
  RandomGraphOptions options_;
  TaskGraph graph_;
  int available_ = 0;
  int start_port_ = -1;
  std::vector<int> open_;
};

}  // namespace

TaskGraph random_task_graph(std::uint32_t seed, const RandomGraphOptions& options) {
  return Builder(seed, options).build();
}

}  // namespace headway
