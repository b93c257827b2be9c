// A mixture of experts against closed forms: facts section 5 (volumes of expert parallelism) and
// Megatron-LM's theoretical_memory_usage (model state of dense and expert parameters).
#include <gtest/gtest.h>

#include "sim/model/transformer.hpp"
#include "sim/price/flops.hpp"
#include "sim/price/memory.hpp"
#include "sim/price/traffic.hpp"
#include "sim/program/expert/dispatch_volume.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

constexpr std::int64_t kLayers = 4, kHidden = 1024, kSequence = 512, kSequences = 2;
constexpr std::int64_t kExperts = 16, kPerToken = 2, kWidth = 768;
constexpr std::int64_t kRanks = 16, kMicroBatches = 2;
constexpr std::int64_t kActivation = kSequences * kSequence * kHidden * 2;  // x = bsh w, bytes

Job expert_job(const std::string& plan) {
  const std::string text =
      R"({"model": {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 4,
           "intermediate_size": 4096, "vocab_size": 32000, "hidden_act": "silu", "gated_mlp": true,
           "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 768},
          "cluster": {"topology": "dgx-a100", "gpus": 16, "profile": "a100-sxm-80gb"},
          "precision": "bf16", "sequence_length": 512, "global_batch": 64,
          "software": {"framework": "megatron-core"}, "plan": {"micro_batch": 2, )" +
      plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  for (const NotYetBuilt& missing : reading.not_built) ADD_FAILURE() << missing.rule;
  return reading.job.value();
}

TrafficLine line(const Program& program, Cause cause, CollectiveKind kind,
                 const std::string& group) {
  for (const TrafficLine& entry : traffic(program, kind_at(program, 0))) {
    if (entry.cause == cause && entry.kind == kind && entry.group == group) return entry;
  }
  return {};
}

TEST(ExpertTraffic, IsFourAllToAllsALayerAndMicroBatch) {
  // Dispatch and combine, forward and backward: each b s k h w (e-1)/e bytes out of a rank.
  const Program program = lower(expert_job(R"("ep": 8, "dp_kind": "ddp")"));
  const TrafficLine exchange =
      line(program, Cause::kExpertParallel, CollectiveKind::kAllToAll, "ep");
  EXPECT_EQ(exchange.count, 4 * kLayers * kMicroBatches);
  EXPECT_EQ(exchange.sent.count, 4 * kActivation * kPerToken * 7 / 8 * kLayers * kMicroBatches);
  EXPECT_EQ(exchange.received, exchange.sent);
}

TEST(ExpertTraffic, OfSplitExpertsGathersAndScattersRows) {
  // With etp 2 a rank holds half the tokens (sequence parallelism), and both halves' rows meet:
  // forward a gather of what goes in and a scatter of what comes out, backward one each.
  const Program program = lower(
      expert_job(R"("tp": 2, "ep": 8, "etp": 2, "sequence_parallel": true, "dp_kind": "ddp")"));
  constexpr std::int64_t kHalfAsManyReplicas = 2 * kMicroBatches;
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    const TrafficLine half = line(program, Cause::kExpertParallel, kind, "etp");
    EXPECT_EQ(half.count, 2 * kLayers * kHalfAsManyReplicas);
    EXPECT_EQ(half.sent.count, 2 * kActivation * kPerToken / 2 * kLayers * kHalfAsManyReplicas);
  }
}

TEST(ExpertTraffic, OfDeepEpSendsATokenOnceToEachRankAndNode) {
  // Two of 16 experts on 4 ranks of 4: both on one rank with 3 in 15, so 1.8 ranks a token; on one
  // of two nodes of 8 experts with 7 in 15, so 1.533 nodes, of which half are remote.
  EXPECT_DOUBLE_EQ(expected_places(16, 4, 2), 1.8);
  EXPECT_DOUBLE_EQ(expected_places(16, 2, 2), 23.0 / 15);
  EXPECT_DOUBLE_EQ(expected_places(16, 1, 2), 1);
  const Job job = expert_job(R"("ep": 16, "dp_kind": "ddp", "moe": {"dispatch": "deepep"})");
  const DispatchVolume volume = dispatch_volume(job);
  EXPECT_DOUBLE_EQ(volume.ranks, 2);  // an expert a rank
  EXPECT_DOUBLE_EQ(volume.remote_nodes, 23.0 / 30);
  Job limited = job;
  limited.plan.moe.nodes_per_token = 1;
  EXPECT_DOUBLE_EQ(dispatch_volume(limited).remote_nodes, 0.5);
}

