// Bad jobs: one clear message each, at the place where the writer can mend it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/job_text.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// The job with `piece` replaced says exactly these lines.
struct Fault {
  const char* piece;
  const char* by;
  std::vector<std::string> lines;
};

void expect_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    const Said said = read_text(replaced(kGpt3Job, fault.piece, fault.by));
    EXPECT_THAT(said.lines, ElementsAreArray(fault.lines)) << fault.piece << " -> " << fault.by;
    EXPECT_FALSE(said.reading.job.has_value()) << fault.by;
  }
}

TEST(BadJob, NamesUnknownKeysAndTheNearestKnownOne) {
  expect_faults({
      {R"("precision")",
       R"("percision")",
       {"job.json: /percision: unknown key \"percision\"; did you mean \"precision\"?"}},
      {R"("micro_batch")",
       R"("micro_bach")",
       {"job.json: /plan/micro_bach: unknown key \"micro_bach\"; did you mean \"micro_batch\"?"}},
      {R"("profile")",
       R"("profil")",
       {"job.json: /cluster/profil: unknown key \"profil\"; did you mean \"profile\"?"}},
      {R"("framework")",
       R"("framwork")",
       {"job.json: /software/framwork: unknown key \"framwork\"; did you mean \"framework\"?"}},
  });
}

TEST(BadJob, NamesMisspeltValuesAndTheNearestRightOne) {
  const auto says = [](const char* piece, const char* by) {
    const Said said = read_text(replaced(kGpt3Job, piece, by));
    EXPECT_EQ(said.lines.size(), 1U) << by;
    return said.lines.empty() ? std::string() : said.lines.front();
  };
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(
      says("gpt3-175b", "gpt3-157b"),
      AllOf(HasSubstr("job.json: /model: \"gpt3-157b\" is not known; did you mean \"gpt3-1"),
            HasSubstr("config.json")));
  EXPECT_THAT(says("dgx-a100", "dgx-a10"),
              AllOf(HasSubstr("job.json: /cluster/topology"), HasSubstr("dgx-a100")));
  EXPECT_THAT(
      says("a100-sxm-80gb", "a100-sxm-80"),
      HasSubstr("/cluster/profile: \"a100-sxm-80\" is not known; did you mean \"a100-sxm-80gb\"?"));
  EXPECT_THAT(says("bf16", "bf61"), HasSubstr("/precision: \"bf61\" is not allowed; expected"));
  EXPECT_THAT(
      says("megatron-2022", "megatron-2020"),
      HasSubstr(
          "/software/framework: \"megatron-2020\" is not known; did you mean \"megatron-202"));
  EXPECT_THAT(says("\"interleaved\"", "\"interleaf\""),
              HasSubstr("/plan/schedule: \"interleaf\" is not allowed; expected 1f1b, gpipe"));
  EXPECT_THAT(says("\"interleaved\"", "\"zb-h3\""), HasSubstr("did you mean \"zb-h"));
  EXPECT_THAT(says("selective", "selektive"), HasSubstr("did you mean \"selective\"?"));
  // The published job has a pipeline of 16 ranks.
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "dp_kind": "zero3")"),
              HasSubstr("/plan/dp_kind: zero3 does not go with pp 16"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "dp_kind": "fsdp", "prefetch": -1)"),
              HasSubstr("/plan/prefetch: -1 is not allowed"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "dp_kind": "zero4")"),
              HasSubstr("/plan/dp_kind: \"zero4\" is not allowed"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "recompute_modules": ["mlp", "core_atn"])"),
              HasSubstr("/plan/recompute_modules/1: \"core_atn\" is not allowed"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "order": "tp-cp-dp-dp-pp")"),
              HasSubstr("\"dp\" comes twice"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "order": "tp-xp")"), HasSubstr("\"xp\" is no axis"));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "moe": {"kind": "megatronn"})"),
              HasSubstr("/plan/moe/kind: "));
  EXPECT_THAT(says(R"("tp": 8)", R"("tp": 8, "moe": {"routing": {"zip": 1}})"),
              HasSubstr("/plan/moe/routing"));
}

