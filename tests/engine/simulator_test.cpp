#include "sim/engine/simulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

std::vector<std::string> waits_of(const Timeline& timeline) {
  std::vector<std::string> waits;
  for (const Wait& wait : timeline.deadlock) {
    waits.push_back("device " + std::to_string(wait.device) + " instance " +
                    std::to_string(wait.instance) + " task " + std::to_string(wait.task) + " " +
                    wait.what);
  }
  return waits;
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
    EXPECT_EQ(waits_of(simulate(graph, {Detail::kTotals, kCauses})), waits_of(tasks));
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

// A graph of one stream per template row: tasks are given as {stream, duration, after}.
Task task(int stream, int duration, std::vector<int> after = {}) {
  Task out;
  out.stream = stream;
  out.duration = Time{duration};
  out.after = std::move(after);
  return out;
}

Span span(int start, int end, int device, int stream, int instance, int task) {
  return {Time{start}, Time{end}, device, stream, instance, task};
}

std::vector<Time> times(std::initializer_list<int> picoseconds) {
  std::vector<Time> out;
  for (const int time : picoseconds) out.push_back(Time{time});
  return out;
}

TaskGraph one_device(TaskTemplate tasks, int streams = 1) {
  TaskGraph graph;
  graph.devices = 1;
  graph.streams_per_device = streams;
  graph.templates = {std::move(tasks)};
  graph.instances = {Instance{}};
  return graph;
}

TEST(Simulator, PlaysNothing) {
  const Timeline timeline = simulate(TaskGraph{});
  EXPECT_EQ(timeline.makespan, Time::zero());
  EXPECT_TRUE(timeline.deadlock.empty());
}

TEST(Simulator, PlaysAStreamInOrder) {
  const TaskGraph graph = one_device({{task(0, 5), task(0, 7), task(0, 2)}});
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 5, 0, 0, 0, 0), span(5, 12, 0, 0, 0, 1),
                                      span(12, 14, 0, 0, 0, 2)};
  EXPECT_EQ(timeline.spans, expected);
  EXPECT_EQ(timeline.makespan, Time{14});
  EXPECT_EQ(timeline.events, 3);
}

TEST(Simulator, PlaysARhomboid) {
  //        b (stream 1, 9)
  // a (3) <                > d (1)
  //        c (stream 2, 4)
  const TaskGraph graph =
      one_device({{task(0, 3), task(1, 9, {0}), task(2, 4, {0}), task(0, 1, {1, 2})}}, 3);
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 3, 0, 0, 0, 0), span(3, 12, 0, 1, 0, 1),
                                      span(3, 7, 0, 2, 0, 2), span(12, 13, 0, 0, 0, 3)};
  EXPECT_EQ(timeline.spans, expected);
}

TEST(Simulator, JoinsEverythingIssuedBeforeAlsoByEarlierInstances) {
  TaskGraph graph = one_device({{task(1, 8)}}, 2);
  Task join = task(0, 1);
  join.joins = {1};
  graph.templates.push_back({{join, task(1, 20), join}});
  graph.instances = {Instance{.task_template = 0}, Instance{.task_template = 1}};
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 8, 0, 1, 0, 0), span(8, 9, 0, 0, 1, 0),
                                      span(8, 28, 0, 1, 1, 1), span(28, 29, 0, 0, 1, 2)};
  EXPECT_EQ(timeline.spans, expected);
}

// Instances of each device in turn, all bound to activity 0.
TaskGraph meeting(std::vector<TaskTemplate> per_device, Activity activity, int streams = 1) {
  TaskGraph graph;
  graph.streams_per_device = streams;
  graph.templates = std::move(per_device);
  for (std::size_t d = 0; d < graph.templates.size(); ++d) {
    const int device = graph.devices++;
    graph.instances.push_back(Instance{.device = device, .task_template = device});
  }
  graph.activities = {activity};
  graph.bound_activities = {0};
  return graph;
}

TEST(Simulator, ARendezvousStartsWithItsLastMemberAndBooksItsSkew) {
  Task meet = task(0, 0);
  meet.activity = 0;
  meet.cause = 1;
  Task late = task(0, 50);
  late.cause = 2;
  const TaskGraph graph = meeting({{{task(0, 30), meet}}, {{task(0, 5), late, meet}}},
                                  {.members = 2, .latency = Time{10}});
  const Timeline timeline = simulate(graph, {Detail::kTasks, 3});
  const std::vector<Span> expected = {span(0, 30, 0, 0, 0, 0), span(0, 5, 1, 0, 1, 0),
                                      span(5, 55, 1, 0, 1, 1), span(55, 65, 0, 0, 0, 1),
                                      span(55, 65, 1, 0, 1, 2)};
  EXPECT_EQ(timeline.spans, expected);
  // Device 0 waits from 30 to 55 for what the latest member was doing, cause 2.
  EXPECT_EQ(timeline.devices[0].busy, times({30, 10, 0}));
  EXPECT_EQ(timeline.devices[0].waiting, times({0, 0, 25}));
  EXPECT_EQ(timeline.devices[0].idle, Time::zero());
  EXPECT_EQ(timeline.devices[1].busy, times({5, 10, 50}));
}

