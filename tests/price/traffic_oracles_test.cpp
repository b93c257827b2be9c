// Facts section 5, the volumes of each parallelism, against the lowered Program.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "sim/price/memory.hpp"
#include "sim/price/traffic.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

// t 8, p 4, d 2; two layers a stage; eight micro-batches of b = 2 sequences of s = 512 tokens, h =
// 1024.
constexpr std::int64_t kMicroBatches = 8, kLayers = 2, kTensor = 8;
constexpr std::int64_t kHidden = 1024, kSequence = 512, kSequences = 2, kVocabulary = 51200;
constexpr std::int64_t kActivation = kSequences * kSequence * kHidden * 2;  // x = bsh w, bytes

struct Lowered {
  explicit Lowered(const std::string& plan)
      : program(lower(gpt_job({kHidden, 16, 8, kSequence, kVocabulary}, 64, 32,
                              R"("tp": 8, "pp": 4, "micro_batch": 2)" + plan))) {}

  // Of the rank at a pipeline coordinate; zeros where there is no such line.
  TrafficLine line(int stage, Cause cause, CollectiveKind kind, const std::string& group) const {
    for (const TrafficLine& entry : traffic(program, kind_at(program, stage))) {
      if (entry.cause == cause && entry.kind == kind && entry.group == group) return entry;
    }
    return {};
  }
  std::int64_t parameters(int stage) const {
    const MemoryReport report = report_memory(program, {});
    return report.per_stage[static_cast<std::size_t>(stage)].parameters.count / 2;  // bf16
  }

  Program program;
};

TEST(TensorParallelTraffic, IsFourAllReducesALayerAndMicroBatch) {
  // 2 forward and 2 backward, each 2 x (t-1)/t bytes: 8 x (t-1)/t in all.
  const Lowered lowered("");
  const TrafficLine line =
      lowered.line(1, Cause::kTensorParallel, CollectiveKind::kAllReduce, "tp");
  EXPECT_EQ(line.count, 4 * kLayers * kMicroBatches);
  EXPECT_EQ(line.sent.count, 8 * kActivation * (kTensor - 1) / kTensor * kLayers * kMicroBatches);
}

TEST(TensorParallelTraffic, FullRecomputationRepeatsTheForwardOnes) {
  const Lowered lowered(R"(, "recompute": "full")");
  EXPECT_EQ(lowered.line(1, Cause::kTensorParallel, CollectiveKind::kAllReduce, "tp").count,
            6 * kLayers * kMicroBatches);
}

TEST(SequenceParallelTraffic, GathersTheColumnParallelInputsAgain) {
  // Forward 2 all-gathers and 2 reduce-scatters; backward 2 + 2 all-gathers and 2 reduce-scatters.
  const Lowered lowered(R"(, "sequence_parallel": true)");
  const TrafficLine gather =
      lowered.line(1, Cause::kTensorParallel, CollectiveKind::kAllGather, "tp");
  const TrafficLine scatter =
      lowered.line(1, Cause::kTensorParallel, CollectiveKind::kReduceScatter, "tp");
  const std::int64_t one = kActivation * (kTensor - 1) / kTensor * kLayers * kMicroBatches;
  EXPECT_EQ(gather.count, 6 * kLayers * kMicroBatches);
  EXPECT_EQ(gather.sent.count, 6 * one);
  EXPECT_EQ(scatter.count, 4 * kLayers * kMicroBatches);
  EXPECT_EQ(scatter.sent.count, 4 * one);
}

TEST(SequenceParallelTraffic, SumsGradientsOfNormsAndBiasesOnceAStep) {
  // Replicated over tp, on its own part of the sequence: two norms of 2 h and two biases of h, in
  // fp32.
  const Lowered lowered(R"(, "sequence_parallel": true)");
  const TrafficLine line =
      lowered.line(1, Cause::kTensorParallel, CollectiveKind::kAllReduce, "tp");
  EXPECT_EQ(line.sent.count, 2 * (6 * kHidden * 4 * kLayers) * (kTensor - 1) / kTensor);
}

