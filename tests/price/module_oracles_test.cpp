// Parts of a layer that are recomputed alone, predictions further ahead, windows, and experts whose
// parameters are shared out: what they keep, compute and send, by hand and by facts sections 1, 2
// and 5.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "sim/model/transformer.hpp"
#include "sim/price/flops.hpp"
#include "sim/price/memory.hpp"
#include "sim/price/traffic.hpp"
#include "sim/program/lifetime.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

constexpr std::int64_t kLayers = 2, kHidden = 512, kTokens = 512, kHeads = 8;
constexpr std::int64_t kQueryRank = 96, kKeyRank = 64, kPlain = 32, kRotated = 16, kValue = 32;
constexpr std::int64_t kExperts = 8, kPerToken = 2, kWidth = 192, kShared = 256;
constexpr std::int64_t kSequences = 16;

// Latent attention and experts in every layer.
constexpr const char* kModel =
    R"("hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
       "intermediate_size": 1024, "vocab_size": 4096, "hidden_act": "silu", "gated_mlp": true,
       "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
       "v_head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 192,
       "shared_expert_intermediate_size": 256)";

Job job(const std::string& model, int gpus, const std::string& plan) {
  const std::string text =
      R"({"model": {)" + model + R"(}, "cluster": {"topology": "dgx-a100", "gpus": )" +
      std::to_string(gpus) +
      R"(, "profile": "a100-sxm-80gb"}, "precision": "bf16", "sequence_length": 512,
      "global_batch": 16, "software": {"framework": "megatron-core"}, "plan": {)" +
      plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  for (const NotYetBuilt& missing : reading.not_built) ADD_FAILURE() << missing.rule;
  return reading.job.value();
}

// Bytes that the layers of one rank keep for a micro-batch's backward pass, between the two.
std::int64_t kept(const Job& job) {
  const Program program = lower(job);
  const RankKind& kind = program.kinds[0];
  int issues = 0;
  for (std::size_t i = 0; i < kind.order.size(); ++i) {
    const std::string& name = kind.passes[static_cast<std::size_t>(kind.order[i].pass)].name;
    if (name == "0F" || name == "0F_first") {
      issues = static_cast<int>(i) + 1;
      break;
    }
  }
  std::int64_t bytes = 0;
  replay(program, kind, issues, [&](const BufferInstance& buffer, bool allocated) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
    if (family.per_layer) bytes += allocated ? family.size().count : -family.size().count;
  });
  return bytes;
}

std::int64_t saved_by(const std::string& modules) {
  const std::string plan = R"("ep": 4)";
  return kept(job(kModel, 4, plan)) -
         kept(job(kModel, 4,
                  plan + R"(, "recompute": "selective", "recompute_modules": [)" + modules + "]"));
}

TEST(RecomputedParts, OfLatentAttentionKeepWhatGoesIntoTheWideMatrices) {
  // Two norms' outputs and statistics (fp32), and queries, keys and values of all heads; kept
  // instead: the rotated key.
  const std::int64_t norms = 2 * (kQueryRank + kKeyRank) + 2 * 4;
  const std::int64_t heads = 2 * kHeads * (2 * (kPlain + kRotated) + kValue);
  EXPECT_EQ(saved_by(R"("mla_up_proj")"), kLayers * kTokens * (norms + heads - 2 * kRotated));
}

TEST(RecomputedParts, OfAnExpertAreItsActivationOrAllOfTheLayer) {
  const std::int64_t activation = 2 * kPerToken * kWidth;
  EXPECT_EQ(saved_by(R"("moe_act")"), kLayers * kTokens * activation);
  // Gate, up and their product.
  EXPECT_EQ(saved_by(R"("shared_experts")"), kLayers * kTokens * 2 * 3 * kShared);
  // All of it keeps only what goes in: nothing of what is sent, received and routed stays.
  const std::int64_t rows = kPerToken * (2 * kHidden * 2 + 2 * 3 * kWidth);  // in, out, MLP
  const std::int64_t router =
      kPerToken * (4 + 4 + 4) + 4 * kExperts;              // choices, weights, places; scores
  const std::int64_t counts = 4 * (2 * kExperts + 4 * 2);  // sent, chosen; those of its 2 experts
  EXPECT_EQ(saved_by(R"("moe")"), kLayers * (kTokens * (rows + router + 2 * 3 * kShared) + counts));
  EXPECT_EQ(saved_by(R"("moe", "moe_act", "shared_experts")"), saved_by(R"("moe")"));
}

