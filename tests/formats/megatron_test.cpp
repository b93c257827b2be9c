#include "sim/formats/megatron.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "sim/core/file.hpp"
#include "tests/formats/imported_job.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kSmallModel =
    "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 --vocab-size 50304 "
    "--seq-length 2048 --max-position-embeddings 2048 ";

JobDraft import_text(const std::string& text) { return import_megatron(text, "run.sh"); }

// One row of "what Megatron-LM calls it -> our plan".
struct Row {
  std::string arguments, key, value;
};

class MegatronArgument : public testing::TestWithParam<Row> {};

TEST_P(MegatronArgument, SaysThisInOurPlan) {
  const auto& [arguments, key, value] = GetParam();
  EXPECT_EQ(import_text(kSmallModel + arguments).text(key), value) << arguments;
}

INSTANTIATE_TEST_SUITE_P(
    Megatron, MegatronArgument,
    testing::Values(
        Row{"--swiglu", "model.gated_mlp", "true"}, Row{"--swiglu", "model.hidden_act", "\"silu\""},
        Row{"--swiglu", "model.intermediate_size", "2688"},  // 2/3 of 4 h, a multiple of 64
        Row{"", "model.intermediate_size", "4096"}, Row{"", "model.gated_mlp", "false"},
        Row{"--group-query-attention --num-query-groups 4", "model.num_key_value_heads", "4"},
        Row{"--normalization RMSNorm", "model.norm", "\"rmsnorm\""},
        Row{"", "model.tie_word_embeddings", "true"},
        Row{"--untie-embeddings-and-output-weights", "model.tie_word_embeddings", "false"},
        Row{"", "model.position_embedding", "\"learned\""},
        Row{"--position-embedding-type rope", "model.position_embedding", "\"rope\""},
        Row{"--use-rotary-position-embeddings", "model.position_embedding", "\"rope\""},
        Row{"--bf16", "precision", "\"bf16\""}, Row{"", "precision", "\"fp32\""},
        Row{"--bf16 --fp8-format hybrid", "precision", "\"fp8-delayed\""},
        Row{"--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "precision", "\"fp8-block\""},
        Row{"--bf16 --fp8-format e4m3 --fp8-recipe tensorwise", "precision", "\"fp8-current\""},
        Row{"--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "precision", "\"mxfp8\""},
        Row{"--bf16 --fp4-format e2m1", "precision", "\"nvfp4\""},
        Row{"--bf16 --fp8-param-gather", "plan.param_gather_dtype", "\"fp8\""},
        Row{"--bf16", "plan.grad_dtype", "\"fp32\""},
        Row{"--bf16 --grad-reduce-in-bf16", "plan.grad_dtype", "\"bf16\""},
        Row{"--fp16", "plan.grad_dtype", "\"fp16\""},
        Row{"--fp16 --accumulate-allreduce-grads-in-fp32", "plan.grad_dtype", "\"fp32\""},
        Row{"--use-flash-attn", "software.attention", "\"flash2\""},
        Row{"--attention-backend fused", "software.attention", "\"cudnn\""},
        Row{"--attention-backend auto", "software.attention", ""},
        Row{"--no-masked-softmax-fusion", "software.fused_kernels", "false"},
        Row{"--cross-entropy-loss-fusion", "software.fused_loss", "true"},
        Row{"--enable-cuda-graph", "software.launch", "\"cuda_graph\""},
        Row{"--sequence-parallel", "plan.sequence_parallel", "true"},
        Row{"", "plan.sequence_parallel", "false"},
        Row{"--tp-comm-overlap", "plan.tp_overlap", "\"ring\""},
        Row{"--pipeline-model-parallel-size 4", "plan.schedule", "\"1f1b\""},
        Row{"--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            "plan.vpp", "2"},
        Row{"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            "plan.schedule", "\"interleaved\""},
        Row{"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            "plan.overlap_p2p", "true"},
        Row{"--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
            "--decoder-last-pipeline-num-layers 4",
            "plan.stage_layers", "[2,5,5,4]"},
        Row{"--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split",
            "plan.stage_layers", "[8,8]"},
        Row{"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*7|t*9L'",
            "plan.stage_layers", "[7,9]"},
        Row{"--use-tp-pp-dp-mapping", "plan.order", "\"tp-cp-ep-pp-dp\""},
        Row{"", "plan.dp_kind", "\"ddp\""},
        Row{"--use-distributed-optimizer", "plan.dp_kind", "\"distributed_optimizer\""},
        Row{"--use-torch-fsdp2", "plan.dp_kind", "\"fsdp\""},
        Row{"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "plan.dp_kind",
            "\"zero2\""},
        Row{"--deepspeed --zero-stage 3", "plan.dp_kind", "\"zero3\""},
        Row{"--overlap-grad-reduce", "plan.overlap_grad_reduce", "true"},
        Row{"", "plan.overlap_param_gather", "false"},
        Row{"--context-parallel-size 2", "plan.cp_kind", "\"ring\""},
        Row{"--context-parallel-size 2 --cp-comm-type a2a", "plan.cp_kind", "\"ulysses\""},
        Row{"--context-parallel-size 8 --cp-comm-type a2a+p2p "
            "--hierarchical-context-parallel-sizes 4 2",
            "plan.ulysses_degree", "4"},
        Row{"--recompute-activations", "plan.recompute", "\"selective\""},
        Row{"--recompute-granularity full --recompute-method block --recompute-num-layers 3",
            "plan.recompute_layers", "3"},
        Row{"--recompute-granularity selective --recompute-modules core_attn mlp",
            "plan.recompute_modules", "[\"core_attn\",\"mlp\"]"},
        Row{"--optimizer adam", "plan.optimizer", "\"adamw\""},
        Row{"--optimizer-cpu-offload", "plan.offload", "[\"optimizer\"]"},
        Row{"--num-experts 8 --moe-layer-freq ([0]*3+[1]*13)", "model.first_k_dense_replace", "3"},
        Row{"--num-experts 8 --moe-layer-freq 2", "model.moe_layer_freq", "2"},
        Row{"--num-experts 8", "plan.moe.dispatch", "\"allgather\""},
        Row{"--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep",
            "plan.moe.dispatch", "\"deepep\""},
        Row{"--num-experts 8 --moe-expert-capacity-factor 1.5", "plan.moe.capacity_factor", "1.5"},
        Row{"--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend "
            "hybridep",
            "plan.moe.dispatch", "\"hybridep\""},
        Row{"--num-experts 8 --moe-router-load-balancing-type none", "plan.moe.aux_loss", "false"},
        Row{"--num-experts 8 --moe-shared-expert-overlap", "plan.moe.shared_overlap", "true"},
        Row{"--num-experts 8 --overlap-moe-expert-parallel-comm", "plan.moe.overlap", "true"},
        Row{"--window-size 4095,0", "model.sliding_window", "4096"},
        Row{"--window-size (127,0)", "model.sliding_window", "128"},
        Row{"--mtp-num-layers 1", "model.num_nextn_predict_layers", "1"},
        Row{"--multi-latent-attention --kv-lora-rank 512", "model.kv_lora_rank", "512"}));

TEST(Megatron, TakesEveryCountOfItsTable) {
  for (const FlagMeaning& row : megatron_counts()) {
    EXPECT_EQ(import_text(row.flag + " 6").text(row.key), "6") << row.flag;
  }
}

TEST(Megatron, ListsWhatIsIgnoredAndWhatIsLost) {
  const JobDraft draft =
      import_text(std::string(kSmallModel) + "--lr 1e-4 --data-path a b --bf16 --qk-layernorm");
  EXPECT_THAT(draft.ignored(), Contains("--lr"));
  EXPECT_THAT(draft.ignored(), Contains("--data-path"));
  EXPECT_THAT(draft.lost(), Contains("--qk-layernorm"));
  EXPECT_THAT(draft.missing(), Contains("cluster.topology"));
}

TEST(Megatron, CountsTheGpusOfTheLauncher) {
  const std::string script =
      "torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py --bf16 --global-batch-size 64";
  EXPECT_EQ(import_text(script).text("cluster.gpus"), "128");
  EXPECT_EQ(import_text("torchrun --nproc-per-node 4 --nnodes $1 p.py --bf16").text("cluster.gpus"),
            "");
}

TEST(Megatron, ReadsYaml) {
  const JobDraft recipe = import_megatron(
      "ENV_VARS:\n  NCCL_ALGO: Ring\nMODEL_ARGS:\n  --tensor-model-parallel-size: 4\n"
      "  --sequence-parallel: true\n  --use-distributed-optimizer: false\n  --bf16: true\n",
      "model_config.yaml");
  EXPECT_EQ(recipe.text("plan.tp"), "4");
  EXPECT_EQ(recipe.text("plan.sequence_parallel"), "true");
  EXPECT_EQ(recipe.text("plan.dp_kind"), "\"ddp\"");
  const JobDraft nested = import_megatron(
      "model_parallel:\n  tensor_model_parallel_size: 2\nlanguage_model:\n  num_layers: 4\n",
      "a.yml");
  EXPECT_EQ(nested.text("plan.tp"), "2");
  EXPECT_EQ(nested.text("model.num_hidden_layers"), "4");
}

TEST(Megatron, ReportsEveryProblemWithItsFlag) {
  try {
    import_text(
        "--num-layers 16 --tensor-model-parallel-size eight --pipeline-model-parallel-size 0 "
        "--overlap-grad-reduc --micro-batch-size $MBS --recompute-granularity all "
        "--global-batch-size");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.problems(), SizeIs(6));
    EXPECT_THAT(error.what(), HasSubstr("run.sh: --tensor-model-parallel-size: \"eight\" is not"));
    EXPECT_THAT(error.what(), HasSubstr("--pipeline-model-parallel-size: \"0\" is not allowed"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean --overlap-grad-reduce?"));
    EXPECT_THAT(error.what(), HasSubstr("--micro-batch-size: $MBS is set outside the file"));
    EXPECT_THAT(error.what(), HasSubstr("--recompute-granularity: \"all\" is not allowed"));
    EXPECT_THAT(error.what(), HasSubstr("--global-batch-size: has no value"));
  }
  EXPECT_THROW(import_megatron("- a\n- b\n", "x.yaml"), InvalidInput);
  EXPECT_THROW(import_megatron("a: [1", "x.yaml"), InvalidInput);
}

// Arguments of scripts that people published; each file names its source.
TEST(Megatron, ImportsPublishedLaunchScriptsWithoutAnUnknownFlag) {
  int scripts = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/tests/formats/launch_scripts")) {
    const std::string path = entry.path().string();
    try {
      const JobDraft draft = import_megatron(read_file(path), path);
      EXPECT_TRUE(draft.has("model.num_hidden_layers")) << path;
    } catch (const InvalidInput& error) {
      ADD_FAILURE() << error.what();
    }
    ++scripts;
  }
  EXPECT_GE(scripts, 30);
}

TEST(Megatron, RoundsPlansItCanExpressThroughItsArguments) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    RandomPlan random(seed);
    random.set("software.framework", "megatron-core");
    random.set("precision", random.one_of(std::vector<std::string>{"bf16", "fp16", "fp32"}));
    random.set("plan.tp", random.one_of(std::vector<std::int64_t>{1, 2, 4}));
    random.set("plan.sequence_parallel", random.flip());
    if (random.flip()) {
      random.set("plan.sequence_parallel", true);
      random.set("plan.tp_overlap", "ring");
    }
    random.set("plan.dp_kind",
               random.one_of(std::vector<std::string>{"ddp", "distributed_optimizer"}));
    random.set("plan.overlap_grad_reduce", random.flip());
    random.set("plan.overlap_param_gather", random.flip());
    random.set("plan.recompute",
               random.one_of(std::vector<std::string>{"none", "selective", "full"}));
    random.set("plan.optimizer", random.one_of(std::vector<std::string>{"adamw", "sgd"}));
    random.set("plan.order",
               random.one_of(std::vector<std::string>{"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}));
    const std::int64_t shape = random.one_of(std::vector<std::int64_t>{0, 1, 2, 3});
    if (shape > 0) random.set("plan.pp", std::int64_t{4});
    if (shape == 2) {
      random.set("plan.schedule", "interleaved");
      random.set("plan.vpp", std::int64_t{2});
      random.set("plan.overlap_p2p", random.flip());
    } else {
      random.set("plan.overlap_p2p", false);
    }
    if (shape == 3) random.set("plan.stage_layers", std::vector<std::int64_t>{3, 5, 5, 3});
    random.choose_batch();
    const Job job = random.job();
    JobDraft back = import_text(export_megatron(job, "job"));
    EXPECT_EQ(job_with(random, std::move(back)), resolved(job)) << random.json();
    if (testing::Test::HasFailure()) break;  // one example is enough to read
  }
}

TEST(Megatron, RoundsExpertsThroughItsArguments) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    RandomPlan random(seed);
    random.set("software.framework", "megatron-core");
    random.set("precision", "bf16");
    random.set("model.gated_mlp", true);  // experts have no biases
    random.set("model.num_experts", std::int64_t{8});
    random.set("model.num_experts_per_tok", random.one_of(std::vector<std::int64_t>{1, 2}));
    random.set("model.moe_intermediate_size", std::int64_t{2048});
    if (random.flip()) random.set("model.shared_expert_intermediate_size", std::int64_t{1024});
    if (random.flip()) {
      random.set("model.first_k_dense_replace", random.one_of(std::vector<std::int64_t>{1, 3}));
    } else {
      random.set("model.moe_layer_freq", random.one_of(std::vector<std::int64_t>{1, 2}));
    }
    const std::int64_t tp = random.one_of(std::vector<std::int64_t>{1, 2, 4});
    random.set("plan.tp", tp);
    random.set("plan.sequence_parallel", true);
    random.set("plan.ep", random.one_of(std::vector<std::int64_t>{1, 2, 4}));
    random.set("plan.etp", random.flip() ? tp : std::int64_t{1});
    if (random.flip()) {
      random.set("plan.moe.capacity_factor", random.one_of(std::vector<std::int64_t>{1, 2}));
      random.set("plan.moe.drop", true);
    }
    random.set("plan.moe.aux_loss", random.flip());
    if (random.flip()) random.set("plan.pp", std::int64_t{2});
    random.set("plan.dp_kind",
               random.one_of(std::vector<std::string>{"ddp", "distributed_optimizer"}));
    random.choose_batch();
    const Job job = random.job();
    JobDraft back = import_text(export_megatron(job, "job"));
    EXPECT_EQ(job_with(random, std::move(back)), resolved(job)) << random.json();
    if (testing::Test::HasFailure()) break;
  }
}

// Latent attention of DeepSeek-V2's shape: the model that is read back is the one that was written.
TEST(Megatron, RoundsLatentAttentionThroughItsArguments) {
  RandomPlan random(7);
  random.set("software.framework", "megatron-core");
  random.set("precision", "bf16");
  random.set("model.num_key_value_heads", std::int64_t{16});
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::int64_t>>{{"q_lora_rank", 384},
                                                         {"kv_lora_rank", 128},
                                                         {"qk_nope_head_dim", 64},
                                                         {"qk_rope_head_dim", 32},
                                                         {"v_head_dim", 64}})
    random.set("model." + key, value);
  random.set("model.gated_mlp", true);
  random.choose_batch();
  const Job job = random.job();
  const std::string text = export_megatron(job, "job");
  EXPECT_THAT(text, HasSubstr("--multi-latent-attention"));
  EXPECT_EQ(job_with(random, import_text(text)), resolved(job));
}

TEST(Megatron, RefusesToExportWhatItCannotDo) {
  RandomPlan random(3);
  random.set("plan.pp", std::int64_t{4});
  random.set("plan.schedule", "zb-h1");
  random.set("plan.dp_kind", "zero1");
  random.set("plan.order", "pp-tp-dp");
  try {
    export_megatron(random.job(), "job.json");
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.schedule: Megatron-LM has no zb-h1"));
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.dp_kind: Megatron-LM has no zero1"));
    EXPECT_THAT(error.what(), HasSubstr("job.json: plan.order:"));
  }
}

}  // namespace
}  // namespace headway