TEST(DataParallelTraffic, AllReducesEveryGradientOnceAStep) {
  // 2 P w (N-1)/N with fp32 gradients, N = 2. Middle stage: no embedding, no loss.
  const Lowered lowered("");
  EXPECT_EQ(lowered.line(1, Cause::kDataParallel, CollectiveKind::kAllReduce, "dp").sent.count,
            2 * lowered.parameters(1) * 4 / 2);
}

TEST(DataParallelTraffic, OfTheDistributedOptimizerScattersGradientsAndGathersParameters) {
  // Gradients in fp32, parameters in bf16.
  const Lowered lowered(R"(, "dp_kind": "distributed_optimizer")");
  EXPECT_EQ(lowered.line(1, Cause::kDataParallel, CollectiveKind::kReduceScatter, "dp").sent.count,
            lowered.parameters(1) * 4 / 2);
  EXPECT_EQ(lowered.line(1, Cause::kDataParallel, CollectiveKind::kAllGather, "dp").sent.count,
            lowered.parameters(1) * 2 / 2);
}

// Eight ranks, two micro-batches of two sequences, gradients in 16 bits; the bytes a rank sends, in
// units of P w (N-1)/N for each micro-batch.
double volumes(const std::string& plan, CollectiveKind kind) {
  const Job job = gpt_job({kHidden, 16, 8, kSequence, kVocabulary}, 8, 32,
                          R"("micro_batch": 2, "grad_dtype": "bf16")" + plan);
  const Program program = lower(job);
  const auto whole =
      2.0 * static_cast<double>(count_parameters(job.model, job.sequence_length).total);
  double sent = 0;
  for (const TrafficLine& line : traffic(program, kind_at(program, 0))) {
    if (line.cause == Cause::kDataParallel && line.kind == kind && line.group == "dp") {
      sent += static_cast<double>(line.sent.count);
    }
  }
  return sent / (whole * 7 / 8) / 2;
}

TEST(ShardedTraffic, IsThreeTimesTheParametersOrTwiceWithoutResharding) {
  // Facts section 5: ZeRO-3 and FSDP gather for the forward and the backward pass and scatter the
  // gradients, 3 P; Llama 3 keeps the parameters after the forward pass, 2 P. The root (embedding,
  // positions and final norm) is gathered once in FSDP; in stage 3 its embedding also for the head
  // and for the head's backward, and not for its own.
  const CollectiveKind gather = CollectiveKind::kAllGather,
                       scatter = CollectiveKind::kReduceScatter;
  const double layers = 8 * (12.0 * kHidden * kHidden + 13 * kHidden);
  const double root = kVocabulary * kHidden + kSequence * kHidden + 2 * kHidden;
  const double share = layers / (layers + root);
  EXPECT_NEAR(volumes(R"(, "dp_kind": "fsdp")", gather), 2 * share + (1 - share), 1e-9);
  EXPECT_NEAR(volumes(R"(, "dp_kind": "fsdp")", scatter), 1, 1e-9);
  EXPECT_NEAR(volumes(R"(, "dp_kind": "fsdp", "reshard_after_forward": false)", gather), 1, 1e-9);
  EXPECT_NEAR(volumes(R"(, "dp_kind": "zero3")", scatter), 1, 1e-9);
  // Stage 2 scatters every micro-batch's gradients, and gathers the parameters once for both.
  EXPECT_NEAR(volumes(R"(, "dp_kind": "zero2")", scatter), 1, 1e-9);
  EXPECT_NEAR(volumes(R"(, "dp_kind": "zero2")", gather), 0.5, 1e-9);
}

