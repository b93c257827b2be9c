#include <gmock/gmock.h>

#include "tests/commands/command_line.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using ImportCommand = InFolder;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
  "vocab_size": 128256, "hidden_act": "silu", "tie_word_embeddings": false,
  "rms_norm_eps": 1e-05, "model_type": "llama"})";

TEST_F(ImportCommand, TurnsAHuggingFaceFileIntoAModelThatSimulates) {
  const std::string config = file("config.json", kConfig);
  const Ran ran = run({"import", "hf", config});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, AllOf(StartsWith("{"), HasSubstr("\"hidden_size\": 4096")));
  EXPECT_THAT(ran.err, HasSubstr("note: " + config + ": /rms_norm_eps does not matter"));
  EXPECT_EQ(run({"import", "hf", config, "-o", path("model.json")}).out, "");
  EXPECT_EQ(read_file(path("model.json")), ran.out);

  const std::string job = file(
      "job.json", R"({"model": )" + ran.out + R"(, "cluster": {"topology": "dgx-h100", "gpus": 8},
           "sequence_length": 4096, "global_batch": 8, "plan": {"tp": 8}})");
  EXPECT_EQ(run({"simulate", job}).exit_code, kAnswered);
}

TEST_F(ImportCommand, TurnsALaunchScriptIntoAJobThatOptionsComplete) {
  const std::string script =
      file("run.sh",
           "torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py "
           "--num-layers 4 --hidden-size 512 --num-attention-heads 8 "
           "--seq-length 1024 --global-batch-size 16 --bf16 --lr 1e-4 "
           "--tensor-model-parallel-size 2 --attention-backend flash --spec x");
  const Ran ran = run({"import", "megatron", script, "--cluster", "dgx-a100", "--set",
                       "model.vocab_size=50304", "-o", path("job.json")});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("is not imported: --spec"), HasSubstr("ignored: --lr")));
  EXPECT_EQ(run({"simulate", path("job.json")}).exit_code, kAnswered);
  EXPECT_THAT(run({"export", "megatron", path("job.json")}).out,
              HasSubstr("--tensor-model-parallel-size 2 "));
  // What nobody states is named, and the job is not yet one.
  const Ran lacking = run({"import", "megatron", script, "-o", path("job.json")});
  EXPECT_THAT(lacking.err, HasSubstr("does not state model.vocab_size; options fill it"));
  EXPECT_EQ(run({"simulate", path("job.json")}).exit_code, kBadInput);
}

TEST_F(ImportCommand, RefusesABrokenFile) {
  const std::string config = file("config.json", with(kConfig, "4096", "-4096"));
  const Ran ran = run({"import", "hf", config, "-o", path("model.json")});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_THAT(ran.out, IsEmpty());
  EXPECT_THAT(ran.err, StartsWith("headway: " + config + ": /hidden_size: -4096"));
  EXPECT_FALSE(std::filesystem::exists(path("model.json")));
  EXPECT_EQ(run({"import", "megatron", config}).exit_code, kBadInput);
}

}  // namespace
}  // namespace headway