TEST(RecomputedParts, CostTheirForwardPassOnceMore) {
  const std::string plan = R"("ep": 4)";
  const double plain = hardware_flops(lower(job(kModel, 4, plan))).count;
  const double tokens = static_cast<double>(kTokens * kSequences * kLayers);
  const auto more = [&](const std::string& modules) {
    const std::string again =
        plan + R"(, "recompute": "selective", "recompute_modules": [)" + modules + "]";
    return hardware_flops(lower(job(kModel, 4, again))).count - plain;
  };
  const double up = static_cast<double>(kQueryRank * kHeads * (kPlain + kRotated) +
                                        kKeyRank * kHeads * (kPlain + kValue));
  EXPECT_DOUBLE_EQ(more(R"("mla_up_proj")"), 2 * tokens * up);
  EXPECT_DOUBLE_EQ(more(R"("moe_act")"), 0);
  const double shared = 3.0 * kHidden * kShared;
  EXPECT_DOUBLE_EQ(more(R"("shared_experts")"), 2 * tokens * shared);
  const double routed = 3.0 * kHidden * kWidth * kPerToken + kHidden * kExperts;
  EXPECT_DOUBLE_EQ(more(R"("moe")"), 2 * tokens * (shared + routed));
}

constexpr const char* kDense =
    R"("hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
       "intermediate_size": 1024, "vocab_size": 4096, "hidden_act": "silu", "gated_mlp": true)";

TEST(MultiTokenPrediction, ComputesAndHoldsWhatTheModelCounts) {
  for (const char* depth : {"1", "2"}) {
    const std::string model = std::string(kDense) + R"(, "num_nextn_predict_layers": )" + depth;
    for (const char* plan : {R"("tp": 1)", R"("tp": 4, "sequence_parallel": true)", R"("tp": 2)"}) {
      const Job predicting = job(model, 4, plan);
      EXPECT_DOUBLE_EQ(hardware_flops(lower(predicting)).count,
                       model_flops(predicting.model, kTokens, kSequences).count)
          << depth << " " << plan;
    }
    const Job predicting = job(model, 1, R"("tp": 1)");
    const ParameterCount count = count_parameters(predicting.model, kTokens);
    const std::int64_t modules = predicting.model.num_nextn_predict_layers * count.prediction;
    EXPECT_EQ(report_memory(lower(predicting), {}).per_stage[0].parameters.count,
              2 * (count.total + modules));
  }
}

TEST(MultiTokenPrediction, IsOnTheLastStageWithACopyOfTheTable) {
  const Job predicting =
      job(std::string(kDense) + R"(, "num_nextn_predict_layers": 1)", 2, R"("pp": 2)");
  const MemoryReport report = report_memory(lower(predicting), {});
  const ParameterCount count = count_parameters(predicting.model, kTokens);
  EXPECT_EQ(report.per_stage[0].parameters.count, 2 * (count.layer + count.embedding));
  EXPECT_EQ(report.per_stage[1].parameters.count,
            2 * (count.layer + count.final_norm + count.head + count.prediction + count.embedding));
  // The copies' gradients are summed once a step.
  const Program program = lower(predicting);
  bool summed = false;
  for (const TrafficLine& line : traffic(program, kind_at(program, 1))) {
    summed = summed || (line.group == "embedding" && line.count == 1);
  }
  EXPECT_TRUE(summed);
}

