// Facts section 2 (Korthikanti et al., arXiv 2205.05198, equations 1-6, table 2 and figure 1;
// Megatron-LM distributed optimizer) against the lowered Program.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sim/price/memory.hpp"
#include "sim/program/lifetime.hpp"
#include "tests/price/lowered_job.hpp"

namespace headway {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;

std::string pass_name(const RankKind& kind, std::size_t issue) {
  return kind.passes[static_cast<std::size_t>(kind.order[issue].pass)].name;
}

bool is_forward(const RankKind& kind, std::size_t issue) {
  const std::string name = pass_name(kind, issue);
  return name.back() == 'F' && name.find('_') == std::string::npos;
}

// The layers whose input is a stage's output: a message on its way, not kept for a backward.
std::set<int> outputs(const RankKind& kind) {
  std::set<int> layers;
  for (std::size_t i = 0; i < kind.order.size(); ++i) {
    if (!is_forward(kind, i)) continue;
    int last = 0;
    for (const Step& step : kind.passes[static_cast<std::size_t>(kind.order[i].pass)].steps) {
      last = std::max(last, step.layer);
    }
    layers.insert(last + 1);
  }
  return layers;
}

// What layers keep for their backward, after each issue: bytes, and layer passes. As the paper
// counts: without norm statistics (8 bytes a token), and without messages and gradients on their
// way.
struct Saved {
  std::vector<std::int64_t> bytes;
  std::vector<int> layers;
};

Saved saved_after_issues(const Program& program, const RankKind& kind) {
  std::vector<std::int64_t> bytes_of(program.buffers.size(), 0);
  std::size_t residual = program.buffers.size(), hidden = program.buffers.size();
  for (std::size_t f = 0; f < program.buffers.size(); ++f) {
    const BufferFamily& family = program.buffers[f];
    if (!family.per_layer || !family.per_micro_batch) continue;
    if (family.name.find("statistics") != std::string::npos) continue;
    if (family.name.find("gradient") != std::string::npos) continue;
    if (family.name.starts_with("pipeline.")) continue;
    bytes_of[f] = family.size().count;
    if (family.name == "attention.residual") residual = f;
    if (family.name == "hidden") hidden = f;
  }
  const Lifetimes events = lifetimes(program, kind);
  const std::set<int> sent = program.grid.axis_size("pp") > 1 ? outputs(kind) : std::set<int>();
  const auto kept = [&](const BufferInstance& buffer) {
    const auto family = static_cast<std::size_t>(buffer.family);
    return family == hidden && sent.contains(buffer.layer) ? 0 : bytes_of[family];
  };
  Saved saved;
  std::int64_t bytes = 0;
  int layers = 0;
  auto allocation = events.allocations.begin();
  auto free = events.frees.begin();
  for (int i = 0; i < static_cast<int>(kind.order.size()); ++i) {
    for (; allocation != events.allocations.end() && allocation->at.issue == i; ++allocation) {
      const auto family = static_cast<std::size_t>(allocation->buffer.family);
      bytes += kept(allocation->buffer);
      layers += family == residual ? 1 : 0;
    }
    for (; free != events.frees.end() && free->at.issue == i; ++free) {
      const auto family = static_cast<std::size_t>(free->buffer.family);
      bytes -= kept(free->buffer);
      layers -= family == residual ? 1 : 0;
    }
    saved.bytes.push_back(bytes);
    saved.layers.push_back(layers);
  }
  return saved;
}

// The most that layers keep between passes, seen after each forward.
std::int64_t most_saved(const Program& program, const RankKind& kind) {
  const Saved saved = saved_after_issues(program, kind);
  std::int64_t most = 0;
  for (std::size_t i = 0; i < saved.bytes.size(); ++i) {
    if (is_forward(kind, i)) most = std::max(most, saved.bytes[i]);
  }
  return most;
}

struct LayerOracle {
  const char* model;
  std::int64_t hidden, heads, micro_batch;
  // MiB a layer: none, TP, TP+SP, TP+selective, TP+SP+selective, full.
  double none, tp, tp_sp, tp_selective, tp_sp_selective, full;
};

// Facts 2.2, "Per-layer MiB".
constexpr LayerOracle kLayerOracles[] = {
    {"22B", 6144, 64, 4, 6752, 1264, 844, 624, 204, 96},
    {"175B", 12288, 96, 1, 2736, 552, 342, 312, 102, 48},
    {"530B", 20480, 128, 1, 3920, 840, 490, 520, 170, 80},
    {"1T", 25600, 160, 1, 4900, 1050, 612.5, 650, 212.5, 100},
};

// MiB that a middle stage of one layer keeps per micro-batch, t = 8 unless said otherwise.
double layer_mib(const LayerOracle& oracle, const std::string& plan, int tp = 8) {
  const Job job =
      gpt_job({oracle.hidden, oracle.heads, 4}, 4 * tp, 4 * oracle.micro_batch,
              R"("schedule": "gpipe", "pp": 4, "micro_batch": )" +
                  std::to_string(oracle.micro_batch) + R"(, "tp": )" + std::to_string(tp) + plan);
  const Program program = lower(job);
  return static_cast<double>(most_saved(program, kind_at(program, 1))) / 4 / kMiB;
}

TEST(ActivationMemory, OfALayerEqualsEquationsOneToSix) {
  for (const LayerOracle& oracle : kLayerOracles) {
    SCOPED_TRACE(oracle.model);
    EXPECT_EQ(layer_mib(oracle, "", 1), oracle.none);
    EXPECT_EQ(layer_mib(oracle, ""), oracle.tp);
    EXPECT_EQ(layer_mib(oracle, R"(, "sequence_parallel": true)"), oracle.tp_sp);
    EXPECT_EQ(layer_mib(oracle, R"(, "recompute": "selective")"), oracle.tp_selective);
    EXPECT_EQ(layer_mib(oracle, R"(, "sequence_parallel": true, "recompute": "selective")"),
              oracle.tp_sp_selective);
    EXPECT_EQ(layer_mib(oracle, R"(, "recompute": "full")"), oracle.full);
  }
}

TEST(ActivationMemory, OfRecomputedPartsIsTheirShareOfEquationOne) {
  // Of the 34 sbh / t with sequence parallelism and core attention recomputed, two norms' outputs
  // are 4, what the MLP keeps within itself (before and behind its activation) 8 + 8.
  const LayerOracle& oracle = kLayerOracles[1];
  const double share = oracle.tp_sp_selective / 34;
  const auto with = [&](const std::string& modules) {
    return layer_mib(oracle, R"(, "sequence_parallel": true, "recompute": "selective",
                              "recompute_modules": [)" +
                                 modules + "]");
  };
  EXPECT_DOUBLE_EQ(with(R"("core_attn")"), 34 * share);
  EXPECT_DOUBLE_EQ(with(R"("core_attn", "layernorm")"), 30 * share);
  EXPECT_DOUBLE_EQ(with(R"("core_attn", "mlp")"), 18 * share);
  EXPECT_DOUBLE_EQ(with(R"("core_attn", "layernorm", "mlp")"), 14 * share);
}

TEST(ActivationMemory, OfWhatIsKeptAddsToTheLayersInput) {
  // Full recomputation keeps 2 sbh; the norms' outputs (their inputs come back) 4 sbh / t more.
  const LayerOracle& oracle = kLayerOracles[1];
  const double sbh = oracle.full / 2;
  EXPECT_DOUBLE_EQ(layer_mib(oracle, R"(, "sequence_parallel": true, "recompute": "full",
                                         "recompute_keep": ["layernorm"])"),
                   (2 + 4) * sbh / 8);
}

struct StageOracle {
  const char* model;
  std::int64_t hidden, heads, layers;
  int pp, vpp;
  double tp, tp_sp_selective;  // GiB
};

// Facts 2.2, "Oracles": first-stage activations of figure 1.
constexpr StageOracle kStageOracles[] = {
    {"175B", 12288, 96, 96, 8, 3, 66.84375, 12.3515625},
    {"530B", 20480, 128, 105, 35, 3, 114.0234375, 23.076171875},
    {"1T", 25600, 160, 128, 64, 1, 131.25, 26.5625},
};

double first_stage_gib(const StageOracle& oracle, const std::string& plan) {
  const std::string schedule =
      oracle.vpp > 1 ? R"("schedule": "interleaved", "vpp": )" + std::to_string(oracle.vpp)
                     : R"("schedule": "1f1b")";
  const Job job =
      gpt_job({oracle.hidden, oracle.heads, oracle.layers}, 8 * oracle.pp, 2 * oracle.pp,
              schedule + R"(, "tp": 8, "pp": )" + std::to_string(oracle.pp) + plan);
  const Program program = lower(job);
  return static_cast<double>(most_saved(program, kind_at(program, 0))) / kGiB;
}

TEST(ActivationMemory, OfTheFirstStageEqualsFigureOne) {
  for (const StageOracle& oracle : kStageOracles) {
    SCOPED_TRACE(oracle.model);
    EXPECT_EQ(first_stage_gib(oracle, ""), oracle.tp);
    EXPECT_EQ(first_stage_gib(oracle, R"(, "sequence_parallel": true, "recompute": "selective")"),
              oracle.tp_sp_selective);
  }
}

TEST(ActivationMemory, OfOneStageEqualsFigureOneAndTheInputOfTheFinalNorm) {
  // 22B, s 2048, b 4, t 8, p 1: 59.25 GiB, and with SP and selective recompute 9.5625 GiB; the
  // final norm keeps one more input of 2 sbh bytes, 1/8 of it with SP.
  const auto saved = [](const std::string& plan) {
    const Program program =
        lower(gpt_job({6144, 64, 48}, 8, 4, R"("tp": 8, "micro_batch": 4)" + plan));
    const Saved after = saved_after_issues(program, program.kinds[0]);
    return static_cast<double>(*std::max_element(after.bytes.begin(), after.bytes.end())) / kGiB;
  };
  const double norm_input = 2.0 * 2048 * 4 * 6144 / kGiB;
  EXPECT_EQ(saved(""), 59.25 + norm_input);
  EXPECT_EQ(saved(R"(, "sequence_parallel": true, "recompute": "selective")"),
            9.5625 + norm_input / 8);
}

// The most layer passes of each rank that wait for their backward, in units of `layers_per_chunk`.
std::vector<int> in_flight(const std::string& plan, int pp, int micro_batches, int layers_per_chunk,
                           int chunks) {
  const Job job = gpt_job({64, 4, pp * chunks * layers_per_chunk, 32, 128}, pp, micro_batches,
                          R"("pp": )" + std::to_string(pp) + ", " + plan);
  const Program program = lower(job);
  std::vector<int> result;
  for (int rank = 0; rank < pp; ++rank) {
    const Saved saved = saved_after_issues(program, kind_at(program, rank));
    result.push_back(*std::max_element(saved.layers.begin(), saved.layers.end()) /
                     layers_per_chunk);
  }
  return result;
}

TEST(ActivationMemory, InFlightMicroBatchesFollowTheSchedule) {
  // Facts 2.3. GPipe: m; 1F1B: min(m, p - r); interleaved: min(m v, (v-1) p + 2 (p-1-r) + 1)
  // chunks.
  EXPECT_EQ(in_flight(R"("schedule": "gpipe")", 4, 8, 2, 1), (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight(R"("schedule": "1f1b")", 4, 8, 2, 1), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight(R"("schedule": "1f1b")", 4, 2, 1, 1), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(in_flight(R"("schedule": "interleaved", "vpp": 2)", 4, 8, 1, 2),
            (std::vector<int>{11, 9, 7, 5}));
  EXPECT_EQ(in_flight(R"("schedule": "interleaved", "vpp": 3)", 4, 8, 1, 3),
            (std::vector<int>{15, 13, 11, 9}));
  EXPECT_EQ(in_flight(R"("schedule": "interleaved", "vpp": 4)", 4, 8, 1, 4),
            (std::vector<int>{19, 17, 15, 13}));
}

// Bytes a parameter of parameters, gradients and optimizer state on one of eight data-parallel
// ranks.
std::vector<double> bytes_a_parameter(const std::string& plan) {
  const Job job = gpt_job({1024, 16, 8, 512}, 8, 8, plan);
  const MemoryReport report = report_memory(lower(job), {});
  const auto parameters =
      static_cast<double>(count_parameters(job.model, job.sequence_length).total);
  const StageMemory& stage = report.per_stage[0];
  return {static_cast<double>(stage.parameters.count) / parameters,
          static_cast<double>(stage.gradients.count) / parameters,
          static_cast<double>(stage.optimizer.count) / parameters};
}

TEST(ModelState, IsWhatMegatronAndZeroPublish) {
  // Facts 2.1: Megatron bf16 with fp32 gradients 18, its distributed optimizer 6 + 12/d; with
  // gradients of 16 bits 16, ZeRO-1 4 + 12/N.
  using Shares = std::vector<double>;
  EXPECT_EQ(bytes_a_parameter(R"("dp_kind": "ddp")"), (Shares{2, 4, 12}));
  EXPECT_EQ(bytes_a_parameter(R"("dp_kind": "distributed_optimizer")"), (Shares{2, 4, 12.0 / 8}));
  EXPECT_EQ(bytes_a_parameter(R"("dp_kind": "ddp", "grad_dtype": "bf16")"), (Shares{2, 2, 12}));
  EXPECT_EQ(bytes_a_parameter(R"("dp_kind": "zero1", "grad_dtype": "bf16")"),
            (Shares{2, 2, 12.0 / 8}));
}

// The same of what lives while the optimizer updates.
std::vector<double> bytes_at_the_update(const std::string& plan) {
  const Job job = gpt_job({1024, 16, 8, 512}, 8, 32, R"("grad_dtype": "bf16", )" + plan);
  const Program program = lower(job);
  const RankKind& kind = program.kinds[0];
  const auto parameters =
      static_cast<double>(count_parameters(job.model, job.sequence_length).total);
  const auto category = [&](const BufferInstance& buffer) {
    return static_cast<std::size_t>(
        program.buffers[static_cast<std::size_t>(buffer.family)].category);
  };
  const auto bytes = [&](const BufferInstance& buffer) {
    const auto size = program.buffers[static_cast<std::size_t>(buffer.family)].size().count;
    return static_cast<double>(size) / parameters;
  };
  std::vector<double> alive(kBufferCategories, 0);
  for (const BufferInstance& buffer : lifetimes(program, kind).persistent) {
    alive[category(buffer)] += bytes(buffer);
  }
  replay(program, kind, static_cast<int>(kind.order.size()) - 1,
         [&](const BufferInstance& buffer, bool allocated) {
           alive[category(buffer)] += allocated ? bytes(buffer) : -bytes(buffer);
         });
  return {alive[static_cast<std::size_t>(BufferCategory::kParameter)],
          alive[static_cast<std::size_t>(BufferCategory::kGradient)],
          alive[static_cast<std::size_t>(BufferCategory::kOptimizer)]};
}

void expect_shares(const std::string& plan, const std::vector<double>& expected) {
  const std::vector<double> alive = bytes_at_the_update(plan);
  for (std::size_t c = 0; c < expected.size(); ++c)
    EXPECT_NEAR(alive[c], expected[c], 1e-9) << plan;
}

TEST(ModelState, OfShardedKindsIsWhatZeroPublishes) {
  // Facts 2.1, 16-byte accounting: ZeRO-2 2 + 14/N, ZeRO-3 16/N. FSDP's shares are an fp32
  // parameter (here with the optimizer), its gradient in fp32, and two moments: 16/N as well.
  expect_shares(R"("dp_kind": "zero2")", {2, 2.0 / 8, 12.0 / 8});
  expect_shares(R"("dp_kind": "zero3")", {2.0 / 8, 2.0 / 8, 12.0 / 8});
  expect_shares(R"("dp_kind": "fsdp")", {0, 4.0 / 8, 12.0 / 8});
  expect_shares(R"("dp_kind": "fsdp", "reshard_after_forward": false)", {0, 4.0 / 8, 12.0 / 8});
}

// Bytes a parameter on the device and on the host, at most, of what a job's state is.
std::pair<double, double> state_of(const std::string& plan) {
  const Job job = gpt_job({1024, 16, 8, 512}, 8, 32, R"("grad_dtype": "bf16", )" + plan);
  const Program program = lower(job);
  const auto parameters =
      static_cast<double>(count_parameters(job.model, job.sequence_length).total);
  double device = 0, host = 0;
  for (const BufferRef& held : program.kinds[0].persistent) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(held.family)];
    (family.on_host ? host : device) += static_cast<double>(family.size().count) / parameters;
  }
  return {device, host};
}

TEST(ModelState, OfAnOffloadedOptimizerIsTheHosts) {
  // Facts 2.1 (DeepSpeed's estimators): ZeRO-2 with the optimizer offloaded 2 P on the GPU; ZeRO-3
  // 2 P / N; with the parameters offloaded nothing but the layers in use. The host: 12 / N of
  // masters and moments, and 2 / N of parameters.
  const auto near = [](std::pair<double, double> found, double device, double host) {
    EXPECT_NEAR(found.first, device, 1e-4);
    EXPECT_NEAR(found.second, host, 1e-4);
  };
  near(state_of(R"("dp_kind": "zero2", "offload": ["optimizer"])"), 2, 12.0 / 8);
  near(state_of(R"("dp_kind": "zero3", "offload": ["optimizer"])"), 2.0 / 8, 12.0 / 8);
  near(state_of(R"("dp_kind": "zero3", "offload": ["optimizer", "parameters"])"), 0, 14.0 / 8);
}

TEST(ModelState, OnTheHostIsALineOfItsOwn) {
  const Job job = gpt_job({1024, 16, 8, 512}, 8, 32,
                          R"("dp_kind": "zero3", "offload": ["optimizer", "parameters"])");
  const MemoryReport report = report_memory(lower(job), {.capacity = Bytes{80LL << 30}});
  EXPECT_GT(report.host.count, 14 * count_parameters(job.model, job.sequence_length).total / 8 - 1);
  EXPECT_TRUE(report.fits);
  MemoryOptions tight;
  tight.capacity = Bytes{80LL << 30};
  tight.host_capacity = Bytes{1 << 20};
  const MemoryReport full = report_memory(lower(job), tight);
  EXPECT_FALSE(full.fits);
  EXPECT_NE(full.why.find("of its host's memory"), std::string::npos) << full.why;
}

}  // namespace
}  // namespace headway
