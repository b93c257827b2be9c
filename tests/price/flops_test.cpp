#include "sim/price/flops.hpp"

#include <gtest/gtest.h>

#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

// A GEMM of 2 x 8 x 16 x 32 = 8192 FLOPs in the forward layer, an attention core of
// 4 x 2 x 4 x 10 x 10 x 8 = 25600 in the backward one.
Program with_matrices(Program program) {
  program.templates[tiny::kLayer].operations[0].operation = Gemm{.m = 8, .n = 16, .k = 32};
  program.templates[tiny::kBackward].operations[0].operation = Attention{.batch = 2,
                                                                         .heads = 4,
                                                                         .kv_heads = 4,
                                                                         .sequence_q = 10,
                                                                         .sequence_kv = 10,
                                                                         .head_dim = 8,
                                                                         .head_dim_v = 8};
  return program;
}

TEST(ExecutedFlops, CountEveryIssueOfEveryStep) {
  // Two layers, two micro-batches.
  const Program program = with_matrices(tiny::two_layers_on_one_rank());
  const ExecutedFlops executed = executed_flops(program, program.kinds[0]);
  EXPECT_EQ(executed.gemm.count, 4 * 8192);
  EXPECT_EQ(executed.attention.count, 4 * 25600);
  EXPECT_EQ(hardware_flops(program).count, 2 * 4 * (8192 + 25600));  // dp 2
}

TEST(ExecutedFlops, CountRecomputationToo) {
  Program program = with_matrices(tiny::two_layers_on_one_rank());
  auto& backward = program.kinds[0].passes[1].steps;
  backward.insert(backward.begin() + 1, {tiny::kLayer, 1});
  EXPECT_EQ(executed_flops(program, program.kinds[0]).gemm.count, 6 * 8192);
}

TEST(HardwareFlops, AddUpOverTheRanksOfAllStages) {
  const Program one = with_matrices(tiny::two_layers_on_one_rank());
  const Program two = with_matrices(tiny::two_stages());
  EXPECT_EQ(hardware_flops(one).count, hardware_flops(two).count);
}

}  // namespace
}  // namespace headway
