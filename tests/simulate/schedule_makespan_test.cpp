// Makespans of the schedules as they are lowered and played by the engine: facts 3.3. A pass takes
// a given time as a whole, everything else none. The same numbers as those of the bare orders
// (tests/pipeline/makespan_test.cpp), now with messages, ports and the step's begin and end.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sim/cost/profile.hpp"
#include "sim/engine/simulator.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/schedule.hpp"
#include "sim/program/training_step.hpp"
#include "sim/simulate/lowering.hpp"
#include "sim/simulate/steady_step.hpp"

namespace headway {
namespace {

struct PassTimes {
  double forward = 1, input = 1, weight = 1;
  double latency = 0;  // of a message
};
constexpr PassTimes kEven = {1, 1, 1};
constexpr PassTimes kUneven = {3, 4, 2};
constexpr PassTimes kShortWeight = {2, 3, 1};
constexpr double kUnit = 1e6;  // picoseconds

Time units(double count) { return Time{std::llround(count * kUnit)}; }

double time_of(const std::string& pass, const PassTimes& times) {
  switch (pass.back()) {
    case 'F':
      return times.forward;
    case 'I':
      return times.input;
    case 'W':
      return times.weight;
    default:  // B
      return times.input + times.weight;
  }
}

// "12W": a stage and the kind of its pass, and nothing of messages or the optimizer.
bool is_compute(const Pass& pass) {
  return pass.stage >= 0 && pass.name.find_first_not_of("0123456789") == pass.name.size() - 1;
}

struct Case {
  int ranks, micro_batches;
  double makespan;
};

double makespan(const std::string& schedule, const Case& shape, const PassTimes& times,
                int stages_per_rank = 1, const std::string& more = "") {
  const std::string pp = std::to_string(shape.ranks);
  const std::string layers = std::to_string(shape.ranks * stages_per_rank);
  const std::string vpp =
      schedule == "looped-bfs" ? R"(, "vpp": )" + std::to_string(stages_per_rank) : "";
  const std::string text = R"({"model": {"hidden_size": 64, "num_hidden_layers": )" + layers +
                           R"(, "num_attention_heads": 4, "intermediate_size": 128,
      "vocab_size": 64, "hidden_act": "silu", "gated_mlp": true},
      "cluster": {"topology": "dgx-a100", "gpus": )" +
                           pp + R"(}, "sequence_length": 16, "global_batch": )" +
                           std::to_string(shape.micro_batches) + R"(,
      "plan": {"micro_batch": 1, "pp": )" +
                           pp + R"(, "schedule": ")" + schedule + "\"" + vpp + more + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job"), {}, problems);
  problems.throw_if_any();
  const Job& job = reading.job.value();
  const Program program = lower(job);
  LoweredStep step = lower_to_tasks({.program = program,
                                     .topology = job.topology,
                                     .profile = read_profile("a100-sxm-80gb"),
                                     .software = job.software,
                                     .machine = {},
                                     .unfolded = false});
  TaskGraph& graph = step.graph;
  for (TaskTemplate& one : graph.templates) {
    for (Task& task : one.tasks) task.duration = task.host = Time::zero();
  }
  for (Activity& activity : graph.activities) {
    activity.latency = activity.members == 2 ? units(times.latency) : Time::zero();
    activity.work = 0;
  }
  for (std::size_t i = 0; i < graph.instances.size(); ++i) {
    const InstanceOrigin& origin = step.instances[i];
    const RankKind& kind = program.kinds[static_cast<std::size_t>(
        step.device_kind[static_cast<std::size_t>(origin.device)])];
    const Issue& issue = kind.order[static_cast<std::size_t>(origin.issue)];
    const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
    if (!is_compute(pass)) continue;
    auto& tasks = graph.templates[static_cast<std::size_t>(graph.instances[i].task_template)].tasks;
    tasks.back().duration = units(time_of(pass.name, times));
  }
  const Timeline timeline = program.steps_overlap ? steady_step(graph, {}) : simulate(graph);
  EXPECT_TRUE(timeline.deadlock.empty());
  return static_cast<double>(timeline.makespan.picoseconds) / kUnit;
}

void expect(const char* schedule, const PassTimes& times, const std::vector<Case>& cases,
            int stages_per_rank = 1) {
  for (const Case& one : cases) {
    EXPECT_DOUBLE_EQ(makespan(schedule, one, times, stages_per_rank), one.makespan)
        << schedule << " p" << one.ranks << " m" << one.micro_batches << " F" << times.forward
        << " I" << times.input << " W" << times.weight << " c" << times.latency;
  }
}

TEST(ScheduleMakespan, OfGpipe) {
  expect("gpipe", kEven, {{2, 4, 15}, {4, 4, 21}, {4, 8, 33}, {4, 12, 45}, {8, 16, 69}});
  expect("gpipe", kUneven, {{2, 4, 45}, {4, 4, 63}, {4, 8, 99}, {8, 16, 207}});
}

