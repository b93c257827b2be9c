// An independent reference: random transfers over star, fat tree and dragonfly, played by us and by
// SimGrid's flow model (Debian libsimgrid-dev 3.32; CM02 without latency, cross traffic, TCP gamma
// or weight S, which is max-min fair sharing). Both are given the routes of our topology.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <simgrid/s4u.hpp>

#include "sim/simulate/traffic.hpp"
#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

namespace sg4 = simgrid::s4u;

constexpr double kTolerance = 1e-3;
constexpr int kSets = 4;    // of transfers, on each network
constexpr int kFlows = 80;  // of a set
constexpr int kMostMegabytes = 20'000;
constexpr double kLastStart = 2;  // seconds

// Servers of two GPUs and NICs, no latency worth speaking of.
std::string network(const std::string& description) {
  return changed(kSmallCluster,
                 {{R"("generator": "rail-leaf-spine", "leaf_nodes": 2)", description},
                  {"\"max_nodes\": 64", "\"max_nodes\": 32"},
                  {"\"latency\": \"0.25 us\"", "\"latency\": \"0 us\""},
                  {"\"latency\": \"0.3 us\"", "\"latency\": \"0 us\""},
                  {"\"latency\": \"0.15 us\"", "\"latency\": \"0 us\""},
                  {"\"latency\": \"1 us\"", "\"latency\": \"0 us\""}});
}

struct FlowSet {
  std::string name;
  Topology topology;
  std::vector<double> shares;  // some links have only part of their bandwidth
  std::vector<Transfer> transfers;
  std::vector<double> ends;  // SimGrid's
};

FlowSet random_set(const std::string& name, const Topology& topology, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  FlowSet set{name, topology, {}, {}, {}};
  for (std::size_t l = 0; l < topology.links().size(); ++l) {
    set.shares.push_back(below(4) == 0 ? (1 + below(4)) / 5.0 : 1.0);
  }
  for (int f = 0; f < kFlows; ++f) {
    Transfer transfer;
    transfer.from = below(topology.gpus());
    do transfer.to = below(topology.gpus());
    while (transfer.to == transfer.from);
    transfer.bytes = Bytes{1'000'000LL * (1 + below(kMostMegabytes))};
    transfer.start = Time::from_seconds(kLastStart * below(1000) / 1000);
    transfer.connections = 1 + below(3);
    set.transfers.push_back(transfer);
  }
  set.ends.assign(set.transfers.size(), 0);
  return set;
}

// Hosts, links and routes of a set. A transfer of several connections is as many communications.
void add_to(sg4::NetZone* zone, FlowSet& set) {
  std::vector<sg4::Host*> hosts;
  for (int gpu = 0; gpu < set.topology.gpus(); ++gpu) {
    hosts.push_back(zone->create_host(set.name + ".gpu" + std::to_string(gpu), 1e9)->seal());
  }
  std::vector<sg4::Link*> links;
  for (std::size_t l = 0; l < set.topology.links().size(); ++l) {
    const double bandwidth = set.topology.links()[l].bandwidth.bytes_per_second * set.shares[l];
    links.push_back(zone->create_link(set.name + ".link" + std::to_string(l), bandwidth)
                        ->set_latency(0.0)
                        ->seal());
  }
  std::set<std::pair<int, int>> routed;
  for (std::size_t f = 0; f < set.transfers.size(); ++f) {
    const Transfer& transfer = set.transfers[f];
    sg4::Host* const from = hosts[static_cast<std::size_t>(transfer.from)];
    sg4::Host* const to = hosts[static_cast<std::size_t>(transfer.to)];
    if (routed.insert({transfer.from, transfer.to}).second) {
      std::vector<sg4::LinkInRoute> route;
      for (const LinkId link : set.topology.route(transfer.from, transfer.to)) {
        route.emplace_back(links[static_cast<std::size_t>(link)]);
      }
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    }
    for (int c = 0; c < transfer.connections; ++c) {
      sg4::Actor::create("flow", from, [&set, f, from, to] {
        const Transfer& mine = set.transfers[f];
        sg4::this_actor::sleep_until(mine.start.seconds());
        sg4::Comm::sendto(from, to,
                          static_cast<std::uint64_t>(mine.bytes.count / mine.connections));
        set.ends[f] = std::max(set.ends[f], sg4::Engine::get_clock());
      });
    }
  }
}

TEST(FlowModel, EqualsSimGridsOnRandomTransfers) {
  const std::vector<std::pair<std::string, std::string>> networks = {
      {"star", R"("generator": "single-switch")"},
      {"fat tree", R"("generator": "fat-tree", "ports": 8)"},
      {"dragonfly", R"("generator": "dragonfly", "group_routers": 4, "router_nics": 2,
                       "global_ports": 2)"}};
  std::vector<FlowSet> sets;
  unsigned seed = 1;
  for (const auto& [name, description] : networks) {
    std::string text = network(description);
    if (name == "star") text = changed(text, {{", \"latency\": \"0 us\"}\n}", "}\n}"}});
    const Topology topology = topology_of(text, 64);
    for (int s = 0; s < kSets; ++s) {
      sets.push_back(random_set(name + std::to_string(s), topology, seed++));
    }
  }
  int argc = 1;
  std::string program = "test_simgrid";
  char* argv[] = {program.data(), nullptr};
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/weight-S:0");
  sg4::Engine::set_config("maxmin/precision:1e-9");
  sg4::NetZone* const zone = sg4::create_full_zone("all");
  for (FlowSet& set : sets) add_to(zone, set);
  zone->seal();
  engine.run();

  double worst = 0;
  int compared = 0;
  for (const FlowSet& set : sets) {
    const std::vector<TransferTimes> ours = play_traffic(set.topology, set.transfers, set.shares);
    for (std::size_t f = 0; f < ours.size(); ++f) {
      ASSERT_GT(set.ends[f], 0) << set.name << ", transfer " << f;
      const double error = std::abs(ours[f].end.seconds() / set.ends[f] - 1);
      worst = std::max(worst, error);
      ++compared;
      EXPECT_LT(error, kTolerance) << set.name << ", transfer " << f << ": "
                                   << ours[f].end.seconds() << " s and " << set.ends[f] << " s";
    }
  }
  RecordProperty("transfers", compared);
  std::printf("%d transfers, at most %.2g apart\n", compared, worst);
}

}  // namespace
}  // namespace headway
