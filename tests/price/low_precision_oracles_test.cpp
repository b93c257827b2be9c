// What recipes of 8 bits keep and move, against the lowered Program: Transformer Engine's saved
// tensors and cached weights (TE, module/linear.py, module/layernorm_mlp.py), Megatron-LM's
// fp8_param_gather.
#include <gtest/gtest.h>

#include <string>

#include "sim/price/traffic.hpp"
#include "sim/program/lifetime.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

// Two layers, gated, 512 tokens in a micro-batch: all sizes divide by 128.
constexpr std::int64_t kLayers = 2, kHidden = 1024, kMlp = 4096, kTokens = 512;
constexpr std::int64_t kWeights = 4 * kHidden * kHidden + 3 * kHidden * kMlp;  // of a layer

Program lowered(const std::string& precision, int gpus, const std::string& plan) {
  const std::string text =
      R"({"model": {"hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 2,
      "intermediate_size": 4096, "vocab_size": 51200, "gated_mlp": true, "hidden_act": "silu"},
      "cluster": {"topology": "dgx-h100", "gpus": )" +
      std::to_string(gpus) + R"(}, "precision": ")" + precision +
      R"(", "sequence_length": 512, "global_batch": 8, "plan": {)" + plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  for (const NotYetBuilt& missing : reading.not_built) ADD_FAILURE() << missing.rule;
  return lower(reading.job.value());
}

std::int64_t persistent(const Program& program) {
  return total(memory_use(program, program.kinds[0]).persistent).count;
}

// What the first forward pass leaves for its backward pass.
std::int64_t saved(const Program& program) {
  const RankKind& kind = program.kinds[0];
  const MemoryUse use = memory_use(program, kind, true);
  for (std::size_t i = 0; i < kind.order.size(); ++i) {
    if (kind.order[i].micro_batch != 0) continue;
    return use.after_issue[i].count - persistent(program);
  }
  ADD_FAILURE() << "there is no first micro-batch";
  return 0;
}

std::int64_t sent(const Program& program, Cause cause, CollectiveKind collective) {
  std::int64_t bytes = 0;
  for (const TrafficLine& line : traffic(program, program.kinds[0])) {
    if (line.cause == cause && line.kind == collective) bytes += line.sent.count;
  }
  return bytes;
}

TEST(LowPrecisionMemory, KeepsTheInputsOfProductsInOneByte) {
  // Norms' outputs and the MLP's activation: 1 byte for 2; the context, which the attention core's
  // backward reads too, 3 for 2.
  const std::int64_t fewer = 2 * kHidden - kHidden + kMlp;
  for (const char* precision : {"fp8-delayed", "fp8-current", "fp8-block"}) {
    EXPECT_EQ(saved(lowered("bf16", 1, "")) - saved(lowered(precision, 1, "")),
              kLayers * kTokens * fewer)
        << precision;
  }
}

TEST(LowPrecisionMemory, HoldsTwoCopiesOfEveryWeight) {
  const std::int64_t half = persistent(lowered("bf16", 1, ""));
  EXPECT_EQ(persistent(lowered("fp8-current", 1, "")) - half, kLayers * 2 * kWeights);
  // Delayed scaling: two numbers for each of three tensors of four linear layers.
  EXPECT_EQ(persistent(lowered("fp8-delayed", 1, "")) - half,
            kLayers * (2 * kWeights + 12 * 2 * 4));
}

TEST(LowPrecisionMemory, OfParametersInEightBitsIsTwoBytesLess) {
  const char* plan = R"("dp_kind": "distributed_optimizer", "param_gather_dtype": )";
  const auto with = [&](const char* gather) {
    return persistent(lowered("fp8-current", 8, std::string(plan) + gather));
  };
  EXPECT_EQ(with(R"("bf16")") - with(R"("fp8")"), kLayers * 2 * kWeights);
}

TEST(LowPrecisionTraffic, GathersParametersInEightBits) {
  const char* plan = R"("dp_kind": "distributed_optimizer", "param_gather_dtype": )";
  const auto with = [&](const char* gather) {
    return sent(lowered("fp8-current", 8, std::string(plan) + gather), Cause::kDataParallel,
                CollectiveKind::kAllGather);
  };
  EXPECT_EQ(with(R"("bf16")") - with(R"("fp8")"), kLayers * kWeights * 7 / 8);
}

TEST(LowPrecisionTraffic, GathersSequencesInEightBits) {
  // Six all-gathers of a layer and micro-batch (traffic_oracles_test), one byte for two; blocks
  // travel by rows and by columns where a gradient is read both ways. The head's and the
  // embedding's stay in 16 bits.
  const auto with = [&](const char* precision) {
    return sent(lowered(precision, 8, R"("tp": 8, "sequence_parallel": true)"),
                Cause::kTensorParallel, CollectiveKind::kAllGather);
  };
  constexpr std::int64_t kMicroBatches = 8, kOne = kTokens * kHidden * 7 / 8;
  const std::int64_t half = with("bf16");
  EXPECT_EQ(half - with("fp8-current"), 6 * kOne * kLayers * kMicroBatches);
  const std::int64_t blocks = sent(lowered("fp8-block", 4, R"("tp": 4, "sequence_parallel": true)"),
                                   Cause::kTensorParallel, CollectiveKind::kAllGather);
  const std::int64_t plain = sent(lowered("bf16", 4, R"("tp": 4, "sequence_parallel": true)"),
                                  Cause::kTensorParallel, CollectiveKind::kAllGather);
  EXPECT_EQ(plain - blocks, 4 * kTokens * kHidden * 3 / 4 * kLayers * kMicroBatches);
}

}  // namespace
}  // namespace headway
