// What a good job resolves to.
#include "sim/plan/job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/job_text.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Job read(const std::string& text, const std::vector<JobOverride>& overrides = {}) {
  Said said = read_text(text, overrides);
  EXPECT_THAT(said.lines, ElementsAre());
  if (!said.reading.job) throw std::runtime_error("no job");
  return std::move(*said.reading.job);
}

TEST(Job, ResolvesDegreesAndStages) {
  const Job job = read(kGpt3Job);
  EXPECT_EQ(job.model.name, "gpt3-175b");
  EXPECT_EQ(job.gpus(), 1024);
  EXPECT_EQ(job.plan.dp, 8);               // 1,024 / (8 x 16)
  EXPECT_EQ(job.plan.micro_batches, 192);  // 1,536 / (8 x 1)
  EXPECT_THAT(job.plan.stage_layers, SizeIs(48));
  EXPECT_THAT(job.plan.stage_layers, Each(2));  // 96 / (16 x 3)
  EXPECT_EQ(job.plan.schedule, "interleaved");
  EXPECT_EQ(job.plan.recompute, Recompute::kSelective);
  EXPECT_TRUE(job.plan.sequence_parallel);
  EXPECT_EQ(job.profile, "a100-sxm-80gb");
  EXPECT_EQ(job.padded_vocabulary(), 51200);  // 51,200 = 50 x 128 x 8
}

TEST(Job, WithoutALengthTrainsOnWhatTheModelHolds) {
  const Job job = read(R"({"model": "llama3-70b", "cluster": {"topology": "dgx-h100", "gpus": 512},
                           "global_batch": 1024, "plan": {"tp": 8, "pp": 4}})");
  EXPECT_EQ(job.sequence_length, 8192);
  EXPECT_THAT(job.notes, Contains(HasSubstr("sequence_length is not given")));
}

TEST(Job, SaysWhereEachValueComesFrom) {
  const Job job = read(kGpt3Job);
  EXPECT_EQ(job.origins.at("plan.tp"), Origin::kGiven);
  EXPECT_EQ(job.origins.at("plan.overlap_p2p"), Origin::kFramework);
  EXPECT_EQ(job.origins.at("plan.cp"), Origin::kDefault);
  EXPECT_EQ(job.origins.at("software.framework"), Origin::kGiven);
  EXPECT_EQ(job.origins.at("software.attention"), Origin::kFramework);
  EXPECT_EQ(job.origins.at("precision"), Origin::kGiven);
}

TEST(Job, TakesGpusInsteadOfNodesAndTheTopologysProfile) {
  const Job job =
      read(replaced(kGpt3Job, R"("nodes": 128, "profile": "a100-sxm-80gb")", R"("gpus": 1024)"));
  EXPECT_EQ(job.gpus(), 1024);
  EXPECT_EQ(job.profile, "a100-sxm-80gb");
  EXPECT_EQ(job.origins.at("cluster.profile"), Origin::kDefault);
}

TEST(Job, WithoutAFrameworkIsHeadwaysAndSaysSo) {
  const Job job = read(replaced(kGpt3Job, R"("software": {"framework": "megatron-2022"},)", ""));
  EXPECT_EQ(job.software.framework, "headway");
  EXPECT_TRUE(job.plan.overlap_grad_reduce);
  EXPECT_TRUE(job.plan.overlap_p2p);
  EXPECT_EQ(job.plan.gradient_type, DataType::kFp32);
  EXPECT_THAT(job.notes, Contains(HasSubstr("software.framework is not given: headway")));
}

TEST(Job, SoftwareOverridesItsFramework) {
  const Job job = read(replaced(kGpt3Job, R"({"framework": "megatron-2022"})",
                                R"({"framework": "megatron-2022", "attention": "flash2",
                                    "norm_kernel": "unfused", "fused_loss": true, "fused_kernels": false})"));
  EXPECT_EQ(job.software.attention, AttentionKernel::kFlash2);
  EXPECT_FALSE(job.software.fused_norm);
  EXPECT_TRUE(job.software.fused_loss);
  EXPECT_FALSE(job.software.fused_kernels);
  EXPECT_EQ(job.origins.at("software.attention"), Origin::kGiven);
}