TEST(Simulator, WaitingBeginsWhenTheAwaitedThingStarts) {
  // Device 1 computes 20, then sends for 10 what device 0 awaits from 0 on.
  Task receive = task(1, 0);
  receive.activity = 0;
  receive.cause = 1;
  Task send = receive;
  send.after = {0};
  const TaskGraph graph = meeting({{{receive, task(0, 5, {0})}}, {{task(0, 20), send}}},
                                  {.members = 2, .latency = Time{10}}, 2);
  const Timeline timeline = simulate(graph, {Detail::kTotals, 2});
  EXPECT_EQ(timeline.makespan, Time{35});
  EXPECT_EQ(timeline.devices[0].idle, Time{20});
  EXPECT_EQ(timeline.devices[0].waiting, times({0, 10}));
  EXPECT_EQ(timeline.devices[0].busy, times({5, 0}));
  EXPECT_EQ(timeline.devices[1].idle, Time{15});
}

TEST(Simulator, AHostBoundStreamWaitsForItsLaunches) {
  // Launches of 10 each; tasks of 4, 25 and 4: launched at 10, 20, 30.
  std::vector<Task> tasks = {task(0, 4), task(0, 25), task(0, 4)};
  for (Task& each : tasks) each.host = Time{10};
  TaskGraph graph = one_device({tasks});
  graph.host_cause = 1;
  const Timeline timeline = simulate(graph, {Detail::kTasks, 2});
  const std::vector<Span> expected = {span(0, 10, 0, 1, 0, 0),  span(10, 14, 0, 0, 0, 0),
                                      span(10, 20, 0, 1, 0, 1), span(20, 45, 0, 0, 0, 1),
                                      span(20, 30, 0, 1, 0, 2), span(45, 49, 0, 0, 0, 2)};
  EXPECT_EQ(timeline.spans, expected);
  EXPECT_EQ(timeline.devices[0].waiting, times({0, 16}));
  EXPECT_EQ(timeline.devices[0].idle, Time::zero());
}

TEST(Simulator, TheHostStopsUntilWhatItWaitsForHasEnded) {
  std::vector<Task> tasks = {task(0, 40), task(0, 1)};
  for (Task& each : tasks) each.host = Time{10};
  tasks[0].host_waits = true;
  const Timeline timeline = simulate(one_device({tasks}), {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 10, 0, 1, 0, 0), span(10, 50, 0, 0, 0, 0),
                                      span(50, 60, 0, 1, 0, 1), span(60, 61, 0, 0, 0, 1)};
  EXPECT_EQ(timeline.spans, expected);
}

TEST(Simulator, BatchedSendAndReceiveEndTogether) {
  // A batch of a send and a receive is one activity per pair of devices: each exposes the other.
  Task batch = task(0, 0);
  batch.activity = 0;
  const TaskGraph graph = meeting({{{task(0, 12), batch, task(0, 3)}}, {{task(0, 20), batch}}},
                                  {.members = 2, .latency = Time{7}});
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 12, 0, 0, 0, 0), span(0, 20, 1, 0, 1, 0),
                                      span(20, 27, 0, 0, 0, 1), span(20, 27, 1, 0, 1, 1),
                                      span(27, 30, 0, 0, 0, 2)};
  EXPECT_EQ(timeline.spans, expected);
}

// Device 0 releases port 0 in an instance and awaits port 1 in the same; device 1 the reverse.
TEST(Simulator, FeedbackWithinAnInstanceIsNoDeadlock) {
  TaskGraph graph;
  graph.devices = 2;
  graph.ports = 2;
  Task first = task(0, 5), second = task(0, 6);
  first.releases = {0};
  second.awaits = {0};
  Task answer = task(0, 9);
  answer.awaits = {0};
  answer.releases = {0};
  graph.templates = {{{first, task(0, 1), second}}, {{answer}}};
  graph.instances = {
      Instance{.device = 0, .task_template = 0},
      Instance{.device = 1, .task_template = 1, .first_awaited = 1, .first_released = 1}};
  graph.awaited_ports = {1, 0};
  graph.released_ports = {0, 1};
  ASSERT_THAT(check(graph), testing::IsEmpty());
  const Timeline timeline = simulate(graph, {Detail::kInstances, 1});
  const std::vector<Span> expected = {span(0, 20, 0, 0, 0, -1), span(5, 14, 1, 0, 1, -1)};
  EXPECT_EQ(timeline.spans, expected);
}

