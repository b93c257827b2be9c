// How a layer is lowered where its sequences are spread over ranks: which operations, in which
// order, beside what. And examples that anyone can count: an MLP on two ranks, halves of a
// sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"
#include "tests/program/template_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

Job spread_over(int cp, ContextParallelKind kind, int ulysses_degree = 1) {
  Job job = spread(small_llama(), 1, 1, 1);
  job.plan.cp = cp;
  job.plan.cp_kind = kind;
  job.plan.ulysses_degree = ulysses_degree;
  return job;
}

// The operations of the attention between its projections, those of other streams in brackets.
std::vector<std::string> attention_of(const Job& job, const std::string& name) {
  const Program program = lower(job);
  std::vector<std::string> names;
  for (const TemplateOperation& operation : template_named(program, name).operations) {
    const std::string& text = operation.name;
    if (!text.starts_with("attention.") || text.find("norm") != std::string::npos ||
        text.find("qkv") != std::string::npos || text.find("projection") != std::string::npos ||
        text.find("residual") != std::string::npos || text.find("rotary") != std::string::npos) {
      continue;
    }
    const std::string own = text.substr(std::string("attention.").size());
    names.push_back(operation.stream == 0 ? own : "[" + own + "]");
  }
  return names;
}

TEST(RingAttention, SendsABlockOnWhileItWorksOnIt) {
  const Job job = spread_over(4, ContextParallelKind::kRing);
  EXPECT_THAT(attention_of(job, "layer.forward"),
              ElementsAre("split", "[core_shift1]", "core0", "core_widen", "[core_shift2]", "core1",
                          "core_merge1", "[core_shift3]", "core2", "core_merge2", "core3",
                          "core_merge3", "core_narrow"));
}

TEST(RingAttention, GradientsFollowTheirBlockAndTheOwnComesLast) {
  const Job job = spread_over(2, ContextParallelKind::kRing);
  EXPECT_THAT(
      attention_of(job, "layer.backward"),
      ElementsAre("[core_backward_shift1]", "core_backward1", "[core_backward_gradient_shift1]",
                  "core_backward0", "core_backward0_queries", "ring_keys0", "ring_values0",
                  "join_gradients"));
}

TEST(GatheredAttention, OfSequenceHalvesOnTwoRanks) {
  const Job job = spread_over(2, ContextParallelKind::kAllGather);
  EXPECT_THAT(attention_of(job, "layer.forward"),
              ElementsAre("split", "core_gather_keys", "core_gather_values", "core"));
  EXPECT_THAT(attention_of(job, "layer.backward"),
              ElementsAre("[gather_keys_again]", "[gather_values_again]", "core_backward",
                          "scatter_key_gradient", "scatter_value_gradient", "join_gradients"));
}

TEST(Ulysses, OfSequenceHalvesOnTwoRanks) {
  const Job job = spread_over(2, ContextParallelKind::kUlysses, 2);
  EXPECT_THAT(attention_of(job, "layer.forward"),
              ElementsAre("split", "exchange_queries", "exchange_keys", "exchange_values", "core",
                          "exchange_context", "join_context"));
  EXPECT_THAT(attention_of(job, "layer.backward"),
              ElementsAre("split_context_gradient", "exchange_context_gradient", "core_backward",
                          "exchange_query_gradient", "exchange_key_gradient",
                          "exchange_value_gradient", "join_gradients"));
}

TEST(ContextParallelism, KeepsAShareOfEveryActivation) {
  // Megatron-LM, context_parallel.md: activations divided by cp. Ring and gathered keep what one
  // rank would of its tokens.
  const auto saved = [](const Job& job) {
    const Program program = lower(job);
    std::int64_t bytes = 0;
    for (const BufferFamily& family : program.buffers) {
      if (family.per_layer && family.per_micro_batch &&
          family.category == BufferCategory::kActivation && family.name != "attention.qkv_output" &&
          !family.name.starts_with("attention.queries") &&
          !family.name.starts_with("attention.keys") &&
          !family.name.starts_with("attention.values"))
        bytes += family.size().count;
    }
    return bytes;
  };
  const std::int64_t whole = saved(spread(small_llama(), 1, 1, 1));
  EXPECT_EQ(saved(spread_over(4, ContextParallelKind::kRing)) * 4, whole);
  EXPECT_EQ(saved(spread_over(2, ContextParallelKind::kAllGather)) * 2, whole);
}

std::vector<std::string> collectives_of(const Template& list, const std::string& prefix) {
  std::vector<std::string> names;
  for (const TemplateOperation& operation : list.operations) {
    const auto* collective = std::get_if<Collective>(&operation.operation);
    if (collective != nullptr && operation.name.starts_with(prefix)) {
      names.push_back(std::string(name(collective->kind)) + " of " +
                      std::to_string(collective->elements));
    }
  }
  return names;
}

TEST(TensorParallelism, OfAnMlpOnTwoRanksNeedsOneAllReduceEachWay) {
  // 4096 -> 16384 -> 4096, first matrix by columns, second by rows (Megatron-LM, section 3).
  Job job = spread(small_job(), 2, 1, 1);
  job.model.hidden_size = 4096;
  job.model.intermediate_size = 16384;
  const Program program = lower(job);
  const std::string x = "all_reduce of " + std::to_string(8 * 4096);
  EXPECT_THAT(collectives_of(template_named(program, "layer.forward"), "mlp."), ElementsAre(x));
  EXPECT_THAT(collectives_of(template_named(program, "layer.backward"), "mlp."), ElementsAre(x));
}

}  // namespace
}  // namespace headway
