// The reference run itself, judged by a transformer written straight from its formulas.
#include <gmock/gmock.h>

#include <cmath>

#include "kernels/execute/byte_text.hpp"
#include "kernels/execute/executor.hpp"
#include "sim/program/training_step.hpp"
#include "tests/kernels/execute/executed_plans.hpp"
#include "tests/support/direct_transformer.hpp"

namespace headway {
namespace {

constexpr std::int64_t kSequence = 6;

struct Judged {
  ExecutionResult executed;
  DirectResult direct;
};

// One step at learning rate 0, after which the parameters are still the initial weights.
Judged judge(const std::string& model, const std::string& more) {
  const Job job = small_job(model, 1,
                            R"("precision": "fp64", "sequence_length": 6, "global_batch": 2, )"
                            R"("plan": {"optimizer": "sgd", "moe": {"aux_loss": false}})" +
                                more);
  ExecuteOptions options;
  options.learning_rate = 0;
  Judged judged;
  judged.executed = execute(lower(job), options);
  NamedTensors weights;
  for (const auto& [name, tensor] : judged.executed.parameters.tensors()) {
    weights[name] = tensor.values;
  }
  std::vector<std::vector<std::int64_t>> sequences;
  for (int sample = 0; sample < 2; ++sample) {
    const std::int64_t read = kSequence + job.model.num_nextn_predict_layers;
    sequences.push_back(sample_tokens(options.seed, sample, read, job.model.vocab_size));
  }
  judged.direct = direct_training_step(job.model, weights, sequences);
  return judged;
}

// Each gradient within 1e-9 of its norm, or of a millionth of the whole one's.
void expect_equal(const Judged& judged) {
  ASSERT_EQ(judged.executed.outcome, Outcome::kFinished)
      << testing::PrintToString(judged.executed.messages);
  const ExecutedStep& step = judged.executed.steps.front();
  EXPECT_NEAR(step.loss, judged.direct.loss, 1e-13 * judged.direct.loss);
  ASSERT_EQ(step.gradients.tensors().size(), judged.direct.gradients.size());
  const double floor = 1e-6 * step.gradients.norm();
  for (const auto& [name, tensor] : step.gradients.tensors()) {
    const std::vector<double>& expected = judged.direct.gradients.at(name);
    ASSERT_EQ(tensor.values.size(), expected.size()) << name;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      difference += std::pow(tensor.values[i] - expected[i], 2);
      norm += expected[i] * expected[i];
    }
    EXPECT_LE(std::sqrt(difference), 1e-9 * std::max(std::sqrt(norm), floor)) << name;
  }
}

TEST(DirectTransformer, AgreesWithAnExecutedLlama) {
  const Judged judged = judge(
      R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 12, "vocab_size": 29,
          "hidden_act": "silu", "gated_mlp": true})",
      "");
  expect_equal(judged);
  // 9 matrices and vectors of the layer, the table, the last norm and the head.
  EXPECT_EQ(judged.direct.gradients.size(), 12U);
}

// Without an auxiliary loss, whose gradient is judged by itself (routing_test).
TEST(DirectTransformer, AgreesWithAnExecutedMixtureOfExperts) {
  const Judged judged = judge(
      R"({"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 12, "vocab_size": 29, "hidden_act": "silu", "gated_mlp": true,
          "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
          "n_shared_experts": 2, "first_k_dense_replace": 1})",
      "");
  expect_equal(judged);
  // 9 of the dense layer, 6 of attention, a norm, a router, 3 and 3 matrices of the other, 3
  // outside.
  EXPECT_EQ(judged.direct.gradients.size(), 25U);
}

TEST(DirectTransformer, AgreesWithExecutedLatentAttention) {
  for (const char* compressed : {"", R"(, "q_lora_rank": 6)"}) {
    const Judged judged =
        judge(std::string(R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 12, "vocab_size": 29, "hidden_act": "silu", "gated_mlp": true,
            "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 2)") +
                  compressed + "}",
              "");
    SCOPED_TRACE(compressed);
    expect_equal(judged);
  }
}

TEST(DirectTransformer, AgreesWithExecutedPredictionsFurtherAhead) {
  for (const char* more : {R"(, "num_nextn_predict_layers": 1)",
                           R"(, "num_nextn_predict_layers": 2, "tie_word_embeddings": true)"}) {
    const Judged judged =
        judge(std::string(R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 12, "vocab_size": 29, "hidden_act": "silu", "gated_mlp": true)") +
                  more + "}",
              "");
    SCOPED_TRACE(more);
    expect_equal(judged);
  }
}

TEST(DirectTransformer, AgreesWithAnExecutedSlidingWindow) {
  for (const char* attention : {"flash2", "unfused"}) {
    const Judged judged = judge(
        R"({"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 12, "vocab_size": 29, "hidden_act": "silu", "gated_mlp": true,
            "sliding_window": 3})",
        std::string(R"(, "software": {"attention": ")") + attention + R"("})");
    SCOPED_TRACE(attention);
    expect_equal(judged);
  }
}

TEST(DirectTransformer, AgreesWithAnExecutedGptOfTwoLayers) {
  for (const char* framework : {"headway", "deepspeed", "megatron-core"}) {
    const Judged judged =
        judge(R"({"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "intermediate_size": 12, "vocab_size": 29, "hidden_act": "gelu",
                  "gated_mlp": false})",
              std::string(R"(, "software": {"framework": ")") + framework + R"("})");
    SCOPED_TRACE(framework);
    expect_equal(judged);
  }
}

}  // namespace
}  // namespace headway