TEST(BadJob, RefusesNumbersOutOfRange) {
  const std::string degrees = " is not allowed; expected an integer from 1 up to 1048576";
  const std::string counts = " is not allowed; expected an integer from 1 up to 16777216";
  expect_faults({
      {R"("tp": 8)", R"("tp": 0)", {"job.json: /plan/tp: 0" + degrees}},
      {R"("tp": 8)", R"("tp": -8)", {"job.json: /plan/tp: -8" + degrees}},
      {R"("tp": 8)", R"("tp": 2147483648)", {"job.json: /plan/tp: 2147483648" + degrees}},
      {R"("tp": 8)", R"("tp": 8.5)", {"job.json: /plan/tp: 8.5" + degrees}},
      {R"("tp": 8)", R"("tp": true)", {"job.json: /plan/tp: true" + degrees}},
      {R"("tp": 8)", R"("tp": "8")", {"job.json: /plan/tp: \"8\"" + degrees}},
      {R"("pp": 16)", R"("pp": 0)", {"job.json: /plan/pp: 0" + degrees}},
      {R"("vpp": 3)", R"("vpp": 0)", {"job.json: /plan/vpp: 0" + counts}},
      {R"("micro_batch": 1)", R"("micro_batch": 0)", {"job.json: /plan/micro_batch: 0" + counts}},
      {R"("micro_batch": 1)",
       R"("micro_batch": 2147483648)",
       {"job.json: /plan/micro_batch: 2147483648" + counts}},
      {R"("global_batch": 1536)", R"("global_batch": 0)", {"job.json: /global_batch: 0" + counts}},
      {R"("global_batch": 1536)",
       R"("global_batch": -1)",
       {"job.json: /global_batch: -1" + counts}},
      {R"("sequence_length": 2048)",
       R"("sequence_length": 2147483648)",
       {"job.json: /sequence_length: 2147483648" + counts}},
      {R"("nodes": 128)", R"("nodes": 0)", {"job.json: /cluster/nodes: 0" + degrees}},
      {R"("nodes": 128)",
       R"("nodes": 2147483648)",
       {"job.json: /cluster/nodes: 2147483648" + degrees}},
      {R"("nodes": 128)",
       R"("nodes": 1048576)",
       {"job.json: /cluster/nodes: 8388608 GPUs are too many; expected up to 1048576"}},
  });
}

TEST(BadJob, RefusesWrongTypes) {
  expect_faults({
      {R"("sequence_parallel": true)",
       R"("sequence_parallel": 1)",
       {"job.json: /plan/sequence_parallel: 1 is not true or false"}},
      {R"("model": "gpt3-175b")",
       R"("model": 175)",
       {"job.json: /model: 175 is not allowed; expected a preset's name, a path to a config.json, "
        "or a model"}},
      {R"("topology": "dgx-a100")",
       R"("topology": 100)",
       {"job.json: /cluster/topology: 100 is not allowed; expected a preset's name or a path"}},
      {R"({"framework": "megatron-2022"})",
       R"("megatron-2022")",
       {"job.json: /software: \"megatron-2022\" is not an object"}},
      {R"("vpp": 3)",
       R"("vpp": 3, "stage_layers": 6)",
       {"job.json: /plan/stage_layers: 6 is not a list"}},
      {R"("vpp": 3)",
       R"("vpp": 3, "bucket": 25)",
       {"job.json: /plan/bucket: \"25\" is not an amount of memory: the unit is missing; expected "
        "a number and B, kB, "
        "MB, GB, TB, KiB, MiB, GiB or TiB"}},
      {R"("nodes": 128)",
       R"("nodes": 128, "links": {"nic": {"bandwidth": 200}})",
       {"job.json: /cluster/links/nic/bandwidth: \"200\" is not a bandwidth: the unit is missing; "
        "expected a number and "
        "B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s, bit/s, kbit/s, Mbit/s, Gbit/s or "
        "Tbit/s"}},
  });
  EXPECT_THAT(read_text("[1, 2]").lines, ElementsAre("job.json: [1,2] is not an object"));
}

