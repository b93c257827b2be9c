#include "sim/plan/software.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/job_text.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

TEST(Software, HasEveryFrameworkThatAJobMayName) {
  std::vector<std::string> names;
  for (const FrameworkName& name : framework_presets()) {
    names.push_back(name.name);
    EXPECT_FALSE(name.summary.empty()) << name.name;
    EXPECT_FALSE(name.source.empty()) << name.name;
  }
  EXPECT_THAT(names,
              ElementsAre("aa-scaling", "deepspeed", "dfa", "fms-fsdp", "headway", "headway-cpu",
                          "internevo", "llm-foundry", "megatron-2021", "megatron-2022",
                          "megatron-2023", "megatron-2024", "megatron-core", "megatron-deepspeed",
                          "megatron-deepspeed-2022", "torchtitan", "xtuner"));
  EXPECT_FALSE(framework_preset("megatron").has_value());
}

// The plan defaults of every preset are keys and values of a plan.
TEST(Software, GivesPlansThatAJobCanHave) {
  for (const FrameworkName& name : framework_presets()) {
    // Without a pipeline, which some of their kinds of data parallelism do not know.
    const Said said = read_text(
        kGpt3Job, {{"software.framework", name.name, "--framework"}, {"plan.pp", "1", "--pp"}});
    for (const std::string& line : said.lines)
      EXPECT_THAT(line, StartsWith("not built: ")) << name.name;
  }
}

// The largest difference between Megatron's versions is how gradients are accumulated: 6, 2, 6 and
// 10 bytes per parameter and micro-batch.
TEST(Software, TellsTheMegatronErasApart) {
  EXPECT_EQ(framework_preset("megatron-2021")->accumulation, GradientAccumulation::kSameType);
  EXPECT_FALSE(framework_preset("megatron-2021")->overlap_tp_input_gradient);
  EXPECT_TRUE(framework_preset("megatron-2022")->overlap_tp_input_gradient);
  EXPECT_EQ(framework_preset("megatron-2022")->accumulation, GradientAccumulation::kFused);
  EXPECT_EQ(framework_preset("megatron-2023")->accumulation, GradientAccumulation::kSameType);
  EXPECT_EQ(framework_preset("megatron-2024")->accumulation, GradientAccumulation::kMainGradient);
  EXPECT_EQ(framework_preset("megatron-2021")->attention, AttentionKernel::kUnfused);
  EXPECT_EQ(framework_preset("megatron-core")->attention, AttentionKernel::kCudnn);
  EXPECT_TRUE(framework_preset("aa-scaling")->gathered_logits);
  EXPECT_FALSE(framework_preset("megatron-deepspeed-2022")->pad_vocabulary_at_tp1);
}

TEST(Software, KeepsTheSourceOfEachValueOnceThroughExtensions) {
  const Software preset = *framework_preset("megatron-2021");
  int accumulation = 0;
  for (const std::string& note : preset.notes)
    accumulation += note.starts_with("accumulation ") ? 1 : 0;
  EXPECT_EQ(accumulation, 1);
  EXPECT_THAT(preset.notes, Contains(StartsWith("accumulation \"same-type\": ")));
  EXPECT_THAT(preset.notes, Contains(StartsWith("vocabulary_multiple 128: ")));
}

}  // namespace
}  // namespace headway
