// The templates of the model's parts as golden text (tests/golden/program), and their collectives
// against facts section 5.
#include "sim/program/layer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"
#include "tests/program/template_text.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

// Compares with tests/golden/program/<name>; HEADWAY_WRITE_GOLDEN=1 writes it instead.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = source_dir() + "/tests/golden/program/" + name;
  if (std::getenv("HEADWAY_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
}

std::string model_text(const Job& job) {
  const Program program = lower(job);
  std::string text;
  for (const char* name : {"embedding.forward", "layer.forward", "head.forward", "head.backward",
                           "layer.backward", "embedding.backward"}) {
    text += to_text(program, template_named(program, name));
  }
  return text;
}

TEST(Layer, OfAGptOnOneRank) {
  Job job = small_job();
  job.software.dropout = 0.1;
  expect_golden("gpt.txt", model_text(job));
}

TEST(Layer, OfAGptWithTensorParallelism) {
  Job job = spread(small_job(), 2, 1, 1);
  job.software.dropout = 0.1;
  expect_golden("gpt_tp2.txt", model_text(job));
}

TEST(Layer, OfALlamaWithSequenceParallelism) {
  Job job = spread(small_llama(), 2, 1, 1);
  job.plan.sequence_parallel = true;
  expect_golden("llama_tp2_sp.txt", model_text(job));
}

TEST(Layer, OfAnUnfusedFrameworkThatAccumulatesApart) {
  Job job = small_job();
  job.software.dropout = 0.1;
  job.software.fused_kernels = false;
  job.software.fused_norm = false;
  job.software.accumulation = GradientAccumulation::kMainGradient;
  job.plan.recompute = Recompute::kSelective;
  expect_golden("gpt_unfused.txt", model_text(job));
}

// Megatron-LM, fused_softmax.py: batch x heads of a rank must divide by 4, else scale, mask and
// softmax are kernels of their own.
TEST(Layer, TheFusedSoftmaxTakesFourRowsOfScoresTogether) {
  const auto is_fused = [](const Job& job) {
    const Program program = lower(job);
    for (const TemplateOperation& operation : template_named(program, "layer.forward").operations) {
      const auto* core = std::get_if<Attention>(&operation.operation);
      if (core != nullptr) return core->fused;
    }
    ADD_FAILURE() << "no attention";
    return false;
  };
  EXPECT_TRUE(is_fused(small_job()));                    // 4 heads
  EXPECT_FALSE(is_fused(spread(small_job(), 2, 1, 1)));  // 2 of them on a rank
  Job two_sequences = small_job();
  two_sequences.plan.micro_batch = 2;
  EXPECT_TRUE(is_fused(spread(two_sequences, 2, 1, 1)));
}

struct Traffic {
  int count = 0;
  std::int64_t elements = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.count << " of " << traffic.elements;
}

std::map<CollectiveKind, Traffic> traffic(const Template& list) {
  std::map<CollectiveKind, Traffic> result;
  for (const TemplateOperation& operation : list.operations) {
    if (const auto* collective = std::get_if<Collective>(&operation.operation)) {
      ++result[collective->kind].count;
      result[collective->kind].elements += collective->elements;
    }
  }
  return result;
}

using Kinds = std::map<CollectiveKind, Traffic>;

TEST(Layer, TensorParallelismAllReducesTwiceEachWay) {
  // Facts 5: 2 all-reduces forward and 2 backward of x = b s h.
  const Program program = lower(spread(small_job(), 2, 1, 1));
  const std::int64_t x = 8 * 16;
  for (const char* name : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(traffic(template_named(program, name)),
              (Kinds{{CollectiveKind::kAllReduce, {2, 2 * x}}}));
  }
}

TEST(Layer, SequenceParallelismGathersOnceMoreBackward) {
  // Facts 5: forward 2 all-gathers and 2 reduce-scatters; backward 2 all-gathers of the
  // row-parallel output gradients, 2 that gather the column-parallel inputs again, 2
  // reduce-scatters.
  Job job = spread(small_job(), 2, 1, 1);
  job.plan.sequence_parallel = true;
  const Program program = lower(job);
  const std::int64_t x = 8 * 16;
  EXPECT_EQ(traffic(template_named(program, "layer.forward")),
            (Kinds{{CollectiveKind::kAllGather, {2, 2 * x}},
                   {CollectiveKind::kReduceScatter, {2, 2 * x}}}));
  EXPECT_EQ(traffic(template_named(program, "layer.backward")),
            (Kinds{{CollectiveKind::kAllGather, {4, 4 * x}},
                   {CollectiveKind::kReduceScatter, {2, 2 * x}}}));
}

TEST(HeadAndLoss, TheParallelLossReducesThreeNumbersPerToken) {
  // Facts 5: maximum, predicted logit, sum of exponentials, each b s in fp32.
  const Program program = lower(spread(small_job(), 2, 1, 1));
  EXPECT_EQ(traffic(template_named(program, "head.forward")),
            (Kinds{{CollectiveKind::kAllReduce, {3, 3 * 8}}}));
  // The fused one sends both sums together.
  Job job = spread(small_job(), 2, 1, 1);
  job.software.fused_loss = true;
  EXPECT_EQ(traffic(template_named(lower(job), "head.forward")),
            (Kinds{{CollectiveKind::kAllReduce, {2, 3 * 8}}}));
}

TEST(HeadAndLoss, GatheredLogitsNeedNoReductions) {
  Job job = spread(small_job(), 2, 1, 1);
  job.software.gathered_logits = true;
  // 60 entries are padded to 64 at tp 2 (a multiple of 4 x 2).
  EXPECT_EQ(traffic(template_named(lower(job), "head.forward")),
            (Kinds{{CollectiveKind::kAllGather, {1, 8 * 64}}}));
}

}  // namespace
}  // namespace headway