TEST(Job, OptionsReplaceWhatTheFileSays) {
  const Job job = read(kGpt3Job, {{"plan.pp", "8", "--pp"},
                                  {"plan.vpp", "4", "--vpp"},
                                  {"software.framework", "megatron-core", "--framework"},
                                  {"plan.dp_kind", "zero1", "--dp-kind"},
                                  {"model", "gpt3-145b", "--model"},
                                  {"plan.recompute", "none", "--recompute"},
                                  {"plan.vpp", "5", "--vpp"}});
  EXPECT_EQ(job.plan.pp, 8);
  EXPECT_EQ(job.plan.vpp, 5);  // the last one wins
  EXPECT_EQ(job.plan.dp, 16);
  EXPECT_EQ(job.model.name, "gpt3-145b");
  EXPECT_EQ(job.plan.dp_kind, DataParallelKind::kZero1);
  EXPECT_EQ(job.origins.at("plan.dp_kind"), Origin::kGiven);
  EXPECT_EQ(job.plan.tp, 8);
}

TEST(Job, CanBeOptionsAlone) {
  const Job job = read("{}", {{"model", "llama3-70b", "--model"},
                              {"cluster.topology", "dgx-h100", "--cluster"},
                              {"cluster.gpus", "512", "--gpus"},
                              {"plan.tp", "8", "--tp"},
                              {"plan.pp", "4", "--pp"},
                              {"sequence_length", "8192", "--sequence-length"},
                              {"global_batch", "1024", "--global-batch"}});
  EXPECT_EQ(job.plan.dp, 16);
  EXPECT_EQ(job.precision, Precision::kBf16);
}

TEST(Job, OverridesLinksOfItsCluster) {
  const Job job = read(kGpt3Job, {{"cluster.links.nic.bandwidth", "100 Gbit/s", "--nic"}});
  EXPECT_DOUBLE_EQ(job.topology.nic_bandwidth().bytes_per_second, 12.5e9);
}

// Gradients follow the framework's way of accumulating, and the other way round.
TEST(Job, ResolvesTheTypeOfGradients) {
  const auto with = [](const char* framework, const char* precision, const char* grad_dtype) {
    std::vector<JobOverride> changes = {{"software.framework", framework, "--framework"},
                                        {"precision", precision, "--precision"}};
    if (*grad_dtype != 0) changes.push_back({"plan.grad_dtype", grad_dtype, "--grad-dtype"});
    const Job job = read(kGpt3Job, changes);
    return std::pair(job.plan.gradient_type, job.software.accumulation);
  };
  using Accumulation = GradientAccumulation;
  EXPECT_EQ(with("megatron-2022", "bf16", ""), std::pair(DataType::kFp32, Accumulation::kFused));
  EXPECT_EQ(with("megatron-2022", "bf16", "bf16"),
            std::pair(DataType::kBf16, Accumulation::kFused));
  EXPECT_EQ(with("megatron-2021", "bf16", ""),
            std::pair(DataType::kFp32, Accumulation::kMainGradient));
  EXPECT_EQ(with("megatron-2021", "fp16", ""), std::pair(DataType::kFp16, Accumulation::kSameType));
  EXPECT_EQ(with("megatron-2021", "fp16", "fp16"),
            std::pair(DataType::kFp16, Accumulation::kSameType));
  EXPECT_EQ(with("megatron-2023", "fp16", ""), std::pair(DataType::kFp16, Accumulation::kSameType));
  EXPECT_EQ(with("megatron-2023", "fp16", "fp32"),
            std::pair(DataType::kFp32, Accumulation::kMainGradient));
  EXPECT_EQ(with("megatron-2022", "fp64", "").first, DataType::kFp64);
}

TEST(Job, KeepsNoMasterCopyOfFullPrecisionParameters) {
  EXPECT_FALSE(read(kGpt3Job, {{"precision", "fp32", "--precision"}}).software.master_parameters);
  EXPECT_TRUE(read(kGpt3Job, {{"precision", "fp16", "--precision"}}).software.master_parameters);
}

TEST(Job, BucketsInBytesHoldElementsOfTheGradients) {
  // 25 MiB of fp32: 26,214,400 / 4
  EXPECT_EQ(read(kGpt3Job, {{"plan.bucket", "25 MiB", "--bucket"}}).plan.bucket_elements, 6553600);
}

TEST(Job, PadsTheVocabularyByFrameworkAndTp) {
  std::vector<JobOverride> changes = {{"plan", R"({"tp": 1})", "--plan"},
                                      {"cluster.nodes", "1", "--nodes"}};
  changes.push_back({"model",
                     R"({"hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
      "vocab_size": 50257, "hidden_act": "gelu"})",
                     "--model"});
  EXPECT_EQ(read(kGpt3Job, changes).padded_vocabulary(), 50304);  // 393 x 128
  changes.push_back({"software.framework", "megatron-deepspeed-2022", "--framework"});
  EXPECT_EQ(read(kGpt3Job, changes).padded_vocabulary(), 50257);
  changes.push_back({"plan.tp", "2", "--tp"});
  EXPECT_EQ(read(kGpt3Job, changes).padded_vocabulary(), 50432);  // 197 x 256
}