// Eight ranks in groups of four: what is shared out within a group travels there, and the shares
// are summed over the two replicas.
TEST(ShardedTraffic, OfGroupsStaysWithinThemButForASumOfShares) {
  const auto sent = [](const std::string& plan, CollectiveKind kind, const std::string& group) {
    const Job job = gpt_job({kHidden, 16, 8, kSequence, kVocabulary}, 8, 32,
                            R"("micro_batch": 4, "grad_dtype": "bf16")" + plan);
    const Program program = lower(job);
    double bytes = 0;
    for (const TrafficLine& line : traffic(program, kind_at(program, 0))) {
      if (line.cause == Cause::kDataParallel && line.kind == kind && line.group == group)
        bytes += static_cast<double>(line.sent.count);
    }
    return bytes / (2.0 * static_cast<double>(count_parameters(job.model, kSequence).total));
  };
  const CollectiveKind gather = CollectiveKind::kAllGather,
                       scatter = CollectiveKind::kReduceScatter, sum = CollectiveKind::kAllReduce;
  // HSDP (facts section 5, FSDP without resharding: 2 P within the group), ZeRO-1 likewise.
  for (const char* plan : {R"(, "dp_kind": "hsdp", "shard": 4, "reshard_after_forward": false)",
                           R"(, "dp_kind": "zero1", "shard": 4)"}) {
    EXPECT_NEAR(sent(plan, gather, "shard"), 3.0 / 4, 1e-6) << plan;
    EXPECT_NEAR(sent(plan, scatter, "shard"), 3.0 / 4, 1e-6) << plan;
    // 2 (r - 1) / r of a quarter, r = 2 replicas.
    EXPECT_NEAR(sent(plan, sum, "replica"), 1.0 / 4, 1e-6) << plan;
  }
  // Horovod all-reduces every gradient once: 2 P (N-1)/N.
  EXPECT_NEAR(sent(R"(, "dp_kind": "horovod")", sum, "dp"), 2 * 7.0 / 8, 1e-6);
}

// Facts section 5 (DeepSpeed's post on ZeRO++): between nodes 3 M become 0.75 M, M the bytes of all
// parameters in 16 bits: 0.5 M for the forward gather in 8 bits, nothing for the backward one, 0.25
// M for the gradients in 4, which leave a node summed. Two nodes of eight; shares are padded to
// blocks.
TEST(ShardedTraffic, OfZeroPlusPlusIsAQuarterBetweenNodes) {
  const Job job = gpt_job({kHidden, 16, 8, kSequence, kVocabulary}, 16, 16,
                          R"("grad_dtype": "bf16", "dp_kind": "zero++")");
  const Program program = lower(job);
  const double whole = 2.0 * static_cast<double>(count_parameters(job.model, kSequence).total);
  std::map<std::string, double> sent;  // by kind and group
  for (const TrafficLine& line : traffic(program, kind_at(program, 0))) {
    if (line.cause != Cause::kDataParallel) continue;
    sent[std::string(name(line.kind)) + " " + line.group] +=
        static_cast<double>(line.sent.count) / whole;
  }
  constexpr double kPadding = 0.02;
  // The tied word table, with the positions, is gathered for the embedding and for the head.
  const double twice = 1 + 2.0 * (kVocabulary + kSequence) * kHidden / whole;
  EXPECT_NEAR(sent["all_gather dp"], twice * 0.5 * 15 / 16, kPadding);
  EXPECT_NEAR(sent["all_gather shard"], 1.0 * 7 / 8, 2 * kPadding);
  EXPECT_NEAR(sent["all_to_all shard"], 0.25 * 7 / 8, kPadding);
  EXPECT_NEAR(sent["all_to_all replica"] * 8, 0.25 / 2, kPadding);  // eight ranks; (2 - 1) / 2
  EXPECT_EQ(sent.count("reduce_scatter dp"), 0U);
}