TEST(ExpertTraffic, OfAnEightBitDispatchIsHalfOnTheWayThere) {
  // DeepSeek-V3, arXiv 2412.19437, section 3.3.3: dispatch forward and backward a byte a value,
  // combine two: three quarters of 16 bits throughout.
  const Program program =
      lower(expert_job(R"("ep": 8, "dp_kind": "ddp", "moe": {"dispatch_dtype": "fp8"})"));
  const TrafficLine exchange =
      line(program, Cause::kExpertParallel, CollectiveKind::kAllToAll, "ep");
  EXPECT_EQ(exchange.count, 4 * kLayers * kMicroBatches);
  EXPECT_EQ(exchange.sent.count, 3 * kActivation * kPerToken * 7 / 8 * kLayers * kMicroBatches);
}

TEST(ExpertTraffic, OfTheGatheringDispatcherIsThatOfAllTokens) {
  // Every rank of 8 gets the tokens of the 7 others and gives back sums for them, forward and
  // backward; with each token its choices (int32) and weights (fp32), and the weights' gradients.
  const Program program =
      lower(expert_job(R"("ep": 8, "dp_kind": "ddp", "moe": {"dispatch": "allgather"})"));
  const std::int64_t tokens = 7 * kSequences * kSequence;
  constexpr std::int64_t kWord = 4;
  const auto sent = [&](CollectiveKind kind) {
    return line(program, Cause::kExpertParallel, kind, "ep").sent.count / kLayers / kMicroBatches;
  };
  EXPECT_EQ(sent(CollectiveKind::kAllGather), 2 * 7 * kActivation + tokens * kPerToken * 2 * kWord);
  EXPECT_EQ(sent(CollectiveKind::kReduceScatter), 2 * 7 * kActivation + tokens * kPerToken * kWord);
  EXPECT_EQ(sent(CollectiveKind::kAllToAll), 0);
}

TEST(ExpertTraffic, ReducesExpertsOverTheirCopiesAndTheRestOverAll) {
  // All-reduce of N fp32 gradients over n ranks: 2 N (n-1)/n x 4 bytes.
  const Job job = expert_job(R"("ep": 4, "dp_kind": "ddp")");
  const Program program = lower(job);
  const std::int64_t expert = 3 * kHidden * kWidth;
  const std::int64_t own = kLayers * expert * kExperts / 4;
  const ParameterCount count = count_parameters(job.model, kSequence);
  const std::int64_t rest = count.total - kLayers * expert * kExperts;
  EXPECT_EQ(line(program, Cause::kDataParallel, CollectiveKind::kAllReduce, "edp").sent.count,
            2 * own * 3 / 4 * 4);
  EXPECT_EQ(line(program, Cause::kDataParallel, CollectiveKind::kAllReduce, "dp").sent.count,
            // and the scalar loss
            2 * 15 * rest * 4 / 16 + 2 * 15 * 8 / 16);
}

TEST(ExpertMemory, ShardsTheStateOfExpertsOverTheirCopies) {
  // bf16 parameters, 12 bytes of optimizer state shared out: over dp 16 of all else, over edp 2 of
  // experts.
  const Job job = expert_job(R"("ep": 8, "dp_kind": "distributed_optimizer")");
  const MemoryReport report = report_memory(lower(job), {});
  const std::int64_t own = kLayers * 3 * kHidden * kWidth * kExperts / 8;
  const std::int64_t rest = count_parameters(job.model, kSequence).total - own * 8;
  const auto& stage = report.per_stage.front();
  EXPECT_EQ(stage.parameters.count, 2 * (own + rest));
  EXPECT_EQ(stage.optimizer.count, 12 * (own / 2 + rest / kRanks));
}

TEST(ExpertFlops, AreThoseOfTheModelWithUniformRouting) {
  // Every rank computes its share of the chosen experts, so the step is the model's, and its
  // router's.
  const Job job = expert_job(R"("ep": 8, "dp_kind": "ddp")");
  const double model = model_flops(job.model, job.sequence_length, job.global_batch).count;
  const double tokens = static_cast<double>(job.sequence_length * job.global_batch);
  const double router = 3 * 2.0 * tokens * kHidden * kExperts * kLayers;
  const Program program = lower(job);
  EXPECT_DOUBLE_EQ(hardware_flops(program).count, model + router);
}

}  // namespace
}  // namespace headway