TEST(ScheduleMakespan, OfOneFOneB) {
  expect("1f1b", kEven, {{2, 4, 15}, {4, 4, 21}, {4, 8, 33}, {4, 12, 45}, {8, 16, 69}});
  expect("1f1b", kUneven, {{2, 4, 45}, {4, 4, 63}, {4, 8, 99}, {8, 16, 207}});
}

// Nine layers in three stages, with one to three micro-batches: (m + p - 1)(F + B).
TEST(ScheduleMakespan, OfThreeStagesGrowsByAPassEachWay) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    expect(schedule, kEven, {{3, 1, 9}, {3, 2, 12}, {3, 3, 15}});
  }
}

// Slots of one pass: 2 m + p - 2 of them (arXiv 2107.06925, table 2).
TEST(ScheduleMakespan, OfChimera) {
  expect("chimera", {1, 0.5, 0.5}, {{4, 4, 10}, {4, 8, 18}, {8, 8, 22}}, 1);
}

// F 1 and B 2 for all chunks of a rank together.
TEST(ScheduleMakespan, OfLoopedBfs) {
  for (const auto& [chunks, expected] : {std::pair(2, 28.5), {4, 26.25}}) {
    const double share = 1.0 / chunks;
    expect("looped-bfs", {share, share, share}, {{4, 8, expected}}, chunks);
  }
  expect("looped-bfs", {0.5, 0.5, 0.5}, {{2, 4, 13.5}, {4, 4, 16.5}, {8, 16, 58.5}}, 2);
}

TEST(ScheduleMakespan, OfZbH1) {
  expect("zb-h1", kEven, {{2, 4, 13}, {4, 4, 15}, {4, 8, 27}, {4, 12, 39}, {8, 16, 55}});
  expect("zb-h1", kUneven, {{2, 4, 41}, {4, 4, 51}, {4, 8, 87}, {4, 12, 123}, {8, 16, 179}});
  expect("zb-h1", kShortWeight, {{2, 4, 28}, {4, 8, 60}, {8, 16, 124}});
}

TEST(ScheduleMakespan, OfZbH2) {
  expect("zb-h2", kEven, {{2, 4, 13}, {4, 8, 27}, {4, 12, 39}, {8, 16, 55}});
  expect("zb-h2", kUneven, {{2, 4, 39}, {4, 8, 81}, {4, 12, 117}, {8, 16, 165}});
  expect("zb-h2", kShortWeight, {{2, 4, 27}, {4, 8, 57}, {8, 16, 117}});
}

TEST(ScheduleMakespan, OfZbV) {
  expect("zb-v", kEven, {{2, 4, 25}, {4, 8, 51}, {4, 12, 75}, {8, 16, 103}}, 2);
  expect("zb-v", kUneven, {{2, 4, 76}, {4, 8, 156}, {4, 12, 228}, {8, 16, 316}}, 2);
}

// Where no rank waits for the whole norm, a step takes what the busiest stage takes from its first
// pass to its last (facts 3.3, "max stage time"): no bubble is left where F = I = W.
TEST(ScheduleMakespan, OfAPostValidatedStepIsTheLongestStages) {
  const auto expect_steady = [](const char* schedule, const PassTimes& times,
                                const std::vector<Case>& cases, int stages_per_rank) {
    for (const Case& one : cases) {
      EXPECT_DOUBLE_EQ(
          makespan(schedule, one, times, stages_per_rank, R"(, "synchronous_optimizer": false)"),
          one.makespan)
          << schedule << " p" << one.ranks << " m" << one.micro_batches;
    }
  };
  expect_steady("zb-h2", kEven, {{2, 4, 12}, {4, 8, 24}, {4, 12, 36}, {8, 16, 48}}, 1);
  expect_steady("zb-h2", kUneven, {{2, 4, 39}, {4, 8, 81}, {4, 12, 117}, {8, 16, 165}}, 1);
  expect_steady("zb-v", kEven, {{2, 4, 24}, {4, 8, 48}, {4, 12, 72}, {8, 16, 96}}, 2);
}

// An overlapped pair as long as its halves one after the other.
TEST(ScheduleMakespan, OfDualpipeV) {
  expect("dualpipe-v", kEven, {{2, 4, 26}, {2, 8, 50}, {4, 8, 54}, {4, 10, 66}, {4, 16, 102}}, 2);
  expect("dualpipe-v", kUneven, {{2, 4, 80}, {2, 8, 152}, {4, 8, 168}, {4, 10, 204}, {4, 16, 312}},
         2);
}

TEST(ScheduleMakespan, OfDualpipe) {
  expect("dualpipe", kEven, {{4, 8, 26}, {4, 12, 38}, {8, 16, 54}, {8, 20, 66}}, 1);
  expect("dualpipe", kUneven, {{4, 8, 80}, {4, 12, 116}, {8, 16, 168}, {8, 20, 204}}, 1);
}

// The receiver waits for the hop.
TEST(ScheduleMakespan, OfZbH1GrowsWithTheLatencyOfAHop) {
  expect("zb-h1", {1, 1, 1, 0.5}, {{4, 8, 33}});
  expect("zb-h1", {1, 1, 1, 1}, {{4, 8, 41}});
}

}  // namespace
}  // namespace headway
