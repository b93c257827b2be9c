#include "sim/formats/deepspeed.hpp"

#include <gmock/gmock.h>

#include "tests/formats/imported_job.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

JobDraft import_text(std::string_view text) {
  return import_deepspeed(JsonNode::parse_text(text, "ds.json"));
}

// The file of a user, verbatim: EP 4, 4 experts a rank, capacity ceil(1.5 x 2 x tokens / 16).
TEST(DeepSpeed, ImportsExpertParallelism) {
  const JobDraft draft = import_text(
      R"({"train_batch_size":1024,"fp16":{"enabled":true},"model_parallel":{"moe":{"enabled":true,"ep_size":4,"num_experts":16,"top_k":2,"capacity_factor":1.5,"moe_param_group":true}}})");
  EXPECT_EQ(draft.text("global_batch"), "1024");
  EXPECT_EQ(draft.text("precision"), "\"fp16\"");
  EXPECT_EQ(draft.text("plan.ep"), "4");
  EXPECT_EQ(draft.text("model.num_experts"), "16");
  EXPECT_EQ(draft.text("model.num_experts_per_tok"), "2");
  EXPECT_EQ(draft.text("plan.moe.kind"), "\"deepspeed\"");
  EXPECT_EQ(draft.text("plan.moe.capacity_factor"), "1.5");
  EXPECT_EQ(draft.text("plan.moe.drop"), "true");
  EXPECT_THAT(draft.ignored(), ElementsAre("model_parallel.moe.moe_param_group"));
}

TEST(DeepSpeed, ImportsBatchesZeroAndOffload) {
  const JobDraft draft = import_text(R"({
    "train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
    "bf16": {"enabled": true}, "gradient_clipping": 1.0, "steps_per_print": 10,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "overlap_comm": "auto",
      "stage3_prefetch_bucket_size": 5e7, "stage3_max_live_parameters": 1e9,
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "none"}}})");
  EXPECT_EQ(draft.text("plan.dp"), "8");
  EXPECT_EQ(draft.text("plan.micro_batch"), "4");
  EXPECT_EQ(draft.text("plan.dp_kind"), "\"zero3\"");
  EXPECT_EQ(draft.text("plan.bucket_elements"), "500000000");
  EXPECT_EQ(draft.text("plan.prefetch"), "50000000");
  EXPECT_EQ(draft.text("plan.optimizer"), "\"adamw\"");
  EXPECT_EQ(draft.text("plan.offload"), "[\"optimizer\"]");
  EXPECT_THAT(draft.lost(), ElementsAre("zero_optimization.stage3_max_live_parameters"));
  EXPECT_THAT(draft.ignored(),
              UnorderedElementsAre("gradient_clipping", "steps_per_print", "optimizer.params",
                                   "zero_optimization.offload_optimizer.pin_memory"));
}

TEST(DeepSpeed, ReportsEveryProblemWithItsPlace) {
  try {
    import_text(R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4,
                    "gradient_accumulation_steps": 1, "zero_optimisation": {"stage": 1},
                    "zero_optimization": {"stage": 4}, "fp16": {"enabled": "yes"}})");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("ds.json: /train_batch_size: 10 is no multiple"));
    EXPECT_THAT(error.what(), HasSubstr("/zero_optimisation"));
    EXPECT_THAT(error.what(), HasSubstr("/zero_optimization/stage: 4"));
    EXPECT_THAT(error.what(), HasSubstr("/fp16/enabled: \"yes\""));
  }
}

TEST(DeepSpeed, RoundsPlansItCanExpressThroughItsFile) {
  const std::vector<std::string> kinds = {"ddp", "zero1", "zero2", "zero3"};
  for (int i = 0; i < 200; ++i) {
    RandomPlan random(static_cast<unsigned>(i));
    random.set("software.framework", "deepspeed");
    const std::string kind = random.one_of(kinds);
    random.set("plan.dp_kind", kind);
    if (kind == "zero3" && random.flip()) {
      random.set("plan.offload", std::vector<std::string>{"optimizer", "parameters"});
    } else if ((kind == "zero2" || kind == "zero3") && random.flip()) {
      random.set("plan.offload", std::vector<std::string>{"optimizer"});
    }
    random.set("precision", random.one_of(std::vector<std::string>{"bf16", "fp16", "fp32"}));
    random.set("plan.optimizer", random.one_of(std::vector<std::string>{"adamw", "sgd"}));
    random.choose_batch();
    const Job job = random.job();
    const JobDraft back = import_text(export_deepspeed(job, "job"));
    EXPECT_EQ(job_with(random, back), resolved(job)) << random.json();
  }
}

TEST(DeepSpeed, RefusesToExportWhatItsFileCannotAsk) {
  RandomPlan random(1);
  random.set("plan.dp_kind", "distributed_optimizer");
  random.set("plan.recompute", "full");
  try {
    export_deepspeed(random.job(), "job.json");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.dp_kind: DeepSpeed has no"));
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.recompute:"));
  }
}

}  // namespace
}  // namespace headway
