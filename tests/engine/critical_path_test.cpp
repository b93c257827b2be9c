#include "sim/engine/critical_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/simulator.hpp"
#include "tests/support/random_task_graph.hpp"

namespace headway {

static bool operator==(const CriticalLink& a, const CriticalLink& b) {
  return a.start == b.start && a.end == b.end && a.cause == b.cause && a.label == b.label &&
         a.device == b.device && a.stream == b.stream && a.instance == b.instance &&
         a.task == b.task;
}

namespace {

using testing::ElementsAre;

TEST(CriticalPath, GoesThroughTheLateMemberOfARendezvous) {
  // Device 0 computes for 30, device 1 for 50; then both are in an activity of 10.
  TaskGraph graph;
  graph.devices = 2;
  Task work, meet;
  meet.activity = 0;
  meet.cause = 1;
  meet.label = 7;
  for (const int duration : {30, 50}) {
    work.duration = Time{duration};
    graph.templates.push_back({{work, meet}});
    Instance instance;
    instance.device = instance.task_template = static_cast<int>(graph.templates.size()) - 1;
    graph.instances.push_back(instance);
  }
  graph.activities = {Activity{.members = 2, .latency = Time{10}}};
  graph.bound_activities = {0};
  const std::vector<CriticalLink> expected = {
      {Time{0}, Time{50}, 0, 0, 1, 0, 1, 0},
      {Time{50}, Time{60}, 1, 7, 0, 0, 0, 1},
  };
  EXPECT_EQ(critical_path(graph, simulate(graph, {Detail::kTasks})), expected);
}

TEST(CriticalPath, ShowsTheHostWhereItIsTheLimit) {
  // Launches of 10, tasks of 4: the third starts at 30 and ends at 34.
  TaskGraph graph;
  graph.devices = 1;
  graph.host_cause = 3;
  Task task;
  task.duration = Time{4};
  task.host = Time{10};
  graph.templates = {{{task, task, task}}};
  graph.instances = {Instance{}};
  const int host = 1;
  const std::vector<CriticalLink> expected = {
      {Time{0}, Time{10}, 3, 0, 0, host, 0, 0},
      {Time{10}, Time{20}, 3, 0, 0, host, 0, 1},
      {Time{20}, Time{30}, 3, 0, 0, host, 0, 2},
      {Time{30}, Time{34}, 0, 0, 0, 0, 0, 2},
  };
  EXPECT_EQ(critical_path(graph, simulate(graph, {Detail::kTasks})), expected);
}

TEST(CriticalPath, AddsUpToTheMakespanOnRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const TaskGraph graph = random_task_graph(seed, {.host = seed % 2 == 0,
                                                     .activities = true,
                                                     .fluid = seed % 3 == 0,
                                                     .moving = seed % 5 == 0});
    const Timeline timeline = simulate(graph, {Detail::kTasks, 4});
    if (!timeline.deadlock.empty()) continue;
    Time reached;
    for (const CriticalLink& link : critical_path(graph, timeline)) {
      ASSERT_EQ(link.start, reached) << seed;
      ASSERT_GT(link.end, link.start) << seed;
      reached = link.end;
    }
    ASSERT_EQ(reached, timeline.makespan) << seed;
  }
}

}  // namespace
}  // namespace headway