TEST(BadJob, NamesWhatIsMissing) {
  EXPECT_THAT(read_text("{}").lines,
              testing::UnorderedElementsAre(
                  "job.json: /model: missing; expected a preset's name, a path to a config.json, "
                  "or a model",
                  "job.json: /sequence_length: missing; expected the tokens of a sequence",
                  "job.json: /global_batch: missing; expected the sequences of a step",
                  "job.json: /cluster: missing; expected {\"topology\": ..., \"nodes\": or "
                  "\"gpus\": ...}"));
  expect_faults({
      {R"("nodes": 128, )", "", {"job.json: /cluster/gpus: missing; expected gpus, or nodes"}},
      {R"("topology": "dgx-a100", )",
       "",
       {"job.json: /cluster/topology: missing; expected a preset's name or a path"}},
  });
}

TEST(BadJob, NamesWhatDoesNotDivide) {
  expect_faults({
      {R"("tp": 8)",
       R"("tp": 5)",
       {"job.json: /plan/tp: 5 does not divide the 96 attention heads",
        "job.json: /plan/tp: 5 does not divide the 49152 columns of the MLP (intermediate_size)",
        "job.json: /plan/sequence_parallel: tp 5 does not divide the sequence of 2048 tokens",
        "job.json: /plan: tp 5 x cp 1 x pp 16 = 80 does not divide the 1024 GPUs"}},
      {R"("pp": 16)",
       R"("pp": 12)",
       {"job.json: /plan: tp 8 x cp 1 x pp 12 = 96 does not divide the 1024 GPUs"}},
      {R"("tp": 8)",
       R"("tp": 8, "dp": 4)",
       {"job.json: /plan/dp: 4 is not what remains: 1024 GPUs / (tp 8 x cp 1 x pp 16 = 128) = 8"}},
      {R"("global_batch": 1536)",
       R"("global_batch": 1537)",
       {"job.json: /global_batch: 1537 does not divide by dp 8 x micro_batch 1 = 8"}},
      {R"("sequence_length": 2048)",
       R"("sequence_length": 2047)",
       {"job.json: /plan/sequence_parallel: tp 8 does not divide the sequence of 2047 tokens"}},
      {R"("nodes": 128)",
       R"("nodes": 128, "gpus": 1000)",
       {"job.json: /cluster/gpus: 1000 contradicts 128 nodes of 8 GPUs"}},
  });
}

TEST(BadJob, NamesWhatThePipelineCannotDo) {
  expect_faults({
      {R"("vpp": 3)",
       R"("vpp": 1)",
       {"job.json: /plan/schedule: interleaved needs at least 2 virtual stages per rank (vpp)"}},
      {R"("vpp": 3,)",
       "",
       {"job.json: /plan/schedule: interleaved needs at least 2 virtual stages per rank (vpp)"}},
      {R"("interleaved")",
       R"("1f1b")",
       {"job.json: /plan/schedule: 1f1b has 1 stage per rank, not 3"}},
      {R"("vpp": 3)",
       R"("vpp": 3, "vpp_group": 12)",
       {"job.json: /plan/schedule: interleaved needs a group (vpp_group) between the 16 pipeline "
        "ranks and the 192 "
        "micro-batches, not 12"}},
      // 1,608 / 8 = 201 = 12 x 16 + 9
      {R"("global_batch": 1536)",
       R"("global_batch": 1608)",
       {"job.json: /plan/schedule: interleaved 201 micro-batches in groups of 16 leave a last "
        "group of 9; it must be "
        "empty or have at least 16 (the pipeline ranks)"}},
      {R"("vpp": 3)",
       R"("vpp": 7)",
       {"job.json: /plan/vpp: pp 16 x vpp 7 = 112 virtual stages for 96 layers; expected at most "
        "as many, or stage_layers"}},
      {R"("vpp": 3)",
       R"("vpp": 2, "stage_layers": [48, 48])",
       {"job.json: /plan/stage_layers: 2 entries; expected one for each of the 32 virtual stages "
        "(pp 16 x vpp 2)"}},
      {R"("pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3)",
       R"("pp": 2, "stage_layers": [48, 47])",
       {"job.json: /plan/stage_layers: the entries add up to 95, the model has 96 layers"}},
      // The same layer would cross to (or back to) a rank twice.
      {R"("pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3)",
       R"("pp": 4, "schedule": "interleaved", "vpp": 2, "stage_layers": [48, 0, 0, 0, 0, 48, 0, 0])",
       {"job.json: /plan/stage_layers: no layer in virtual stages 1 to 4, between two of pipeline "
        "rank 1; expected at least one"}},
      {R"("pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3)",
       R"("pp": 4, "schedule": "zb-v", "stage_layers": [48, 1, 0, 0, 0, 0, 0, 47])",
       {"job.json: /plan/stage_layers: no layer in virtual stages 2 to 4, between two of pipeline "
        "rank 2; expected at least one"}},
      {R"("pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3)",
       R"("pp": 4, "schedule": "zb-v", "stage_layers": [48, 1, 0, 0, 0, 0, 47, 0])",
       {"job.json: /plan/stage_layers: no layer in virtual stages 2 to 4, between two of pipeline "
        "rank 2; expected at least one"}},
  });
}