TEST(Simulator, TransfersShareALinkWhileBothRun) {
  // 1,000 bytes each over 1 byte per ps, ready at 0 and at 400: alone until 400 (600 left), then
  // half each: the first ends at 400 + 1200 = 1600 with 400 of the second left, which ends at 2000.
  TaskGraph graph;
  graph.devices = 2;
  Task transfer = task(0, 0);
  transfer.activity = 0;
  graph.templates = {{{transfer}}, {{task(0, 400), transfer}}};
  graph.instances = {Instance{.device = 0, .task_template = 0},
                     Instance{.device = 1, .task_template = 1, .first_activity = 1}};
  graph.links = {{1e12}};
  graph.loads = {{0, 1}};
  graph.activities.assign(2, {.members = 1, .work = 1000, .load_count = 1});
  graph.bound_activities = {0, 1};
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 1600, 0, 0, 0, 0), span(0, 400, 1, 0, 1, 0),
                                      span(400, 2000, 1, 0, 1, 1)};
  EXPECT_EQ(timeline.spans, expected);
}

TEST(Simulator, AnEnvironmentSlowsWhatItOverlaps) {
  // Two tasks of 100 on stream 0, slowed by 1.5 while an activity of 120 runs beside them: the
  // first ends at 120 with nothing left of 20 * 1.5 (80 done in 120); the rest of it at full speed:
  // 140.
  Task slow = task(0, 100);
  slow.sensitivity = 0;
  Task beside = task(1, 0);
  beside.activity = 0;
  TaskGraph graph = one_device({{slow, slow, beside}}, 2);
  graph.instances[0].moves_with_clock = true;
  graph.slowdowns = {{1 << 20, 3 << 19}};
  graph.activities = {{.members = 1, .latency = Time{120}, .environment = 0}};
  graph.bound_activities = {0};
  const Timeline timeline = simulate(graph, {Detail::kTasks, 1});
  const std::vector<Span> expected = {span(0, 140, 0, 0, 0, 0), span(0, 120, 0, 1, 0, 2),
                                      span(140, 240, 0, 0, 0, 1)};
  EXPECT_EQ(timeline.spans, expected);
  EXPECT_EQ(simulate(graph).makespan, Time{240});
}

TEST(Simulator, ReportsADeadlockAsItsCycleOfWaits) {
  // Both devices send before they receive, and a send waits for its receive.
  TaskGraph graph;
  graph.devices = 2;
  Task first = task(0, 0), second = task(0, 0);
  first.activity = 0;
  second.activity = 1;
  graph.templates = {{{task(0, 5), first, second}}, {{second, first}}};
  graph.instances = {Instance{.device = 0, .task_template = 0},
                     Instance{.device = 1, .task_template = 1}};
  graph.activities.assign(2, {.members = 2, .latency = Time{1}});
  graph.bound_activities = {0, 1};
  const Timeline timeline = simulate(graph);
  ASSERT_EQ(timeline.deadlock.size(), 2u);
  EXPECT_EQ(timeline.deadlock[0].device, 0);
  EXPECT_EQ(timeline.deadlock[0].instance, 0);
  EXPECT_EQ(timeline.deadlock[0].task, 1);
  EXPECT_EQ(timeline.deadlock[0].what, "activity 0");
  EXPECT_EQ(timeline.deadlock[1].device, 1);
  EXPECT_EQ(timeline.deadlock[1].instance, 1);
  EXPECT_EQ(timeline.deadlock[1].task, 0);
  EXPECT_EQ(timeline.deadlock[1].what, "activity 1");
}

TEST(Simulator, ADeadlockThroughHostStreamAndPortNamesEach) {
  // The host waits for a task on stream 1 that awaits a port; the task that releases the port, on
  // stream 0, has yet to be launched by the host.
  Task awaiting = task(1, 1);
  awaiting.awaits = {0};
  awaiting.host_waits = true;
  Task releasing = task(0, 1);
  releasing.releases = {0};
  TaskGraph graph = one_device({{awaiting, releasing}}, 2);
  graph.ports = 1;
  graph.awaited_ports = graph.released_ports = {0};
  const Timeline timeline = simulate(graph);
  std::vector<std::string> waits;
  for (const Wait& wait : timeline.deadlock) {
    waits.push_back("task " + std::to_string(wait.task) + " " + wait.what);
  }
  EXPECT_THAT(waits, testing::ElementsAre("task 1 host", "task 0 stream 1", "task 0 port 0"));
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
