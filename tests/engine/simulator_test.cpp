#include "sim/engine/simulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <tuple>

#include "tests/support/random_task_graph.hpp"
#include "tests/support/reference_engine.hpp"

namespace headway {

static void PrintTo(const Span& span, std::ostream* out) {
  *out << "[" << span.start.picoseconds << ".." << span.end.picoseconds << " device " << span.device
       << " stream " << span.stream << " instance " << span.instance << " task " << span.task
       << "]";
}

static bool operator==(const Span& a, const Span& b) {
  return a.start == b.start && a.end == b.end && a.device == b.device && a.stream == b.stream &&
         a.instance == b.instance && a.task == b.task;
}

namespace {

constexpr int kCauses = 4;

Time sum(const DeviceTotals& totals) {
  Time sum = totals.idle;
  for (const Time busy : totals.busy) sum += busy;
  for (const Time waiting : totals.waiting) sum += waiting;
  return sum;
}

void expect_equal_totals(const Timeline& a, const Timeline& b) {
  EXPECT_EQ(a.makespan, b.makespan);
  ASSERT_EQ(a.devices.size(), b.devices.size());
  for (std::size_t d = 0; d < a.devices.size(); ++d) {
    SCOPED_TRACE("device " + std::to_string(d));
    EXPECT_EQ(a.devices[d].busy, b.devices[d].busy);
    EXPECT_EQ(a.devices[d].waiting, b.devices[d].waiting);
    EXPECT_EQ(a.devices[d].idle, b.devices[d].idle);
    EXPECT_EQ(a.devices[d].end, b.devices[d].end);
    EXPECT_EQ(sum(a.devices[d]), a.makespan);
  }
}

// What instance detail should show: for each instance and stream, first start to last end. A host's
// span begins and ends with its launches.
std::vector<Span> by_instance(const std::vector<Span>& tasks) {
  std::map<std::tuple<int, int, int>, Span> spans;
  for (const Span& span : tasks) {
    Span& whole =
        spans.try_emplace(std::tuple(span.device, span.stream, span.instance), span).first->second;
    whole.start = std::min(whole.start, span.start);
    whole.end = std::max(whole.end, span.end);
    whole.task = -1;
  }
  std::vector<Span> sorted;
  for (const auto& [key, span] : spans) sorted.push_back(span);
  std::sort(sorted.begin(), sorted.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.start, a.device, a.stream, a.instance) <
           std::tuple(b.start, b.device, b.stream, b.instance);
  });
  return sorted;
}

// Plays random graphs in every detail and compares with the plain engine.
void compare_with_plain_engine(const RandomGraphOptions& options, std::uint32_t first_seed,
                               int graphs, int least_finished) {
  int finished = 0;
  for (int g = 0; g < graphs; ++g) {
    const std::uint32_t seed = first_seed + static_cast<std::uint32_t>(g);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TaskGraph graph = random_task_graph(seed, options);
    ASSERT_THAT(check(graph), testing::IsEmpty());
    const ReferenceRun plain = simulate_plainly(graph, kCauses);
    const Timeline tasks = simulate(graph, {Detail::kTasks, kCauses});
    ASSERT_EQ(tasks.deadlock.empty(), plain.finished);
    EXPECT_EQ(tasks.spans, plain.timeline.spans);
    if (!plain.finished) continue;
    ++finished;
    expect_equal_totals(tasks, plain.timeline);
    expect_equal_totals(simulate(graph, {Detail::kTotals, kCauses}), plain.timeline);
    const Timeline instances = simulate(graph, {Detail::kInstances, kCauses});
    expect_equal_totals(instances, plain.timeline);
    EXPECT_EQ(instances.spans, by_instance(plain.timeline.spans));
    EXPECT_EQ(instances.events, tasks.events);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(finished, least_finished);
}

TEST(Simulator, EqualsThePlainEngineOnFixedTasks) { compare_with_plain_engine({}, 1, 200, 200); }

TEST(Simulator, EqualsThePlainEngineWithAHost) {
  compare_with_plain_engine({.host = true}, 1000, 200, 200);
}

TEST(Simulator, EqualsThePlainEngineWithActivities) {
  compare_with_plain_engine({.host = true, .activities = true}, 2000, 200, 150);
}

TEST(Simulator, EqualsThePlainEngineWithFluidActivities) {
  compare_with_plain_engine({.activities = true, .fluid = true}, 3000, 200, 150);
}

TEST(Simulator, EqualsThePlainEngineWhereInstancesMoveWithTheClock) {
  compare_with_plain_engine({.activities = true, .moving = true}, 4000, 200, 150);
}

TEST(Simulator, EqualsThePlainEngineWithEverything) {
  compare_with_plain_engine({.host = true, .activities = true, .fluid = true, .moving = true}, 5000,
                            200, 150);
}

TEST(Simulator, DeadlocksExactlyWhereThePlainEngineDoes) {
  compare_with_plain_engine(
      {.host = true, .activities = true, .fluid = true, .moving = true, .backwards = true}, 6000,
      200, 20);
}

}  // namespace
}  // namespace headway