TEST(Job, PlacesRanksByItsOrder) {
  const std::vector<Axis> expected = {{"tp", 8}, {"cp", 1}, {"dp", 8}, {"pp", 16}};
  EXPECT_EQ(read(kGpt3Job).grid().axes(), expected);
  const std::vector<Axis> other = {{"tp", 8}, {"pp", 16}, {"cp", 1}, {"dp", 8}};
  EXPECT_EQ(read(kGpt3Job, {{"plan.order", "tp-pp", "--order"}}).grid().axes(), other);
}

TEST(Job, NotesKeysWithoutEffect) {
  const Job job =
      read(kGpt3Job,
           {{"plan", R"({"tp": 1, "pp": 1, "micro_batch": 1, "vpp": 3, "sequence_parallel": true,
      "tp_overlap": "ring", "cp_kind": "ulysses", "recompute_layers": 2, "schedule": "zb-h1", "vocabulary": "parallel-1",
      "cycle_time": "5 ms", "prefetch": 1, "moe": {"kind": "glam"}, "ep": 2, "overlap_param_gather": true})",
             "--plan"},
            {"global_batch", "1024", "--global-batch"}});
  EXPECT_THAT(
      job.notes,
      testing::UnorderedElementsAre(
          "plan.sequence_parallel has no effect: tp is 1", "plan.tp_overlap has no effect: tp is 1",
          "plan.cp_kind has no effect: cp is 1", "plan.vpp has no effect: pp is 1",
          "plan.schedule has no effect: pp is 1", "plan.vocabulary has no effect: pp is 1",
          "plan.cycle_time has no effect: dp_kind is not horovod",
          "plan.overlap_param_gather has no effect: dp_kind ddp gathers no parameters",
          "plan.prefetch has no effect: dp_kind ddp keeps the parameters whole",
          "plan.recompute_layers has no effect: recompute is not full",
          "plan.moe has no effect: the model has no experts",
          "plan.ep has no effect: the model has no experts"));
  EXPECT_EQ(job.plan.schedule, "1f1b");
  EXPECT_EQ(job.plan.vpp, 1);
  EXPECT_FALSE(job.plan.sequence_parallel);
  EXPECT_THAT(job.plan.stage_layers, ElementsAre(96));
}

TEST(Job, NotesThatSomeSchedulesNeverWaitForTheirMessages) {
  const Job job = read(kGpt3Job, {{"plan.schedule", "zb-v", "--schedule"},
                                  {"plan.vpp", "2", "--vpp"},
                                  {"plan.overlap_p2p", "false", "--overlap-p2p"}});
  EXPECT_THAT(job.notes, testing::Contains("plan.overlap_p2p has no effect: the messages of zb-v "
                                           "are always asynchronous"));
}

TEST(Job, TakesValuesThatSayOff) {
  const Job job = read(kGpt3Job, {{"plan.cp", "1", "--cp"},
                                  {"plan.ep", "1", "--ep"},
                                  {"plan.tp_overlap", "none", "--o"},
                                  {"plan.tp_kind", "1d", "--k"},
                                  {"plan.offload", "[]", "--offload"},
                                  {"plan.vocabulary", "last-stage", "--v"},
                                  {"plan.recompute_modules", R"(["core_attention"])", "--m"},
                                  {"plan.synchronous_optimizer", "true", "--s"},
                                  {"software.compile", "false", "--c"},
                                  {"software.launch", "cuda_graph", "--l"},
                                  {"plan.dp", "8", "--dp"}});
  EXPECT_EQ(job.software.launch, Launch::kCudaGraph);
}

TEST(Job, RecomputesSomeLayersOfEachStage) {
  const auto depth = [](const char* layers) {
    return read(kGpt3Job, {{"plan.recompute", "full", "--recompute"},
                           {"plan.recompute_layers", layers, "--layers"},
                           {"plan.vpp", "2", "--vpp"}})
        .plan.recompute_layers;
  };
  EXPECT_EQ(depth("1"), 1);
  EXPECT_EQ(depth("3"), 0);  // all of a stage's three
}

TEST(Job, ReadsAHuggingFaceFile) {
  const std::string path = source_dir() + "/tests/plan/models/config.json";
  const Job job = read(kGpt3Job, {{"model", path, "--model"}, {"plan.vpp", "2", "--vpp"}});
  EXPECT_EQ(job.model.hidden_size, 4096);
  EXPECT_EQ(job.model.name, path);
  EXPECT_THAT(job.notes, Contains(testing::EndsWith(
                             "that do not matter here: architectures, rope_theta, torch_dtype")));
}

