#include "sim/report/json.hpp"

#include <gmock/gmock.h>

#include "tests/report/small_step.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

JsonNode result(const std::optional<WallClock>& wall_clock = std::nullopt) {
  const Played played = play(kSmallJob);
  return JsonNode::parse_text(result_json(played.job, played.report, wall_clock), "result.json");
}

TEST(ResultJson, HasTheKeysThatScriptsRelyOn) {
  const JsonNode json = result();
  EXPECT_THAT(
      json.keys(),
      ElementsAre("iteration_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s",
                  "model_flops_per_s_per_gpu", "mfu", "hfu", "gpus", "dp", "fits", "breakdown_s",
                  "bubble_fraction", "communication", "critical_path", "evidence", "interval_s",
                  "energy_j", "cost_usd", "memory", "events", "job", "version"));
  EXPECT_THAT(
      json.find("breakdown_s")->keys(),
      ElementsAre("compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host", "other"));
  const JsonNode memory = *json.find("memory");
  EXPECT_THAT(memory.keys(), ElementsAre("capacity_bytes", "peak_bytes", "allocated_bytes",
                                         "reserved_bytes", "device_bytes", "per_stage"));
  EXPECT_THAT(memory.find("per_stage")->elements().front().keys(),
              ElementsAre("parameters", "gradients", "optimizer", "activations", "buffers",
                          "workspace", "context", "peak"));
  EXPECT_THAT(json.find("communication")->elements().front().keys(),
              ElementsAre("kind", "group", "size", "bytes_per_rank", "count", "algorithm",
                          "protocol", "time_s", "exposed_s"));
  EXPECT_THAT(json.find("evidence")->keys(),
              ElementsAre("measured", "fitted", "extrapolated", "anchored"));
  EXPECT_THAT(json.find("critical_path")->elements().front().keys(),
              ElementsAre("cause", "time_s"));
  EXPECT_THAT(json.find("job")->keys(),
              ElementsAre("model", "cluster", "precision", "sequence_length", "global_batch",
                          "software", "plan", "notes"));
}

TEST(ResultJson, StagesAddUpToTheirPeaks) {
  const JsonNode memory = *result().find("memory");
  std::int64_t highest = 0;
  for (const JsonNode& stage : memory.find("per_stage")->elements()) {
    std::int64_t sum = 0;
    for (const std::string& line : stage.keys()) {
      if (line != "peak") sum += stage.find(line)->integer();
    }
    EXPECT_EQ(sum, stage.find("peak")->integer());
    highest = std::max(highest, sum);
  }
  EXPECT_EQ(memory.find("peak_bytes")->integer(), highest);
}

TEST(ResultJson, HasWallClockFiguresOnlyWhereAskedFor) {
  EXPECT_FALSE(result().find("wall_s"));
  const JsonNode json = result(WallClock{0.5, 0.75});
  EXPECT_EQ(json.find("wall_s")->number(), 0.5);
  EXPECT_EQ(json.find("process_s")->number(), 0.75);
  EXPECT_DOUBLE_EQ(json.find("events_per_s")->number(),
                   static_cast<double>(json.find("events")->integer()) / 0.5);
}

TEST(ResultJson, ADeadlockHasNoTimes) {
  const Played played = play_deadlock();
  const JsonNode json =
      JsonNode::parse_text(result_json(played.job, played.report, std::nullopt), "result.json");
  EXPECT_THAT(json.keys(),
              ElementsAre("gpus", "dp", "fits", "deadlock", "memory", "events", "job", "version"));
  EXPECT_FALSE(json.find("deadlock")->elements().empty());
}

}  // namespace
}  // namespace headway
