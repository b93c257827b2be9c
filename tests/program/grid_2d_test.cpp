// Matrices shared as squares, and stacks of squares, of ranks: what is moved, held and summed.
#include "sim/program/tensor/grid_2d.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"
#include "tests/program/template_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

// Two sequences of eight tokens for each row of ranks; 16 columns, 64 of the MLP.
Job squares(int side, int depth) {
  Job job = small_job();
  job.plan.micro_batch = 2 * side * depth;
  job = spread(std::move(job), side * side * depth, 1, 1);
  job.plan.tp_kind = depth == 1 ? TensorKind::k2d : TensorKind::k2_5d;
  job.plan.tp_side = side;
  job.plan.tp_depth = depth;
  job.plan.sequence_parallel = true;
  return job;
}

// Elements that a rank's blocks travel by broadcasts and reductions to, or from, `side` - 1 others.
std::int64_t moved(const Program& program, const std::string& prefix, int side) {
  std::int64_t elements = 0;
  for (const char* list : {"layer.forward", "layer.backward"}) {
    for (const TemplateOperation& operation : template_named(program, list).operations) {
      const auto* collective = std::get_if<Collective>(&operation.operation);
      if (collective == nullptr || !operation.name.starts_with(prefix)) continue;
      if (collective->kind != CollectiveKind::kBroadcast &&
          collective->kind != CollectiveKind::kReduce) {
        continue;
      }
      elements += collective->elements * (side - 1);
    }
  }
  return elements;
}

TEST(SquaresOfRanks, MoveThreeTimesEachOperandForwardAndBack) {
  // ColossalAI, 2D_tensor_parallel.md: 6 (q - 1) / q, of the activation and of the matrix a half;
  // 2p5D_tensor_parallel.md: of the activation 1/d of that.
  for (const auto& [side, depth] : {std::pair(2, 1), {4, 1}, {2, 2}}) {
    const Job job = squares(side, depth);
    const std::int64_t tokens = 8 * job.plan.micro_batch, hidden = 16, width = 64;
    const Program program = lower(job);
    EXPECT_EQ(moved(program, "mlp.first", side) * side,
              3 * (side - 1) * (tokens * hidden / depth + width * hidden))
        << side << " x " << side << " x " << depth;
    EXPECT_EQ(moved(program, "mlp.second", side) * side,
              3 * (side - 1) * (tokens * width / depth + width * hidden));
  }
}

TEST(SquaresOfRanks, HoldABlockOfEachMatrixAndActivation) {
  const auto elements = [](const Program& program, const std::string& name) {
    for (const BufferFamily& family : program.buffers) {
      if (family.name == name) return family.elements();
    }
    return std::int64_t{-1};
  };
  const Program four = lower(squares(2, 1)), eight = lower(squares(2, 2));
  EXPECT_EQ(elements(four, "mlp.first_weight"), 64 * 16 / 4);
  EXPECT_EQ(elements(eight, "mlp.first_weight"), 64 * 16 / 4);  // a copy on each square
  EXPECT_EQ(elements(four, "mlp.first_output"), 8 * 4 * 64 / 4);
  EXPECT_EQ(elements(eight, "mlp.first_output"), 8 * 8 * 64 / 8);
}

TEST(SquaresOfRanks, BroadcastTheNextBlocksBesideAProduct) {
  const Program program = lower(squares(2, 1));
  std::vector<std::string> names;
  for (const TemplateOperation& operation : template_named(program, "layer.forward").operations) {
    if (!operation.name.starts_with("mlp.first") || operation.name == "mlp.first_bias") continue;
    const std::string own = operation.name.substr(std::string("mlp.").size());
    names.push_back(operation.stream == 0 ? own : "[" + own + "]");
  }
  EXPECT_THAT(names, ElementsAre("first_input_split", "first_input_exchange", "[first_input0]",
                                 "[first_weight0]", "[first_input1]", "[first_weight1]", "first0",
                                 "first1"));
}

TEST(StacksOfSquares, SumTheirGradientsOncePerStep) {
  const auto sums = [](const Program& program) {
    std::vector<std::string> names;
    for (const Template& list : program.templates) {
      for (const TemplateOperation& operation : list.operations) {
        if (operation.name.starts_with("tensor_") || operation.name.starts_with("sequence_")) {
          names.push_back(operation.name);
        }
      }
    }
    return names;
  };
  // Biases behind a column-parallel matrix belong to a column of ranks, those behind a row-parallel
  // one and norms to all.
  EXPECT_THAT(sums(lower(squares(2, 1))),
              ElementsAre("sequence_parallel.all_reduce", "tensor_rows.all_reduce"));
  EXPECT_THAT(sums(lower(squares(2, 2))),
              ElementsAre("sequence_parallel.all_reduce", "tensor_rows.all_reduce",
                          "tensor_depth.all_reduce"));
}

}  // namespace
}  // namespace headway