TEST(Job, ExtendsLearnedPositionsWithANote) {
  const std::string path = source_dir() + "/tests/plan/models/gpt2-short.json";
  const std::vector<JobOverride> changes = {{"model", path, "--model"},
                                            {"plan", R"({"tp": 8})", "--plan"},
                                            {"cluster.nodes", "2", "--nodes"}};
  const Job job = read(kGpt3Job, changes);
  EXPECT_EQ(job.model.max_positions, 0);  // as long as the sequence
  EXPECT_THAT(job.notes,
              Contains("the model's 1024 learned positions are extended to the sequence of 2048"));
}

// Megatron switches --overlap-p2p-communication off without virtual stages.
TEST(Job, KeepsTheRulesOfItsFramework) {
  const auto overlaps = [](const char* framework, const char* schedule, const char* vpp) {
    return read(kGpt3Job, {{"software.framework", framework, "--framework"},
                           {"plan.schedule", schedule, "--schedule"},
                           {"plan.vpp", vpp, "--vpp"}})
        .plan.overlap_p2p;
  };
  EXPECT_TRUE(overlaps("megatron-core", "interleaved", "3"));
  EXPECT_FALSE(overlaps("megatron-core", "1f1b", "1"));
  EXPECT_TRUE(overlaps("headway", "1f1b", "1"));
  const Job job =
      read(kGpt3Job, {{"plan", R"({"tp": 8, "pp": 2, "overlap_p2p": true})", "--plan"}});
  EXPECT_FALSE(job.plan.overlap_p2p);
  EXPECT_THAT(
      job.notes,
      Contains("plan.overlap_p2p has no effect: megatron-2022 overlaps p2p in the interleaved "
               "schedule only"));
}

// max(40,000,000, 1,000,000 x dp) elements
TEST(Job, GrowsMegatronsBucketsWithDataParallelism) {
  const auto bucket = [](const char* nodes, const char* more) {
    return read(kGpt3Job, {{"software.framework", "megatron-core", "--framework"},
                           {"cluster.nodes", nodes, "--nodes"},
                           {"plan", std::string(R"({"tp": 8)") + more + "}", "--plan"},
                           {"global_batch", "128", "--global-batch"}})
        .plan.bucket_elements;
  };
  EXPECT_EQ(bucket("16", ""), 40000000);
  EXPECT_EQ(bucket("64", ""), 64000000);
  EXPECT_EQ(bucket("64", R"(, "bucket_elements": 1000)"), 1000);
  EXPECT_EQ(read(kGpt3Job).plan.bucket_elements, std::nullopt);  // megatron-2022 has no buckets
}

TEST(ResolvedJob, GivesEveryValueWithItsOrigin) {
  const std::string text = resolved_job_json(read(kGpt3Job), 2);
  EXPECT_THAT(text, HasSubstr(R"("hidden_size": {"value": 12288, "origin": "given"})"));
  EXPECT_THAT(text, HasSubstr(R"("tp": {"value": 8, "origin": "given"})"));
  EXPECT_THAT(text, HasSubstr(R"("cp": {"value": 1, "origin": "default"})"));
  EXPECT_THAT(text, HasSubstr(R"("attention": {"value": "unfused", "origin": "framework"})"));
  EXPECT_THAT(text, HasSubstr(R"("overlap_p2p": {"value": false, "origin": "framework"})"));
  const JsonNode node = JsonNode::parse_text(text, "resolved");
  EXPECT_EQ(node.find("cluster")->find("gpus")->find("value")->integer(), 1024);
  EXPECT_EQ(node.find("plan")->find("dp")->find("value")->integer(), 8);
  EXPECT_EQ(text, resolved_job_json(read(kGpt3Job), 2));
}

TEST(ResolvedJob, TellsAnInlineModelsDefaultsApart) {
  const Job job =
      read(kGpt3Job,
           {{"model", R"({"hidden_size": 1024, "num_hidden_layers": 96, "num_attention_heads": 16,
      "vocab_size": 50257, "hidden_act": "gelu"})",
             "--model"}});
  const std::string text = resolved_job_json(job, 2);
  EXPECT_THAT(text, HasSubstr(R"("hidden_size": {"value": 1024, "origin": "given"})"));
  EXPECT_THAT(text, HasSubstr(R"("intermediate_size": {"value": 4096, "origin": "default"})"));
}

}  // namespace
}  // namespace headway