TEST(BadJob, NamesSequencesAndHeadsThatContextParallelismCannotShare) {
  const auto says = [](const std::string& plan, const std::string& framework = "torchtitan") {
    std::string job = replaced(kGpt3Job, "megatron-2022", framework);
    job =
        replaced(job, R"("tp": 8, "pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3)",
                 R"("tp": 8, "pp": 16, )" + plan);
    return read_text(job).lines;
  };
  EXPECT_THAT(
      says(R"("cp": 8, "cp_kind": "ulysses")"),
      ElementsAre("job.json: /plan/cp_kind: Ulysses over 8 ranks does not divide the 12 "
                  "attention heads that tp 8 leaves a rank; expected a degree that does, or "
                  "cp_kind ring",
                  "job.json: /plan/cp_kind: Ulysses over 8 ranks does not divide the 12 "
                  "key-value heads that tp 8 leaves a rank; expected a degree that does, or "
                  "cp_kind ring"));
  EXPECT_THAT(says(R"("cp": 4, "cp_kind": "ulysses+ring")"),
              ElementsAre("job.json: /plan/ulysses_degree: missing; expected how many of the cp "
                          "ranks exchange heads, for cp_kind ulysses+ring"));
  EXPECT_THAT(says(R"("cp": 4, "cp_kind": "ulysses+ring", "ulysses_degree": 3)"),
              ElementsAre("job.json: /plan/ulysses_degree: 3 does not divide cp 4"));
  EXPECT_THAT(says(R"("cp": 4)", "megatron-2022"),
              ElementsAre("job.json: /plan/cp_kind: ring attention works block by block, which "
                          "unfused attention does not; expected a fused software.attention, or "
                          "cp_kind ulysses"));
  EXPECT_THAT(
      read_text(replaced(kGpt3Job, R"("sequence_length": 2048)", R"("sequence_length": 2052)"),
                {{"plan.cp", "4", "--cp"}, {"software.attention", "flash2", "--x"}})
          .lines,
      testing::Contains("--cp: 2 x cp = 8 does not divide the sequence of 2052 tokens"));
}

TEST(BadJob, NamesWhatPackedSequencesCannotDo) {
  const std::string folder = source_dir() + "/tests/plan/lengths/";
  const auto packed = [&](const std::string& lengths) {
    return read_text(replaced(kGpt3Job, R"("sequence_length": 2048)",
                              R"("sequence_lengths": {)" + lengths + "}"))
        .lines;
  };
  const std::string file = R"("histogram": ")" + folder + R"(short-documents.csv")";
  EXPECT_THAT(packed(file), ElementsAre(testing::HasSubstr(
                                "/sequence_lengths: unfused attention works on whole sequences")));
  EXPECT_THAT(packed(file + R"(, "packed": 64)"),
              testing::Contains(testing::HasSubstr("/sequence_lengths/packed")));
  EXPECT_THAT(packed(R"("histogram": "no/such.csv")"),
              testing::Contains(testing::HasSubstr("no/such.csv")));
  EXPECT_THAT(packed(R"("packed_to": 64)"),
              testing::Contains(testing::HasSubstr("/sequence_lengths/histogram: missing")));
}

