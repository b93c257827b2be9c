#include "sim/price/memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
// Simple 4 MiB, LL 512 KiB, LL128 4.6875 MiB.
constexpr std::int64_t kConnection = 4 * kMiB + kMiB / 2 + 120 * 640 * 64;

Bytes sum_of_lines(const StageMemory& stage) {
  return stage.parameters + stage.gradients + stage.optimizer + stage.activations + stage.buffers +
         stage.workspace + stage.context;
}

TEST(MemoryReport, LinesAddUpToThePeakOfEachStage) {
  const Program program = tiny::two_stages();
  const MemoryReport report = report_memory(
      program,
      {.capacity = {kGiB}, .context = {500}, .workspace = {1000}, .communicator_channels = 2});
  ASSERT_EQ(report.per_stage.size(), 2U);
  // First stage: a weight of 100; its peak is the second forward, with hidden 0 of both
  // micro-batches, hidden 1 of the second (the first one's is sent and gone) and the scratch of 3.
  EXPECT_EQ(report.per_stage[0].parameters.count, 100);
  EXPECT_EQ(report.per_stage[0].activations.count, 33);
  // Last stage: hidden 1, hidden 2 and the scratch, or the gradient: 10 + 10 + 7.
  EXPECT_EQ(report.per_stage[1].activations.count, 27);
  for (const StageMemory& stage : report.per_stage) {
    EXPECT_EQ(stage.peak, sum_of_lines(stage));
    // Communicators for dp and for messages along pp, two channels each.
    EXPECT_EQ(stage.communicators.count, 2 * 2 * kConnection);
    EXPECT_EQ(stage.context.count, 500);
    EXPECT_EQ(stage.workspace.count, 1000);
  }
  EXPECT_EQ(report.fullest_stage, 0);
  EXPECT_EQ(report.peak, report.per_stage[0].peak);
  EXPECT_TRUE(report.fits);
  EXPECT_EQ(report.why, "");
}

TEST(MemoryReport, AllocatedRoundsBlocksAndReservedRoundsSegments) {
  const Program program = tiny::two_stages();
  const MemoryReport report = report_memory(
      program,
      {.capacity = {kGiB}, .context = {500}, .workspace = {1000}, .communicator_channels = 0});
  // Weight, three hidden, scratch; the workspace is 1000 -> 1024.
  EXPECT_EQ(report.allocated.count, 5 * 512 + 1024);
  EXPECT_EQ(report.reserved.count, 2 * kMiB);
  EXPECT_EQ(report.device.count, 2 * kMiB + 500);
}

TEST(MemoryReport, SaysWhyAStepDoesNotFit) {
  Program program = tiny::two_stages();
  program.buffers[tiny::kHidden].columns = kGiB;
  const MemoryReport report =
      report_memory(program, {.capacity = {2 * kGiB}, .context = {kMiB}, .workspace = {}});
  EXPECT_FALSE(report.fits);
  EXPECT_EQ(report.why,
            "stage 0 needs 3.3 GiB of 2.0 GiB; most of it activations, 3.0 GiB; the peak stands at "
            "0F1, down of layer[0]");
}

TEST(MemoryReport, FitsUpToTheLastByteOfItsSegments) {
  Program program = tiny::two_layers_on_one_rank();
  program.buffers[tiny::kWeight].columns = 100 * kMiB;  // two of them: segments of 100 MiB each
  const Bytes needed{200 * kMiB + 2 * kMiB + 500};      // and the small pool, and the context
  const MemoryReport fits = report_memory(program, {.capacity = needed, .context = {500}});
  EXPECT_EQ(fits.device, needed);
  EXPECT_TRUE(fits.fits) << fits.why;
  const MemoryReport not_quite =
      report_memory(program, {.capacity = needed - Bytes{1}, .context = {500}});
  EXPECT_FALSE(not_quite.fits);
  EXPECT_NE(not_quite.why.find("before the allocator's fragmentation"), std::string::npos);
}

TEST(MemoryReport, StagesOfOneKindAreAlike) {
  Program program = tiny::two_layers_on_one_rank();
  program.grid = RankGrid({{"dp", 1}, {"pp", 3}});
  program.kinds[0].stages = {0, 1, 2};
  const MemoryReport report = report_memory(program, {.capacity = {kGiB}});
  ASSERT_EQ(report.per_stage.size(), 3U);
  EXPECT_EQ(report.per_stage[2].peak.count, 267);
  EXPECT_EQ(report.fullest_stage, 0);
}

}  // namespace
}  // namespace headway
