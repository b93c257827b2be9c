#include "sim/formats/job_draft.hpp"

#include <gmock/gmock.h>

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(JobDraft, NestsKeysAndListsWhatIsMissing) {
  JobDraft draft;
  draft.set("plan.tp", std::int64_t{8});
  draft.set("plan.moe.kind", "megatron");
  draft.set("model.hidden_size", std::int64_t{64});
  draft.set("precision", "bf16");
  draft.ignore("--lr");
  draft.lose("--spec");
  EXPECT_EQ(draft.json(),
            "{\n"
            "  \"model\": {\n"
            "    \"hidden_size\": 64\n"
            "  },\n"
            "  \"precision\": \"bf16\",\n"
            "  \"plan\": {\n"
            "    \"tp\": 8,\n"
            "    \"moe\": {\n"
            "      \"kind\": \"megatron\"\n"
            "    }\n"
            "  },\n"
            "  \"missing\": [\n"
            "    \"model.num_hidden_layers\",\n"
            "    \"model.num_attention_heads\",\n"
            "    \"model.intermediate_size\",\n"
            "    \"model.vocab_size\",\n"
            "    \"cluster.topology\",\n"
            "    \"cluster.gpus\",\n"
            "    \"sequence_length\",\n"
            "    \"global_batch\"\n"
            "  ],\n"
            "  \"not_imported\": [\n"
            "    \"--spec\"\n"
            "  ],\n"
            "  \"ignored\": [\n"
            "    \"--lr\"\n"
            "  ]\n"
            "}\n");
}

TEST(JobDraft, TakesValuesAsOnACommandLine) {
  JobDraft draft;
  draft.set("model.hidden_size", std::int64_t{64});
  draft.set_text("model", "llama3-8b");
  draft.set_text("cluster.topology", "dgx-h100");
  draft.set_text("cluster.gpus", "64");
  draft.set_text("global_batch", "128");
  EXPECT_EQ(draft.text("cluster.gpus"), "64");
  EXPECT_EQ(draft.text("model"), "\"llama3-8b\"");
  EXPECT_FALSE(draft.has("model.hidden_size"));  // the preset replaces the sizes
  EXPECT_THAT(draft.missing(), IsEmpty());
}

}  // namespace
}  // namespace headway