TEST(PipelineTraffic, IsOneActivationABoundaryDirectionAndMicroBatch) {
  const Lowered whole(R"(, "scatter_gather": false)");
  const Lowered sliced(R"(, "scatter_gather": true)");
  const Lowered sequence(R"(, "sequence_parallel": true)");
  const auto sent = [](const Lowered& lowered, int stage) {
    return lowered.line(stage, Cause::kPipelineParallel, CollectiveKind::kSend, "pp").sent.count;
  };
  EXPECT_EQ(sent(whole, 0), kActivation * kMicroBatches);      // forward
  EXPECT_EQ(sent(whole, 1), 2 * kActivation * kMicroBatches);  // forward and backward
  EXPECT_EQ(sent(whole, 3), kActivation * kMicroBatches);      // backward
  EXPECT_EQ(sent(sequence, 1), 2 * kActivation / kTensor * kMicroBatches);
  EXPECT_EQ(sent(sliced, 1), 2 * kActivation / kTensor * kMicroBatches);
  // The receiver of slices gathers them over NVLink.
  EXPECT_EQ(sliced.line(1, Cause::kPipelineParallel, CollectiveKind::kAllGather, "tp").sent.count,
            2 * kActivation * (kTensor - 1) / kTensor * kMicroBatches);
}

TEST(PipelineTraffic, InterleavingSendsVirtualStagesTimesAsMuch) {
  // The first rank sends its v chunks forward and, but for the first, backward; with v 1 only
  // forward.
  const Lowered lowered(R"(, "scatter_gather": false, "schedule": "interleaved", "vpp": 2)");
  EXPECT_EQ(lowered.line(0, Cause::kPipelineParallel, CollectiveKind::kSend, "pp").sent.count,
            (2 + 1) * kActivation * kMicroBatches);
  EXPECT_EQ(lowered.line(1, Cause::kPipelineParallel, CollectiveKind::kSend, "pp").sent.count,
            2 * 2 * kActivation * kMicroBatches);
}

TEST(EmbeddingTraffic, SumsTheTiedTableOverFirstAndLastStage) {
  // V h / t in fp32, over two ranks: 2 x 1/2.
  const Lowered lowered("");
  for (const int stage : {0, 3}) {
    EXPECT_EQ(lowered.line(stage, Cause::kPipelineParallel, CollectiveKind::kAllReduce, "embedding")
                  .sent.count,
              kVocabulary * kHidden / kTensor * 4);
  }
  EXPECT_EQ(
      lowered.line(1, Cause::kPipelineParallel, CollectiveKind::kAllReduce, "embedding").count, 0);
}

TEST(LossTraffic, IsThreeSmallAllReducesAMicroBatchBesideTheHeadsOwn) {
  // Vocabulary-parallel cross entropy: maximum, predicted logit and sum of exponentials, b s fp32
  // each; the head's input gradient is one more x.
  const Lowered lowered("");
  const TrafficLine line =
      lowered.line(3, Cause::kTensorParallel, CollectiveKind::kAllReduce, "tp");
  const std::int64_t ring = 2 * (kTensor - 1);
  EXPECT_EQ(line.count, (4 * kLayers + 1 + 3) * kMicroBatches);
  EXPECT_EQ(line.sent.count, ((4 * kLayers + 1) * kActivation + 3 * kSequences * kSequence * 4) *
                                 ring / kTensor * kMicroBatches);
}

TEST(Traffic, WhatAllRanksSendTheyReceive) {
  for (const char* plan :
       {"", R"(, "sequence_parallel": true, "schedule": "interleaved", "vpp": 2)",
        R"(, "dp_kind": "distributed_optimizer", "recompute": "full", "schedule": "gpipe")"}) {
    const Lowered lowered(plan);
    Bytes sent, received;
    for (int stage = 0; stage < 4; ++stage) {
      for (const TrafficLine& line : traffic(lowered.program, kind_at(lowered.program, stage))) {
        sent += line.sent;
        received += line.received;
      }
    }
    EXPECT_GT(sent.count, 0);
    EXPECT_EQ(sent, received) << plan;
  }
}

// Context parallelism: c 4, two layers, four micro-batches of b = 2 sequences of s = 512, GQA with
// g = 4 of 16 heads of d = 64. One rank's keys: b s/c g d w bytes.
constexpr std::int64_t kRanks = 4, kSteps = 4;
constexpr std::int64_t kKeys = kSequences * (kSequence / kRanks) * 4 * 64 * 2;
constexpr std::int64_t kQueries = 4 * kKeys;

