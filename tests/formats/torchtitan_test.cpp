#include "sim/formats/torchtitan.hpp"

#include <gmock/gmock.h>

#include "tests/formats/imported_job.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::HasSubstr;

JobDraft import_text(const std::string& text) { return import_torchtitan(text, "train.toml"); }

struct Row {
  std::string toml, key, value;
};

class TorchtitanKey : public testing::TestWithParam<Row> {};

TEST_P(TorchtitanKey, SaysThisInOurPlan) {
  const auto& [toml, key, value] = GetParam();
  EXPECT_EQ(import_text(toml).text(key), value) << toml;
}

INSTANTIATE_TEST_SUITE_P(
    Torchtitan, TorchtitanKey,
    testing::Values(
        Row{"model = {name = 'llama3', flavor = '405B'}", "model", "\"llama3-405b\""},
        Row{"model = {name = 'llama3', flavor = '9B'}", "model", ""},
        Row{"[parallelism]\ntensor_parallel_degree = 8", "plan.tp", "8"},
        Row{"[parallelism]\ntensor_parallel_degree = 8", "plan.sequence_parallel", "true"},
        Row{"[training]\ntensor_parallel_degree = 2", "plan.tp", "2"},
        Row{"[parallelism]\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true",
            "plan.tp_overlap", "\"ring\""},
        Row{"[experimental]\ncontext_parallel_degree = 4", "plan.cp_kind", "\"allgather\""},
        Row{"[parallelism]\ncontext_parallel_degree = 4\n"
            "context_parallel_rotate_method = 'alltoall'",
            "plan.cp_kind", "\"ring\""},
        Row{"[parallelism]\npipeline_parallel_degree = 4\n"
            "pipeline_parallel_schedule = 'Interleaved1F1B'",
            "plan.schedule", "\"interleaved\""},
        Row{"[parallelism]\npipeline_parallel_degree = 4\n"
            "pipeline_parallel_schedule = 'Interleaved1F1B'",
            "plan.vpp", "2"},
        // 80 layers and two ends fill 28 virtual stages of 3.
        Row{"model = {name = 'llama3', flavor = '70B'}\n[parallelism]\n"
            "pipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
            "pipeline_parallel_layers_per_stage = 3",
            "plan.vpp", "7"},
        Row{"[training]\nenable_cpu_offload = true", "plan.offload",
            "[\"optimizer\",\"parameters\"]"},
        Row{"[parallelism]\npipeline_parallel_degree = 4\n"
            "pipeline_parallel_microbatch_size = 2",
            "plan.micro_batch", "2"},
        Row{"[training]\nlocal_batch_size = 3", "plan.micro_batch", "3"},
        Row{"[training]\nglobal_batch_size = 64", "global_batch", "64"},
        Row{"[training]\nseq_len = 8192", "sequence_length", "8192"},
        Row{"", "plan.dp_kind", "\"fsdp\""},
        Row{"[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1",
            "plan.dp_kind", "\"ddp\""},
        Row{"[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8",
            "plan.shard", "8"},
        Row{"[parallelism]\nfsdp_reshard_after_forward = 'never'", "plan.reshard_after_forward",
            "false"},
        Row{"[parallelism]\npipeline_parallel_degree = 2", "plan.reshard_after_forward", "false"},
        Row{"[activation_checkpoint]\nmode = 'full'", "plan.recompute", "\"full\""},
        Row{"[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'",
            "plan.recompute", "\"selective\""},
        Row{"[model]\nconverters = ['float8']", "precision", "\"fp8-current\""},
        Row{"[float8]\nenable_float8_linear = true", "precision", "\"fp8-current\""},
        Row{"[compile]\nenable = true", "software.compile", "true"},
        Row{"[training]\nmixed_precision_param = 'float32'", "precision", "\"fp32\""}));

TEST(Torchtitan, IgnoresWhatDoesNotMatterAndTellsWhatIsLost) {
  const JobDraft draft = import_text(
      "[job]\ndescription = 'x'\n[optimizer]\nlr = 8e-5\n[activation_checkpoint]\n"
      "mode = 'selective'\nselective_ac_option = '2'\n");
  EXPECT_THAT(draft.ignored(), Contains("optimizer.lr"));
  EXPECT_THAT(draft.lost(), Contains(HasSubstr("selective_ac_option \"2\"")));
  EXPECT_THAT(draft.missing(), Contains("model"));
}

TEST(Torchtitan, ReportsProblemsWithTheirPlace) {
  try {
    import_text("[parallelism]\ntensor_parallel_degree = 'x'\ntensor_paralel = 1\n");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.toml: /parallelism/tensor_parallel_degree: \"x\""));
    EXPECT_THAT(error.what(), HasSubstr("/parallelism/tensor_paralel: no key of torchtitan"));
  }
  EXPECT_THROW(import_text("[parallelism\n"), InvalidInput);
}

TEST(Torchtitan, RoundsPlansItCanExpressThroughItsFile) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    RandomPlan random(seed);
    random.set("model", "llama3-8b");
    random.set("software.framework", "torchtitan");
    const std::string kind = random.one_of(std::vector<std::string>{"fsdp", "hsdp", "ddp"});
    random.set("plan.dp_kind", kind);
    if (kind == "hsdp") random.set("plan.shard", random.one_of(std::vector<std::int64_t>{2, 4}));
    const std::int64_t tp = random.one_of(std::vector<std::int64_t>{1, 2, 4});
    if (kind == "fsdp" && tp == 1 && random.flip())
      random.set("plan.offload", std::vector<std::string>{"optimizer", "parameters"});
    random.set("plan.tp_overlap", random.one_of(std::vector<std::string>{"none", "ring"}));
    random.set("plan.tp", tp);
    random.set("plan.sequence_parallel", true);
    random.set("plan.recompute",
               random.one_of(std::vector<std::string>{"none", "selective", "full"}));
    random.set("plan.reshard_after_forward", random.flip());
    if (kind == "ddp" && random.flip()) {
      random.set("plan.pp", std::int64_t{4});
      const std::string schedule =
          random.one_of(std::vector<std::string>{"1f1b", "gpipe", "interleaved", "looped-bfs"});
      random.set("plan.schedule", schedule);
      // 32 layers and two ends fill 12 virtual stages of 3.
      if (schedule == "interleaved" || schedule == "looped-bfs")
        random.set("plan.vpp", random.one_of(std::vector<std::int64_t>{2, 3}));
    }
    random.choose_batch();
    const Job job = random.job();
    JobDraft back = import_text(export_torchtitan(job, "job"));
    EXPECT_EQ(job_with(random, std::move(back)), resolved(job)) << random.json();
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Torchtitan, RefusesToExportWhatItCannotDo) {
  RandomPlan random(1);
  random.set("plan.dp_kind", "zero1");
  try {
    export_torchtitan(random.job(), "job.json");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("job.json: model: torchtitan has no inline"));
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.dp_kind: torchtitan has no zero1"));
  }
}

}  // namespace
}  // namespace headway
