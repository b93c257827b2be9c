#include "sim/engine/whole_instance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace headway::engine {
namespace {

Task task(int stream, std::vector<int> after = {}) {
  Task out;
  out.stream = stream;
  out.duration = Time{10};
  out.after = std::move(after);
  return out;
}

// One device that plays one template once.
TaskGraph one_instance(std::vector<Task> tasks, int streams) {
  TaskGraph graph;
  graph.devices = 1;
  graph.streams_per_device = streams;
  graph.templates = {{std::move(tasks)}};
  graph.instances = {Instance{}};
  return graph;
}

WholeInstance whole_of(const CompiledGraph& compiled, int variant = 0) {
  return find_whole_instances(compiled)[static_cast<std::size_t>(variant)];
}

constexpr Columns kStream0 = 1, kStream1 = 2, kHost = 4;

TEST(WholeInstance, OrdersEachStepBehindThoseThatItWaitsFor) {
  // Stream 0 waits for stream 1, which waits for stream 0.
  const CompiledGraph compiled =
      compile(one_instance({task(0), task(1, {0}), task(0, {1})}, 2), true);
  const WholeInstance whole = whole_of(compiled);
  ASSERT_TRUE(whole.possible);
  std::vector<int> streams;
  for (const auto& [step, stream] : whole.order) streams.push_back(stream);
  EXPECT_THAT(streams, testing::ElementsAre(0, 1, 0));
  EXPECT_EQ(whole.streams, kStream0 | kStream1);
  EXPECT_EQ(whole.tasks, 3);
}

TEST(WholeInstance, ReadsWhereAStreamStandsWithoutASlot) {
  // Stream 1 joins what stream 0 has done before the instance: no step of stream 0 notes it.
  Task joining = task(1);
  joining.joins = {0};
  const CompiledGraph compiled = compile(one_instance({joining}, 2), true);
  const WholeInstance whole = whole_of(compiled);
  ASSERT_EQ(whole.order.size(), 2U);
  ASSERT_EQ(whole.steps.size(), 1U);
  EXPECT_EQ(whole.steps[0].stream, 1);
  EXPECT_THAT(whole.sources, testing::ElementsAre(0));
}

TEST(WholeInstance, StoresASlotWhoseStreamGoesOnBeforeItIsRead) {
  // By the time stream 1 reads its first task's end, stream 0 has gone on to the third.
  Task port = task(1, {0});
  const CompiledGraph compiled = compile(one_instance({task(0), port, task(0)}, 2), true);
  const WholeInstance whole = whole_of(compiled);
  ASSERT_EQ(whole.steps.size(), 3U);
  EXPECT_NE(whole.steps[0].store, kNoIndex);
  EXPECT_THAT(whole.sources, testing::ElementsAre(whole.steps[0].store));
}

TEST(WholeInstance, IsNotPossibleWhereSomethingInsideWaitsForAnActivity) {
  Task activity = task(1);
  activity.activity = 0;
  TaskGraph graph = one_instance({activity, task(0, {0})}, 2);
  graph.activities.resize(1);
  graph.bound_activities = {0};
  EXPECT_FALSE(whole_of(compile(graph, true)).possible);
  graph.templates[0].tasks[1].after.clear();
  EXPECT_TRUE(whole_of(compile(graph, true)).possible);
  graph.instances[0].moves_with_clock = true;
  EXPECT_FALSE(whole_of(compile(graph, true), 1).possible);
}

TEST(WholeInstance, HoldsBackOnlyWhatWaitsForAColumn) {
  // A message on stream 1 that waits for stream 0 and its launch, then work on stream 0.
  Task message = task(1);
  message.activity = 0;
  message.joins = {0};
  message.host = Time{1};
  TaskGraph graph = one_instance({message, task(0)}, 2);
  graph.activities.resize(1);
  graph.bound_activities = {0};
  const WholeInstance whole = whole_of(compile(graph, true));
  for (const Columns column : {kStream0, kStream1, kHost}) {
    EXPECT_TRUE(holds_back_all(whole, column)) << column;
  }
  EXPECT_EQ(held_back(whole, kStream0), kStream0 | kStream1);
  EXPECT_EQ(held_back(whole, kStream1), kStream1);
  EXPECT_EQ(held_back(whole, kHost), kStream0 | kStream1 | kHost);
  EXPECT_EQ(whole.visible_waits_for, kStream0 | kStream1 | kHost);
}

TEST(WholeInstance, GivesStepsThatAwaitPortsTheirOwnColumns) {
  Task first = task(0), second = task(1);
  first.awaits = {0};
  second.awaits = {1};
  second.releases = {0};
  TaskGraph graph = one_instance({first, second}, 2);
  const WholeInstance whole = whole_of(compile(graph, true));
  ASSERT_EQ(whole.awaited.size(), 2U);
  EXPECT_FALSE(holds_back_all(whole, whole.awaited[0].column));
  EXPECT_TRUE(holds_back_all(whole, whole.awaited[1].column));
  EXPECT_EQ(held_back(whole, whole.awaited[1].column), kStream1);
}

}  // namespace
}  // namespace headway::engine
