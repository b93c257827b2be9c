#include "sim/validate/anchor.hpp"

#include <gmock/gmock.h>

#include "sim/report/step_report.hpp"
#include "sim/validate/validation.hpp"

namespace headway {
namespace {

constexpr const char* kJob = R"({
  "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 8}, "sequence_length": 2048,
  "global_batch": 16, "software": {"framework": "megatron-2022"},
  "plan": {"tp": 2, "pp": 2, "micro_batch": 1}})";

MeasuredRun run_of(const std::string& id, double seconds) {
  MeasuredRun run(JsonNode::parse_text(kJob, "run.json"));
  run.id = id;
  run.file = "run";
  run.iteration_time = Time::from_seconds(seconds);
  return run;
}

StepReport plain() {
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(kJob, "run.json"), {}, problems);
  const Profile profile = read_profile(reading.job->profile);
  return report_step(*reading.job, profile, simulate_step(*reading.job, profile));
}

// A step that took a tenth longer than predicted: everything takes a tenth longer.
TEST(Anchor, AStepTimeAloneCorrectsAllAlike) {
  const double predicted = plain().iteration.seconds();
  const Correction correction = anchored_by(run_of("own", 1.1 * predicted));
  for (const double factor : correction.factors) {
    EXPECT_NEAR(factor, correction.factors.front(), 1e-12);
    EXPECT_NEAR(factor, 1.1, 0.002);
  }
}

TEST(Anchor, PredictsItsOwnRunAndGradesItAnchored) {
  const double predicted = plain().iteration.seconds();
  MeasuredRun own = run_of("own", 1.3 * predicted);
  const Breakdown parts = plain().breakdown;
  own.breakdown["compute"] = Time::from_seconds(1.2 * parts.compute.seconds());
  own.breakdown["tp"] = Time::from_seconds(2 * parts.tp.seconds());
  const Correction correction = anchored_by(own);
  EXPECT_NEAR(correction.factor(Cause::kTensorParallel) / correction.factor(Cause::kCompute),
              2 / 1.2, 1e-9);
  ValidationOptions options;
  options.anchor = own;
  const Validation validation = validate({own}, options);
  EXPECT_NEAR(validation.runs.front().error(), 0, 1e-3);
}

TEST(Anchor, NeedsATime) {
  MeasuredRun own = run_of("own", 1);
  own.iteration_time.reset();
  EXPECT_THROW(anchored_by(own), InvalidInput);
}

TEST(Anchor, OfWhatWasPredictedChangesNothing) {
  const Correction correction = anchored_by(run_of("own", plain().iteration.seconds()));
  for (const double factor : correction.factors) EXPECT_NEAR(factor, 1, 1e-9);
}

}  // namespace
}  // namespace headway
