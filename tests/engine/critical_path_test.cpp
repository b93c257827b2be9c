#include "sim/engine/critical_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sim/engine/simulator.hpp"
#include "tests/support/random_task_graph.hpp"

namespace headway {

static bool operator==(const CriticalLink& a, const CriticalLink& b) {
  return a.start == b.start && a.end == b.end && a.cause == b.cause && a.label == b.label &&
         a.device == b.device && a.stream == b.stream && a.instance == b.instance &&
         a.task == b.task;
}

namespace {

using testing::IsEmpty;

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

// Lengths at random, so that no two ways through the graph are equally long.
void spread_lengths(TaskGraph& graph, std::uint32_t seed) {
  std::mt19937 random(seed);
  constexpr int kScale = 1 << 20;
  const auto spread = [&](Time& time) {
    if (time > Time::zero()) time = kScale * time + Time{static_cast<int>(random() % kScale)};
  };
  for (TaskTemplate& one : graph.templates) {
    for (Task& task : one.tasks) {
      spread(task.duration);
      spread(task.host);
    }
  }
  for (Activity& activity : graph.activities) {
    spread(activity.latency);
    activity.work *= kScale;
  }
}

TEST(CriticalPath, IsFoundWithoutSpansAsWithThem) {
  constexpr int kCauses = 5, kHost = 4;
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    TaskGraph graph = random_task_graph(seed, {.host = seed % 2 == 0,
                                               .activities = seed % 3 != 0,
                                               .fluid = seed % 4 == 0,
                                               .moving = seed % 5 == 0});
    graph.host_cause = kHost;
    spread_lengths(graph, seed);
    const Timeline spans = simulate(graph, {Detail::kTasks, kCauses});
    if (!spans.deadlock.empty()) continue;
    ++compared;
    std::vector<Time> expected(kCauses);
    for (const CriticalLink& link : critical_path(graph, spans)) {
      expected[static_cast<std::size_t>(link.cause)] += link.end - link.start;
    }
    for (const Detail detail : {Detail::kTotals, Detail::kInstances, Detail::kTasks}) {
      const Timeline timeline = simulate(graph, {detail, kCauses, true});
      ASSERT_EQ(timeline.critical_path, expected) << seed;
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(CriticalPath, IsNotLookedForWhereNobodyAsks) {
  EXPECT_THAT(simulate(random_task_graph(1, {})).critical_path, IsEmpty());
}

}  // namespace
}  // namespace headway
