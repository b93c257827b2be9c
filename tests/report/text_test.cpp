#include "sim/report/text.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/report/small_step.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

long lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

constexpr const char* kGpt3Job = R"({
  "model": "gpt3-175b", "cluster": {"topology": "dgx-a100", "nodes": 128},
  "sequence_length": 2048, "global_batch": 1536, "software": {"framework": "megatron-2022"},
  "plan": {"tp": 8, "pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3,
           "sequence_parallel": true, "recompute": "selective"}})";

TEST(Summary, SaysWhatWasAskedAndWhatCameOut) {
  const Played played = play(kGpt3Job);
  const std::string text = summary(played.job, played.report);
  EXPECT_THAT(text,
              StartsWith("gpt3-175b on 1024 x a100-sxm-80gb (dgx-a100), megatron-2022\n"
                         "tp 8 x pp 16 x dp 8, interleaved (vpp 3), 192 micro-batches of 1 "
                         "sequence of 2048 tokens, recompute selective, sequence parallel, ddp\n"));
  for (const char* row : {"\nstep ", "\nthroughput ", "\nefficiency ", "\ntime ", "\nlimit ",
                          "\nmemory ", "\nevidence ", "\nprice "}) {
    EXPECT_THAT(text, HasSubstr(row));
  }
  EXPECT_THAT(text, HasSubstr("compute, "));
  EXPECT_THAT(text, HasSubstr(" of the critical path; the busiest rank loses most to "));
}

TEST(Summary, IsReadInTenSecondsHoweverManyStagesThereAre) {
  const Played played = play(kGpt3Job);
  const std::string text = summary(played.job, played.report);
  EXPECT_LE(lines_of(text), 24);
  EXPECT_THAT(text, AllOf(HasSubstr("\n  stage 0 "), HasSubstr("\n  stage 15 "),
                          HasSubstr("\n  the 14 stages between: "), Not(HasSubstr("stage 7"))));
}

TEST(Summary, NamesTheStageThatDoesNotFit) {
  const Played played = play(R"({
    "model": "llama2-7b", "cluster": {"topology": "dgx-a100", "gpus": 8}, "sequence_length": 4096,
    "global_batch": 8, "plan": {}})");
  EXPECT_FALSE(played.report.memory.fits);
  EXPECT_THAT(summary(played.job, played.report),
              HasSubstr("\nmemory      does not fit: " + played.report.memory.why));
}

TEST(Summary, SaysWhereRanksDoNotFold) {
  const std::string job = R"({
    "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 64}, "sequence_length": 2048,
    "global_batch": 64, "plan": {}})";
  StepOptions options;
  options.unfolded = true;
  const Played unfolded = play(job, options), folded = play(job);
  EXPECT_THAT(summary(unfolded.job, unfolded.report),
              HasSubstr("ranks       64 of 64 differ and were simulated one by one\n"));
  EXPECT_THAT(summary(folded.job, folded.report), Not(HasSubstr("one by one")));
}

TEST(Summary, OfADeadlockIsWhoWaitsForWhom) {
  const Played played = play_deadlock();
  const std::string text = summary(played.job, played.report);
  EXPECT_THAT(text, HasSubstr("\nthe schedule deadlocks:\n  pipeline rank "));
  EXPECT_THAT(text, Not(HasSubstr("\nstep ")));
}

}  // namespace
}  // namespace headway
