#include "sim/engine/flow_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "sim/core/error.hpp"
#include "tests/support/reference_engine.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

// A capacity of so many integer rate units.
double units(std::int64_t rate) { return static_cast<double>(rate) * 1e12 / 0x1p50; }

int add_flow(TaskGraph& graph, const std::vector<LinkLoad>& loads, std::int64_t weight = 1,
             std::int64_t limit = 0) {
  Activity activity;
  activity.work = 1;
  activity.weight = weight;
  activity.rate_limit = units(limit);
  activity.first_load = static_cast<int>(graph.loads.size());
  activity.load_count = static_cast<int>(loads.size());
  graph.loads.insert(graph.loads.end(), loads.begin(), loads.end());
  graph.activities.push_back(activity);
  return static_cast<int>(graph.activities.size()) - 1;
}

std::vector<std::int64_t> solve_all(const TaskGraph& graph) {
  FlowNetwork network(graph);
  for (std::size_t a = 0; a < graph.activities.size(); ++a) network.add(static_cast<int>(a));
  network.solve();
  std::vector<std::int64_t> rates;
  for (std::size_t a = 0; a < graph.activities.size(); ++a) {
    rates.push_back(network.rate(static_cast<int>(a)));
  }
  return rates;
}

TEST(FlowNetwork, RatesAreIntegersIn2ToTheMinus50BytesPerPicosecond) {
  EXPECT_EQ(integer_rate(1e12), std::int64_t{1} << 50);
  EXPECT_EQ(integer_rate(units(12)), 12);
  EXPECT_EQ(integer_rate(1e30), kUnlimitedRate);
}

TEST(FlowNetwork, SharesTheFourFlowsOfItsHeader) {
  TaskGraph graph;
  graph.links = {{units(12)}, {units(5)}};
  const int a = 0, b = 1;
  add_flow(graph, {{a, 1}});
  add_flow(graph, {{a, 1}, {b, 1}});
  add_flow(graph, {{b, 2}});
  add_flow(graph, {{a, 1}}, 2);
  EXPECT_THAT(solve_all(graph), ElementsAre(3, 1, 1, 6));
}

TEST(FlowNetwork, ALimitLeavesTheRestToTheOthers) {
  TaskGraph graph;
  graph.links = {{units(12)}};
  add_flow(graph, {{0, 1}}, 1, 2);
  add_flow(graph, {{0, 1}});
  // x = min(2, 6), y = 12 - x
  EXPECT_THAT(solve_all(graph), ElementsAre(2, 10));
}

TEST(FlowNetwork, ALimitAloneIsARate) {
  TaskGraph graph;
  add_flow(graph, {}, 1, 7);
  EXPECT_THAT(solve_all(graph), ElementsAre(7));
}

TEST(FlowNetwork, RefusesAShareOfZero) {
  TaskGraph graph;
  graph.links = {{units(1)}};
  add_flow(graph, {{0, 1}});
  add_flow(graph, {{0, 1}});
  EXPECT_THROW(solve_all(graph), InvalidInput);
}

TEST(FlowNetwork, ReportsWhatChangedAndWhatWasAdded) {
  TaskGraph graph;
  graph.links = {{units(12)}, {units(12)}};
  add_flow(graph, {{0, 1}});
  add_flow(graph, {{1, 1}});
  add_flow(graph, {{0, 1}});
  FlowNetwork network(graph);
  network.add(0);
  network.add(1);
  EXPECT_THAT(network.solve(), ElementsAre(0, 1));
  network.add(2);
  EXPECT_THAT(network.solve(), ElementsAre(0, 2));
  EXPECT_THAT(network.solve(), ElementsAre());
  network.remove(0);
  EXPECT_THAT(network.solve(), ElementsAre(2));
}

TEST(FlowNetwork, AnEndDoesNotMoveWhenAFlowIsTimedAgain) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t rate = 1 + static_cast<std::int64_t>(random() % (std::uint64_t{1} << 50));
    Work left = work_of(1 + static_cast<std::int64_t>(random() % (std::uint64_t{1} << 40)));
    const std::int64_t end = time_to_move(left, rate);
    std::int64_t now = 0;
    for (int step = 0; step < 5 && now < end; ++step) {
      const std::int64_t next =
          now + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - now));
      left -= static_cast<Work>(rate) * (next - now);
      now = next;
      ASSERT_EQ(now + time_to_move(left, rate), end);
    }
  }
}

TaskGraph random_network(std::mt19937& random, int flows) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  TaskGraph graph;
  const int links = draw(1, 12);
  // Few different capacities, so that many links are full at one level.
  for (int l = 0; l < links; ++l) graph.links.push_back({1e9 * draw(1, 4)});
  for (int f = 0; f < flows; ++f) {
    std::vector<LinkLoad> loads;
    for (int l = 0; l < links; ++l) {
      if (draw(0, 2) == 0) loads.push_back({l, draw(1, 7)});
    }
    if (loads.empty()) loads.push_back({draw(0, links - 1), 1});
    const int id = add_flow(graph, loads, draw(1, 3));
    if (draw(0, 4) == 0)
      graph.activities[static_cast<std::size_t>(id)].rate_limit = 1e8 * draw(1, 9);
  }
  return graph;
}