TEST(BadJob, NamesWhatSquaresOfRanksCannotDo) {
  const auto lines = [](std::vector<JobOverride> overrides) {
    overrides.push_back({"plan.sequence_parallel", "false", "--sp"});
    return read_text(kGpt3Job, overrides).lines;
  };
  EXPECT_THAT(
      lines({{"plan.tp_kind", "2d", "--kind"}}),
      ElementsAre(
          "job.json: /plan/tp: 8 ranks are no square of more than one, as tp_kind 2d has them"));
  EXPECT_THAT(lines({{"plan.tp_kind", "2.5d", "--kind"}}),
              ElementsAre("job.json: /plan/tp_depth: missing; expected the squares of a stack, for "
                          "tp_kind 2.5d"));
  EXPECT_THAT(
      lines({{"plan.tp_kind", "2.5d", "--kind"}, {"plan.tp_depth", "2", "--depth"}}),
      ElementsAre("job.json: /plan/micro_batch: 1 sequences do not divide among the 4 rows of "
                  "tp_kind 2.5d, whose attention works on whole sequences"));
}

TEST(BadJob, NamesOverlapWithoutSequenceParallelism) {
  EXPECT_THAT(read_text(kGpt3Job, {{"plan.tp_overlap", "ring", "--o"},
                                   {"plan.sequence_parallel", "false", "--sp"}})
                  .lines,
              ElementsAre("--o: ring overlaps the exchanges of sequence parallelism; expected "
                          "sequence_parallel true, or none"));
}

TEST(BadJob, NamesKeyValueHeadsThatTpCannotShare) {
  const std::string job = replaced(
      kGpt3Job, R"("gpt3-175b")",
      R"({"hidden_size": 3072, "num_hidden_layers": 48, "num_attention_heads": 24, "num_key_value_heads": 6,
          "intermediate_size": 8192, "vocab_size": 32000, "hidden_act": "silu"})");
  EXPECT_THAT(
      read_text(job).lines,
      ElementsAre(
          "job.json: /plan/tp: 8 neither divides the 6 key-value heads nor is a multiple of them"));
}

TEST(BadJob, RefusesMoreGpusThanTheClusterHasAndPartsOfNodes) {
  const Said parts = read_text(replaced(kGpt3Job, R"("nodes": 128)", R"("gpus": 1020)"));
  ASSERT_EQ(parts.lines.size(), 1U);
  EXPECT_THAT(parts.lines.front(), testing::HasSubstr("1020"));
}

TEST(BadJob, NamesModelFilesThatCannotBeRead) {
  EXPECT_THAT(read_text(replaced(kGpt3Job, "gpt3-175b", "no/such/config.json")).lines,
              ElementsAre(testing::HasSubstr("no/such/config.json")));
  const std::string folder = source_dir() + "/tests/plan/models";
  EXPECT_THAT(read_text(replaced(kGpt3Job, "gpt3-175b", folder + "/")).lines, testing::SizeIs(1));
  const std::string job = source_dir() + "/tests/plan/jobs/zb-h2.json";  // a job is no model
  EXPECT_THAT(read_text(replaced(kGpt3Job, "gpt3-175b", job)).lines,
              testing::Contains(testing::HasSubstr("zb-h2.json: /hidden_size: missing")));
}

TEST(BadJob, ReportsEverythingAtOnce) {
  EXPECT_THAT(read_text(R"({"model": "gpt3-175b", "cluster": {"topology": "dgx-a100", "nodes": 0},
                            "precison": "bf16", "sequence_length": -1, "global_batch": 1536,
                            "plan": {"tp": 7, "recompute": "some", "micro_batch": 0}})")
                  .lines,
              testing::SizeIs(7));
}

TEST(BadJob, DoesNotBlameWhatFollowsFromAnotherFault) {
  // tp is wrong: nothing is said of GPUs, batch or stages.
  expect_faults(
      {{R"("tp": 8)",
        R"("tp": 0)",
        {"job.json: /plan/tp: 0 is not allowed; expected an integer from 1 up to 1048576"}}});
}

