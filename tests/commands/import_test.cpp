#include <gmock/gmock.h>

#include "tests/commands/command_line.hpp"
#include "tests/support/folders.hpp"

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

// Out, in, and simulated: the file's schedule is the one by its name.
TEST_F(ImportCommand, TurnsASchedulesFileIntoTheOneItIs) {
  const std::string job = R"({"model": "llama2-7b", "cluster": {"topology": "dgx-h100", "gpus": 4},
      "sequence_length": 2048, "global_batch": 8, "plan": {"pp": 4, "schedule": "zb-v"}})";
  const Ran exported = run({"export", "schedule-csv", file("job.json", job)});
  EXPECT_EQ(exported.exit_code, kAnswered) << exported.err;
  const std::string schedule = file("mine.csv", exported.out);
  EXPECT_EQ(run({"import", "schedule-csv", schedule}).out, exported.out);
  const auto step = [&](const std::string& text) {
    const Ran ran = run({"simulate", file("either.json", text)});
    EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
    return ran.out.substr(ran.out.find("step "));
  };
  EXPECT_EQ(step(with(job, "\"zb-v\"", "\"" + schedule + "\"")),
            step(with(job, "\"zb-v\"", "\"zb-v\", \"synchronous_optimizer\": true")));
}

TEST_F(ImportCommand, NamesTheStepOfAScheduleThatSkipsOrDeadlocks) {
  const std::string skipping = file("skips.csv", "0F0,0B0\n1F0\n");
  const Ran skipped = run({"import", "schedule-csv", skipping});
  EXPECT_EQ(skipped.exit_code, kBadInput);
  EXPECT_THAT(skipped.err, HasSubstr(skipping + ": row 2: 1B0 is missing"));
  const std::string stuck = file("stuck.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const Ran deadlocked = run({"import", "schedule-csv", stuck});
  EXPECT_EQ(deadlocked.exit_code, kCheckFailed);
  EXPECT_THAT(deadlocked.err, HasSubstr("row 1, cell 2: deadlock: 0B0 waits for 1B0"));
  const std::string job = file("job.json", R"({"model": "llama2-7b",
      "cluster": {"topology": "dgx-h100", "gpus": 2}, "sequence_length": 2048, "global_batch": 2,
      "plan": {"pp": 2, "schedule": ")" + stuck +
                                               "\"}}");
  const Ran simulated = run({"simulate", job});
  EXPECT_EQ(simulated.exit_code, kCheckFailed);
  EXPECT_THAT(simulated.err, HasSubstr("row 1, cell 2: deadlock: 0B0 waits for 1B0"));
  const std::string other = with(read_file(job), "\"gpus\": 2", "\"gpus\": 4");
  EXPECT_THAT(run({"simulate", file("job.json", with(other, "\"pp\": 2", "\"pp\": 4"))}).err,
              HasSubstr("is written for 2 pipeline ranks, not 4"));
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

TEST_F(ImportCommand, TurnsNvidiaSmisMatrixIntoATopologyThatOptionsFill) {
  const std::string matrix = file("topo.txt",
                                  "\tGPU0\tGPU1\tNIC0\n"
                                  "GPU0\tX\tNV12\tPXB\n"
                                  "GPU1\tNV12\tX\tPXB\n"
                                  "NIC0\tPXB\tPXB\tX\n");
  const Ran bare = run({"import", "nvidia-smi", matrix});
  EXPECT_EQ(bare.exit_code, kAnswered);
  EXPECT_THAT(bare.err, AllOf(HasSubstr("note: " + matrix + " does not state profiles;"),
                              HasSubstr("does not state node.nics.bandwidth;")));
  const Ran filled = run({"import", "nvidia-smi", matrix, "--profile", "a100-sxm-80gb", "--nic",
                          "200 Gbit/s", "-o", path("topology.json")});
  EXPECT_EQ(filled.exit_code, kAnswered) << filled.err;
  EXPECT_THAT(filled.err, HasSubstr("does not state node.cpu.vendor;"));
  EXPECT_THAT(run({"import", "nvidia-smi", matrix, "--tp", "2"}).err,
              StartsWith("headway: --tp: a topology has no such key"));
}

TEST_F(ImportCommand, TurnsNcclsTopologyIntoOneThatPassesItsCheck) {
  const std::string xml = source_dir() + "/tests/formats/topologies/ibm-h100.xml";
  EXPECT_EQ(run({"import", "nccl-topo", xml, "-o", path("node.json")}).exit_code, kAnswered);
  EXPECT_EQ(run({"topology", path("node.json"), "--check"}).out,
            path("node.json") + ": no problems\n");
}

}  // namespace
}  // namespace headway
