#include "sim/engine/link_pruning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/error.hpp"
#include "sim/engine/simulator.hpp"
#include "tests/support/random_task_graph.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

// One activity per device, each alone on stream 0 of its own device.
TaskGraph separate_activities(const std::vector<std::vector<LinkLoad>>& loads,
                              const std::vector<double>& capacities) {
  TaskGraph graph;
  for (const double capacity : capacities) graph.links.push_back({capacity});
  Task task;
  task.activity = 0;
  graph.templates = {{{task}}};
  for (const auto& of_activity : loads) {
    Activity activity;
    activity.latency = Time{5};
    activity.work = 1000;
    activity.first_load = static_cast<int>(graph.loads.size());
    activity.load_count = static_cast<int>(of_activity.size());
    graph.loads.insert(graph.loads.end(), of_activity.begin(), of_activity.end());
    Instance instance;
    instance.device = graph.devices++;
    instance.first_activity = static_cast<int>(graph.bound_activities.size());
    graph.bound_activities.push_back(static_cast<int>(graph.activities.size()));
    graph.activities.push_back(activity);
    graph.instances.push_back(instance);
  }
  return graph;
}

TEST(LinkPruning, DropsALinkThatIsWiderThanWhatReachesIt) {
  // Two flows of at most 1 TB/s each meet on a link of 2 TB/s.
  TaskGraph graph = separate_activities({{{0, 1}, {2, 1}}, {{1, 1}, {2, 1}}}, {1e12, 1e12, 2e12});
  EXPECT_EQ(prune_links(graph), 1);
  EXPECT_EQ(graph.loads.size(), 2u);
  // 5 ps and 1,000 bytes at 1 byte per ps.
  EXPECT_THAT(fixed_durations(graph), ElementsAre(1005, 1005));
}

TEST(LinkPruning, KeepsALinkThatCanBind) {
  TaskGraph graph = separate_activities({{{0, 1}, {2, 1}}, {{1, 1}, {2, 1}}}, {1e12, 1e12, 1.9e12});
  EXPECT_EQ(prune_links(graph), 0);
  EXPECT_THAT(fixed_durations(graph), ElementsAre(kNoIndex, kNoIndex));
}

TEST(LinkPruning, CountsAnActivityLimit) {
  TaskGraph graph = separate_activities({{{0, 1}}, {{0, 1}}}, {1e12});
  EXPECT_EQ(prune_links(graph), 0);
  for (Activity& activity : graph.activities) activity.rate_limit = 0.5e12;
  EXPECT_EQ(prune_links(graph), 1);
  EXPECT_THAT(fixed_durations(graph), ElementsAre(2005, 2005));
}

TEST(LinkPruning, KeepsTheNarrowestOfEqualLinksOnAPath) {
  TaskGraph graph = separate_activities({{{0, 1}, {1, 1}, {2, 2}}}, {1e12, 1e12, 1e12});
  EXPECT_EQ(prune_links(graph), 2);
  EXPECT_THAT(fixed_durations(graph), ElementsAre(2005));
}

TEST(LinkPruning, ActivitiesOfOneStreamFollowOneAnother) {
  TaskGraph graph = separate_activities({{{0, 1}}, {{0, 1}}}, {1e12});
  EXPECT_THAT(fixed_durations(graph), ElementsAre(kNoIndex, kNoIndex));
  graph.instances[1].device = 0;
  EXPECT_THAT(fixed_durations(graph), ElementsAre(1005, 1005));
}

TEST(LinkPruning, RefusesALinkTooSlowForAnything) {
  TaskGraph graph = separate_activities({{{0, 1}}}, {1e-9});
  EXPECT_THROW(fixed_durations(graph), InvalidInput);
}

TEST(LinkPruning, LeavesAllTimesUnchanged) {
  int dropped = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    TaskGraph graph = random_task_graph(
        seed, {.activities = true, .fluid = true, .moving = seed % 2 == 0, .instances = 20});
    const Timeline before = simulate(graph, {Detail::kTasks, 4});
    dropped += prune_links(graph);
    ASSERT_THAT(check(graph), testing::IsEmpty());
    const Timeline after = simulate(graph, {Detail::kTasks, 4});
    ASSERT_EQ(before.spans.size(), after.spans.size());
    for (std::size_t s = 0; s < before.spans.size(); ++s) {
      ASSERT_EQ(before.spans[s].start, after.spans[s].start) << seed;
      ASSERT_EQ(before.spans[s].end, after.spans[s].end) << seed;
    }
  }
  EXPECT_GT(dropped, 0);
}

}  // namespace
}  // namespace headway
