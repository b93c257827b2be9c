#include "sim/search/step_bound.hpp"

#include <gtest/gtest.h>

#include "sim/program/training_step.hpp"
#include "sim/simulate/simulated_step.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

struct Bounded {
  Time bound, time;
};

Bounded bounded(const std::string& plan) {
  Problems problems;
  const OpenJob open = open_job(small_job("{}"));
  const JobReading reading = open.with_plan(JsonNode::parse_text(plan, "plan"), problems);
  problems.throw_if_any();
  const PriceBook prices(a100());
  return {least_step_time(*reading.job, lower(*reading.job), prices),
          simulate_step(*reading.job, a100()).timeline.makespan};
}

// Every schedule and kind of data parallelism: if one of them broke it, the search would prune what
// it must not.
TEST(StepBound, IsNeverAboveTheSimulatedStep) {
  for (const std::string plan :
       {R"({"tp": 8})",
        R"({"tp": 2, "micro_batch": 2})",
        R"({"dp_kind": "zero2"})",
        R"({"dp_kind": "zero3", "tp": 2})",
        R"({"dp_kind": "fsdp", "micro_batch": 2})",
        R"({"dp_kind": "distributed_optimizer", "tp": 4, "sequence_parallel": true})",
        R"({"tp": 2, "pp": 4})",
        R"({"tp": 2, "pp": 4, "schedule": "gpipe"})",
        R"({"pp": 4, "schedule": "interleaved", "vpp": 3, "tp": 2, "recompute": "full"})",
        R"({"pp": 4, "schedule": "interleaved", "vpp": 3, "overlap_p2p": false, "tp": 4})",
        R"({"pp": 4, "schedule": "looped-bfs", "vpp": 2, "tp": 2})",
        R"({"pp": 4, "schedule": "zb-h1", "tp": 2})",
        R"({"pp": 4, "schedule": "zb-h2", "tp": 2})",
        R"({"pp": 4, "schedule": "zb-v", "tp": 2})",
        R"({"pp": 4, "schedule": "v-half", "tp": 2})",
        R"({"pp": 4, "schedule": "v-min", "tp": 2})",
        R"({"pp": 4, "schedule": "dualpipe", "tp": 4})",
        R"({"pp": 4, "schedule": "dualpipe-v", "tp": 4})",
        R"({"pp": 4, "schedule": "chimera", "tp": 4})",
        R"({"pp": 8, "tp": 2, "recompute": "full", "recompute_layers": 1})"}) {
    const Bounded result = bounded(plan);
    EXPECT_LE(result.bound, result.time) << plan;
    EXPECT_GT(result.bound.seconds(), 0.3 * result.time.seconds()) << plan;
  }
}

// 1F1B's m + p - 1 slots are unavoidable and all that a pipeline of messages in time takes; what
// the bound leaves out is the host, exposed messages and reductions.
TEST(StepBound, CountsTheSlotsOf1F1B) {
  const Bounded deep = bounded(R"({"tp": 2, "pp": 8, "micro_batch": 1})");
  EXPECT_GT(deep.bound.seconds(), 0.75 * deep.time.seconds());
}

}  // namespace
}  // namespace headway