TEST(BadJob, NamesTheOptionAtFault) {
  EXPECT_THAT(read_text(kGpt3Job, {{"plan.tp", "0", "--tp"}}).lines,
              ElementsAre("--tp: 0 is not allowed; expected an integer from 1 up to 1048576"));
  EXPECT_THAT(read_text(kGpt3Job, {{"plan.tpp", "2", "--vary"}}).lines,
              ElementsAre(testing::HasSubstr("--vary: unknown key \"tpp\"")));
  EXPECT_THAT(
      read_text(kGpt3Job, {{"model.hidden_size", "2", "--vary"}}).lines,
      ElementsAre("--vary: \"model.hidden_size\" leads into \"gpt3-175b\", which is no object"));
  EXPECT_THAT(
      read_text(kGpt3Job, {{"cluster.links.nic.bandwidth", "100", "--nic"}}).lines,
      ElementsAre(testing::HasSubstr("--nic: \"100\" is not a bandwidth: the unit is missing")));
  // A fault between the file and an option is said of the key that holds it.
  EXPECT_THAT(
      read_text(kGpt3Job, {{"plan.dp", "3", "--dp"}}).lines,
      ElementsAre("--dp: 3 is not what remains: 1024 GPUs / (tp 8 x cp 1 x pp 16 = 128) = 8"));
}

TEST(BadJob, NamesThePlaceInsideALargerFile) {
  const JsonNode file = JsonNode::parse_text(
      "{\"runs\": [{\"job\": " + replaced(kGpt3Job, "\"tp\": 8", "\"tp\": 0") + "}]}", "runs.json");
  const JsonNode job = *file.find("runs")->elements().front().find("job");
  for (const std::vector<JobOverride>& overrides :
       {std::vector<JobOverride>{},
        std::vector<JobOverride>{{"global_batch", "1536", "--global-batch"}}}) {
    Problems problems;
    read_job(job, overrides, problems);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems.list().front().pointer, "/runs/0/job/plan/tp");
  }
}

TEST(BadJob, RefusesRangesThatAreNone) {
  EXPECT_THAT(read_text(replaced(kGpt3Job, R"("tp": 8)", R"("tp": {"min": 8})")).lines,
              testing::Contains(testing::HasSubstr("/plan/tp/max: missing")));
  EXPECT_THAT(read_text(replaced(kGpt3Job, R"("tp": 8)", R"("tp": {"min": 8, "max": 4})")).lines,
              testing::Contains("job.json: /plan/tp: min is above max"));
  EXPECT_THAT(read_text(replaced(kGpt3Job, R"("tp": 8)", R"("tp": [])")).lines,
              testing::Contains("job.json: /plan/tp: [] leaves nothing to choose from"));
}

TEST(BadJob, SurvivesTruncatedFiles) {
  const std::string whole = kGpt3Job;
  for (std::size_t length = 0; length + 1 < whole.size(); length += 7) {
    const Said said = read_text(whole.substr(0, length));
    EXPECT_FALSE(said.lines.empty()) << length;
    EXPECT_FALSE(said.reading.job.has_value()) << length;
  }
}

TEST(BadJob, OfEightBitsSaysWhatTheyNeed) {
  expect_faults({
      {R"("precision": "bf16")",
       R"("precision": "fp8-delayed")",
       {"job.json: /precision: fp8-delayed needs a GPU of compute capability 8.9 or more; "
        "a100-sxm-80gb has 8.0"}},
      {R"("tp": 8)",
       R"("param_gather_dtype": "fp8", "dp_kind": "distributed_optimizer", "tp": 8)",
       {"job.json: /plan/param_gather_dtype: fp8 parameters need a precision of 8 bits; it is "
        "bf16"}},
  });
  const auto on_h100 = [](const char* precision, const char* length) {
    std::string text = replaced(kGpt3Job, R"("dgx-a100", "nodes": 128, "profile": "a100-sxm-80gb")",
                                R"("dgx-h100", "nodes": 128)");
    text = replaced(text, R"("bf16")", precision);
    return read_text(replaced(text, "2048", length)).lines;
  };
  EXPECT_THAT(on_h100(R"("fp8-block")", "2048"), ElementsAre());
  EXPECT_THAT(on_h100(R"("fp8-block")", "1536"),
              ElementsAre("job.json: /precision: fp8-block needs multiples of 128; a rank has 192 "
                          "tokens of a micro-batch"));
  EXPECT_THAT(on_h100(R"("mxfp8")", "2048"),
              ElementsAre("job.json: /precision: mxfp8 needs a GPU of compute capability 10.0 or "
                          "more; h100-sxm has 9.0"));
}

}  // namespace
}  // namespace headway
