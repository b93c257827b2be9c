// How fast large traffic plays. The all-to-all of 1,024 hosts over a fat tree of 16-port switches
// is played as the 1,047,552 transfers that it consists of, and folded, as a job's exchange is: one
// group activity that loads every link in proportion. The ring all-reduce is the gradients of a
// data-parallel step on 16,384 GPUs, from resolved job to timeline.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <map>

#include "sim/cluster/topology_reader.hpp"
#include "sim/cost/profile.hpp"
#include "sim/engine/simulator.hpp"
#include "sim/plan/job.hpp"
#include "sim/simulate/folding.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "sim/simulate/traffic.hpp"

namespace headway {
namespace {

constexpr int kHosts = 1024;
constexpr Bytes kMessage{1 << 20};

const Topology& fat_tree() {
  static const Topology topology = [] {
    Problems problems;
    auto read = read_topology(JsonNode::parse_text(R"({
          "name": "hosts", "title": "t", "source": "s", "profiles": ["h100-sxm"], "max_nodes": 1024,
          "node": {"source": "s", "gpus": 1,
            "gpu_fabric": {"source": "s", "generator": "nvswitch", "bandwidth": "450 GB/s", "latency": "0.3 us"},
            "pcie": {"source": "s", "switches": 1, "bandwidth": "63 GB/s", "latency": "0.15 us"},
            "cpu": {"source": "s", "vendor": "intel"},
            "nics": {"source": "s", "count": 1, "bandwidth": "400 Gbit/s", "latency": "1 us"}},
          "network": {"source": "s", "generator": "fat-tree", "ports": 16, "latency": "0.3 us"}})",
                                                   "hosts"),
                              kHosts, {}, JsonNode::parse_text("null", "hosts"), problems);
    problems.throw_if_any();
    return *std::move(read);
  }();
  return topology;
}

std::vector<Transfer> all_pairs() {
  std::vector<Transfer> transfers;
  transfers.reserve(static_cast<std::size_t>(kHosts) * (kHosts - 1));
  for (int from = 0; from < kHosts; ++from) {
    for (int to = 0; to < kHosts; ++to) {
      if (from != to) transfers.push_back({from, to, kMessage, {}, {}, 1, {}});
    }
  }
  return transfers;
}

void all_to_all_as_transfers(benchmark::State& state) {
  const std::vector<Transfer> transfers = all_pairs();
  const TaskGraph graph = traffic_graph(fat_tree(), transfers);
  Time makespan;
  for (auto _ : state) {
    makespan = simulate(graph).makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * transfers.size()));
  state.counters["makespan_us"] = makespan.microseconds();
}
BENCHMARK(all_to_all_as_transfers)->Unit(benchmark::kMillisecond);

// One group of all hosts; what a link carries is the sum over all pairs.
void all_to_all_folded(benchmark::State& state) {
  const Topology& topology = fat_tree();
  std::map<LinkId, std::int64_t> sums;
  for (int from = 0; from < kHosts; ++from) {
    for (int to = 0; to < kHosts; ++to) {
      for (const LinkId link : topology.route(from, to)) ++sums[link];
    }
  }
  Time makespan;
  for (auto _ : state) {
    FoldingStructure structure;
    std::vector<int> members;
    std::vector<FoldingStructure::Load> loads;
    for (int host = 0; host < kHosts; ++host) members.push_back(host);
    for (const auto& [link, load] : sums) {
      loads.push_back({static_cast<int>(structure.link_colours.size()), load});
      structure.link_colours.push_back(static_cast<std::uint64_t>(
          topology.links()[static_cast<std::size_t>(link)].bandwidth.bytes_per_second));
    }
    structure.rank_colours.assign(kHosts, 0);
    structure.add_group(0, false, members, loads);
    const Partition partition = fold(structure);
    TaskGraph graph;
    graph.devices = 1;
    Task task;
    task.activity = 0;
    graph.templates = {{{task}}};
    graph.instances = {Instance{}};
    graph.bound_activities = {0};
    Activity activity;
    activity.work = kMessage.count;
    for (const int link : partition.link_representative) {
      graph.loads.push_back(
          {static_cast<int>(graph.links.size()), loads[static_cast<std::size_t>(link)].load});
      graph.links.push_back(
          {static_cast<double>(structure.link_colours[static_cast<std::size_t>(link)])});
    }
    activity.load_count = static_cast<int>(graph.loads.size());
    graph.activities = {activity};
    makespan = simulate(graph).makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.counters["makespan_us"] = makespan.microseconds();
}
BENCHMARK(all_to_all_folded)->Unit(benchmark::kMillisecond);

void ring_all_reduce_16384_gpus(benchmark::State& state) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(R"({
      "model": "gpt3-1.7b", "cluster": {"topology": "dgx-h100", "gpus": 16384},
      "sequence_length": 2048, "global_batch": 16384,
      "plan": {"micro_batch": 1, "overlap_grad_reduce": false}})",
                                                     "job"),
                                {}, problems);
  problems.throw_if_any();
  const Profile profile = read_profile(reading.job->profile);
  Time makespan;
  for (auto _ : state) {
    makespan = simulate_step(*reading.job, profile).timeline.makespan;
    benchmark::DoNotOptimize(makespan);
  }
  state.counters["makespan_us"] = makespan.microseconds();
}
BENCHMARK(ring_all_reduce_16384_gpus)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headway