TEST(FlowNetwork, RestartEqualsTheFullSolveAtEveryEvent) {
  std::mt19937 random(11);
  std::int64_t solved = 0, present_sum = 0;
  for (int network_index = 0; network_index < 200; ++network_index) {
    const TaskGraph graph = random_network(random, 20);
    FlowNetwork network(graph);
    std::vector<int> present;
    for (int event = 0; event < 40; ++event) {
      for (int change = std::uniform_int_distribution(1, 3)(random); change > 0; --change) {
        const int flow = std::uniform_int_distribution(0, 19)(random);
        const auto found = std::find(present.begin(), present.end(), flow);
        if (found == present.end()) {
          present.push_back(flow);
          network.add(flow);
        } else {
          present.erase(found);
          network.remove(flow);
        }
      }
      network.solve();
      present_sum += static_cast<std::int64_t>(present.size());
      ASSERT_TRUE(network.equals_full_solve()) << network_index << " " << event;
      const std::vector<std::int64_t> plain = fair_rates(graph, present);
      for (std::size_t i = 0; i < present.size(); ++i) {
        ASSERT_EQ(network.rate(present[i]), plain[i]) << network_index << " " << event;
      }
    }
    solved += network.flows_solved();
  }
  // It is a restart: not everything is solved each time.
  EXPECT_LT(solved, present_sum);
}

TEST(FlowNetwork, NoLinkIsOverfull) {
  std::mt19937 random(13);
  for (int i = 0; i < 200; ++i) {
    const TaskGraph graph = random_network(random, 15);
    const std::vector<std::int64_t> rates = solve_all(graph);
    std::vector<std::int64_t> used(graph.links.size(), 0);
    for (std::size_t a = 0; a < rates.size(); ++a) {
      const Activity& activity = graph.activities[a];
      for (int l = 0; l < activity.load_count; ++l) {
        const LinkLoad& load = graph.loads[static_cast<std::size_t>(activity.first_load + l)];
        used[static_cast<std::size_t>(load.link)] += load.load * rates[a];
      }
    }
    for (std::size_t l = 0; l < used.size(); ++l) {
      EXPECT_LE(used[l], integer_rate(graph.links[l].capacity));
    }
  }
}

// A base network whose flows and links stand for classes, and a random lift of it: class f has m_f
// flows and class l has n_l links, every flow crossing as many links of a class as every other and
// every link being crossed by as many. In the base a flow loads its class's link once for each flow
// of the class on it.
struct Lift {
  TaskGraph base, lifted;
  std::vector<std::vector<int>> flows;  // lifted flows of each base flow
};

Lift random_lift(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  const int flow_classes = draw(1, 8), link_classes = draw(1, 6);
  Lift lift;
  std::vector<std::vector<int>> links;
  for (int l = 0; l < link_classes; ++l) {
    const double capacity = 1e9 * draw(1, 5);
    lift.base.links.push_back({capacity});
    links.emplace_back();
    for (int i = draw(1, 6); i > 0; --i) {
      links.back().push_back(static_cast<int>(lift.lifted.links.size()));
      lift.lifted.links.push_back({capacity});
    }
  }
  for (int f = 0; f < flow_classes; ++f) {
    const int copies = draw(1, 6);
    const std::int64_t weight = draw(1, 2);
    std::vector<LinkLoad> base_loads;
    std::vector<std::vector<LinkLoad>> lifted_loads(static_cast<std::size_t>(copies));
    for (int l = 0; l < link_classes; ++l) {
      if (draw(0, 1) == 0 && !(l == 0 && f % 2 == 0)) continue;
      auto& of_class = links[static_cast<std::size_t>(l)];
      const int count = static_cast<int>(of_class.size());
      const std::int64_t load = draw(1, 7);
      std::shuffle(of_class.begin(), of_class.end(), random);
      // Edges go round the links, each flow taking the next `edges / copies`.
      const int edges = std::lcm(copies, count);
      for (int e = 0; e < edges; ++e) {
        lifted_loads[static_cast<std::size_t>(e / (edges / copies))].push_back(
            {of_class[static_cast<std::size_t>(e % count)], load});
      }
      base_loads.push_back({l, load * (edges / count)});
    }
    if (base_loads.empty()) continue;
    add_flow(lift.base, base_loads, weight);
    lift.flows.emplace_back();
    for (const auto& loads : lifted_loads) {
      lift.flows.back().push_back(add_flow(lift.lifted, loads, weight));
    }
  }
  return lift;
}

TEST(FlowNetwork, RandomLiftsHaveTheRatesOfTheirBase) {
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    const Lift lift = random_lift(random);
    const std::vector<std::int64_t> base = solve_all(lift.base), lifted = solve_all(lift.lifted);
    for (std::size_t f = 0; f < base.size(); ++f) {
      for (const int flow : lift.flows[f]) {
        ASSERT_EQ(lifted[static_cast<std::size_t>(flow)], base[f]) << "lift " << i << " flow " << f;
      }
    }
  }
}

}  // namespace
}  // namespace headway