struct Spread {
  explicit Spread(const std::string& plan)
      : program(lower(job(R"("cp": 4, "micro_batch": 2)" + plan))) {}
  static Job job(const std::string& plan) {
    Job result =
        gpt_job({kHidden, 16, 2, kSequence, kVocabulary}, 4, 8, plan, R"("attention": "flash2")");
    result.model.num_key_value_heads = 4;
    return result;
  }
  TrafficLine line(CollectiveKind kind) const {
    for (const TrafficLine& entry : traffic(program, program.kinds.front())) {
      if (entry.cause == Cause::kContextParallel && entry.kind == kind) return entry;
    }
    return {};
  }
  Program program;
};

TEST(ContextParallelTraffic, ARingPassesKeysAndValuesOnceForwardAndTwiceBackward) {
  // Facts section 5: 2 b (s/c) d g w bytes c - 1 times; backward again, and their gradients.
  const Spread spread("");
  const TrafficLine line = spread.line(CollectiveKind::kShift);
  EXPECT_EQ(line.count, 3 * (kRanks - 1) * kLayers * kSteps);
  EXPECT_EQ(line.sent.count, 3 * 2 * kKeys * (kRanks - 1) * kLayers * kSteps);
}

TEST(ContextParallelTraffic, GatheringMovesWhatARingMoves) {
  const Spread spread(R"(, "cp_kind": "allgather")");
  const TrafficLine gather = spread.line(CollectiveKind::kAllGather);
  const TrafficLine scatter = spread.line(CollectiveKind::kReduceScatter);
  EXPECT_EQ(gather.count, 4 * kLayers * kSteps);
  EXPECT_EQ(gather.sent.count, 2 * 2 * kKeys * (kRanks - 1) * kLayers * kSteps);
  EXPECT_EQ(scatter.sent.count, 2 * kKeys * (kRanks - 1) * kLayers * kSteps);
}

TEST(ContextParallelTraffic, UlyssesExchangesFourTensorsEachWay) {
  // Facts section 5: 4 all-to-all forward (q, k, v, out); DeepSpeed's 4 N h / P where g = a.
  const Spread spread(R"(, "cp_kind": "ulysses")");
  const TrafficLine line = spread.line(CollectiveKind::kAllToAll);
  EXPECT_EQ(line.count, 2 * 4 * kLayers * kSteps);
  EXPECT_EQ(line.sent.count,
            2 * (2 * kQueries + 2 * kKeys) * (kRanks - 1) / kRanks * kLayers * kSteps);
}

TEST(ContextParallelTraffic, BothTogetherExchangeInPairsAndShiftLongerPieces) {
  const Spread spread(R"(, "cp_kind": "ulysses+ring", "ulysses_degree": 2)");
  const TrafficLine exchanged = spread.line(CollectiveKind::kAllToAll);
  EXPECT_EQ(exchanged.group, "ulysses");
  EXPECT_EQ(exchanged.sent.count, 2 * (2 * kQueries + 2 * kKeys) / 2 * kLayers * kSteps);
  const TrafficLine shifted = spread.line(CollectiveKind::kShift);
  EXPECT_EQ(shifted.group, "ring");
  EXPECT_EQ(shifted.sent.count,
            3 * 2 * kKeys * kLayers * kSteps);  // twice the tokens, half the heads
}

TEST(ContextParallelTraffic, GradientsAreReducedOverDataAndContextRanks) {
  const auto reduced = [](const std::string& plan) {
    const Program program = lower(
        gpt_job({kHidden, 16, 2, kSequence, kVocabulary}, 8, 8, plan, R"("attention": "flash2")"));
    for (const TrafficLine& entry : traffic(program, program.kinds.front())) {
      if (entry.cause == Cause::kDataParallel && entry.kind == CollectiveKind::kAllReduce &&
          entry.sent.count > 100) {
        return std::pair(entry.size, entry.sent.count);
      }
    }
    return std::pair(0, std::int64_t{0});
  };
  EXPECT_EQ(reduced(R"("cp": 4)"), reduced(""));
  EXPECT_EQ(reduced(R"("cp": 4)").first, 8);
}

}  // namespace
}  // namespace headway