TEST(SlidingWindow, ComputesTheKeysThatItSees) {
  // A window of w of s positions: w (2 s - w) pairs, counted in full as s^2 is.
  const Job windowed = job(std::string(kDense) + R"(, "sliding_window": 128)", 2, R"("tp": 2)");
  EXPECT_DOUBLE_EQ(hardware_flops(lower(windowed)).count,
                   model_flops(windowed.model, kTokens, kSequences).count);
  const Job whole = job(kDense, 2, R"("tp": 2)");
  const double pairs = 512.0 * 512 - 128.0 * (2 * 512 - 128);
  EXPECT_DOUBLE_EQ(hardware_flops(lower(whole)).count - hardware_flops(lower(windowed)).count,
                   3 * 4 * pairs * kHidden * kLayers * kSequences);
  // Over context-parallel ranks that gather the keys, and over those that exchange heads.
  for (const char* kind : {"allgather", "ulysses"}) {
    const Job spread = job(std::string(kDense) + R"(, "sliding_window": 128)", 2,
                           R"("cp": 2, "cp_kind": ")" + std::string(kind) + "\"");
    EXPECT_DOUBLE_EQ(hardware_flops(lower(spread)).count,
                     model_flops(windowed.model, kTokens, kSequences).count)
        << kind;
  }
}

TEST(ShardedExperts, AreGatheredAndReducedOverTheirCopies) {
  // Per micro-batch and layer two all-gathers of bf16 parameters and one reduce-scatter of fp32
  // gradients: over 2 copies half of a rank's experts each; of all else over 4 ranks 3 quarters.
  const std::string model = std::string(kDense) +
                            R"(, "num_experts": 8, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 192)";
  const Job sharded = job(model, 4, R"("ep": 2, "dp_kind": "fsdp")");
  const Program program = lower(sharded);
  constexpr std::int64_t kMicroBatches = 4;
  const std::int64_t own = 3 * kHidden * kWidth * kExperts / 2;
  std::map<std::string, std::int64_t> gathered, reduced;
  for (const TrafficLine& line : traffic(program, kind_at(program, 0))) {
    if (line.cause != Cause::kDataParallel) continue;
    if (line.kind == CollectiveKind::kAllGather) gathered[line.group] += line.sent.count;
    if (line.kind == CollectiveKind::kReduceScatter) reduced[line.group] += line.sent.count;
  }
  EXPECT_EQ(gathered["edp"], 2 * kMicroBatches * kLayers * own * 2 / 2);
  EXPECT_EQ(reduced["edp"], kMicroBatches * kLayers * own * 4 / 2);
  const ParameterCount count = count_parameters(sharded.model, kTokens);
  const std::int64_t layers = kLayers * (count.expert_layer - 3 * kHidden * kWidth * kExperts);
  const std::int64_t root = count.total - kLayers * count.expert_layer;
  // The root's parameters stay from the forward to the backward pass.
  EXPECT_EQ(gathered["dp"], kMicroBatches * (2 * layers + root) * 2 * 3 / 4);
  EXPECT_EQ(reduced["dp"], kMicroBatches * (layers + root) * 4 * 3 / 4);
}

TEST(ShardedExperts, KeepTheirShareOfTheState) {
  // FSDP: 12 bytes of optimizer state a parameter, fp32 parameters with them, over the ranks that
  // hold the same; with a single copy of an expert, all of it.
  const std::string model = std::string(kDense) +
                            R"(, "num_experts": 8, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 192)";
  const std::int64_t experts = kLayers * 3 * kHidden * kWidth * kExperts;
  for (const int ep : {2, 4}) {
    const Job sharded = job(model, 4, R"("dp_kind": "fsdp", "ep": )" + std::to_string(ep));
    const std::int64_t rest = count_parameters(sharded.model, kTokens).total - experts;
    const MemoryReport report = report_memory(lower(sharded), {});
    EXPECT_EQ(report.per_stage[0].optimizer.count, 12 * (experts / 4 + rest / 4)) << ep;
  }
}

}  // namespace
}  // namespace headway
