#include "sim/program/training_step.hpp"
#include "sim/program/step_shape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/program/program_player.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

using testing::IsEmpty;

// A job of many kinds, drawn; nothing where the draw is no legal plan.
class DrawnJob {
 public:
  explicit DrawnJob(unsigned seed) : random_(seed) {}

  std::optional<Job> draw() {
    Job job = coin() ? small_llama() : small_job();
    const int tp = 1 << below(2), pp = 1 << below(3), dp = 1 << below(2);
    const int vpp = pp > 1 && pp < 4 ? 1 + below(2) : 1;
    job.plan.micro_batch = 1 + below(2);
    job = spread(std::move(job), tp, pp, dp, vpp);
    if (vpp > 1 && job.plan.micro_batches < pp) return std::nullopt;
    if (vpp == 1 && coin()) job.plan.schedule = "gpipe";
    if (vpp > 1 && coin()) job.plan.vpp_group = static_cast<int>(job.plan.micro_batches);
    if (pp == 4 && coin()) job.plan.stage_layers = {0, 2, 2, 0};
    job.model.tie_word_embeddings = coin();
    job.plan.sequence_parallel = coin();
    job.plan.overlap_p2p = coin();
    job.plan.scatter_gather = coin();
    job.plan.overlap_grad_reduce = coin();
    job.plan.overlap_param_gather = coin();
    const DataParallelKind kinds[] = {
        DataParallelKind::kDdp,  DataParallelKind::kZero1, DataParallelKind::kDistributedOptimizer,
        DataParallelKind::kFsdp, DataParallelKind::kZero2, DataParallelKind::kZero3};
    job.plan.dp_kind = kinds[below(pp == 1 ? 6 : 4)];  // stages 2 and 3 know no pipeline
    job.plan.prefetch = below(4) * (job.plan.dp_kind == DataParallelKind::kZero3 ? 2000 : 1);
    job.plan.reshard_after_forward = coin();
    if (coin()) job.plan.bucket_elements = 2000;
    job.plan.recompute = static_cast<Recompute>(below(3));
    job.plan.recompute_layers = below(2);
    job.plan.optimizer = coin() ? "adamw" : "sgd";
    job.software.dropout = coin() ? 0.1 : 0.0;
    job.software.fused_kernels = coin();
    job.software.accumulation = static_cast<GradientAccumulation>(below(3));
    job.software.gathered_logits = coin();
    job.software.fused_loss = coin();
    job.software.p2p_synchronises = coin();
    job.software.batched_p2p = coin();
    job.software.attention = coin() ? AttentionKernel::kUnfused : AttentionKernel::kFlash2;
    const Precision precisions[] = {Precision::kFp64, Precision::kFp32, Precision::kBf16};
    job.precision = precisions[below(3)];
    return job;
  }

 private:
  int below(unsigned limit) { return static_cast<int>(random_() % limit); }
  bool coin() { return below(2) == 1; }
  std::mt19937 random_;
};

TEST(TrainingStep, EveryDrawnPlanIsSoundAndRunsToItsEnd) {
  int lowered = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::optional<Job> job = DrawnJob(seed).draw();
    if (!job) continue;
    SCOPED_TRACE(seed);
    const Program program = lower(*job);
    ASSERT_NO_THROW(check(program, "lowered"));
    ASSERT_THAT(play(program).stuck, IsEmpty());
    ++lowered;
  }
  EXPECT_GT(lowered, 150);
}

TEST(TrainingStep, LargePipelinesRunToTheirEnd) {
  struct Case {
    const char* schedule;
    int pp, vpp, micro_batches, group;
  };
  for (const Case& one : {Case{"gpipe", 8, 1, 12, 0}, Case{"1f1b", 8, 1, 3, 0},
                          Case{"1f1b", 8, 1, 20, 0}, Case{"interleaved", 8, 3, 16, 0},
                          Case{"interleaved", 4, 2, 4, 0}, Case{"interleaved", 4, 2, 10, 5},
                          Case{"interleaved", 4, 3, 14, 5}, Case{"interleaved", 4, 2, 11, 7}}) {
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(one.schedule);
      SCOPED_TRACE(one.group);
      Job job = small_job();
      job.model.num_hidden_layers = one.pp * one.vpp;
      job.global_batch = one.micro_batches;
      job = spread(std::move(job), 1, one.pp, 1, one.vpp);
      job.plan.schedule = one.schedule;
      job.plan.vpp_group = one.group;
      job.plan.overlap_p2p = overlap;
      const Program program = lower(job);
      ASSERT_NO_THROW(check(program, "lowered"));
      EXPECT_THAT(play(program).stuck, IsEmpty());
    }
  }
}

// How often each (layer, micro-batch) runs the template, over all kinds.
std::map<std::pair<int, int>, int> runs(const Program& program, const std::string& base) {
  std::map<std::pair<int, int>, int> count;
  for (const RankKind& kind : program.kinds) {
    for (const Issue& issue : kind.order) {
      for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
        const std::string& name =
            program.templates[static_cast<std::size_t>(step.template_index)].name;
        if (name == base || name.starts_with(base + ".")) ++count[{step.layer, issue.micro_batch}];
      }
    }
  }
  return count;
}

std::map<std::pair<int, int>, int> each(int layers, int micro_batches, int times) {
  std::map<std::pair<int, int>, int> count;
  for (int layer = 0; layer < layers; ++layer) {
    for (int m = 0; m < micro_batches; ++m) count[{layer, m}] = times;
  }
  return count;
}

TEST(TrainingStep, EveryLayerOfEveryMicroBatchRunsOnceForwardAndOnceBackward) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    const bool interleaved = std::string(schedule) == "interleaved";
    Job job = spread(small_job(), 1, 2, 2, interleaved ? 2 : 1);
    job.plan.schedule = schedule;
    job.plan.overlap_grad_reduce = true;
    job.plan.overlap_param_gather = true;
    job.plan.dp_kind = DataParallelKind::kDistributedOptimizer;
    const Program program = lower(job);
    EXPECT_EQ(runs(program, "layer.forward"), each(4, 4, 1)) << schedule;
    EXPECT_EQ(runs(program, "layer.backward"), each(4, 4, 1)) << schedule;
    EXPECT_EQ(runs(program, "embedding.forward"), each(1, 4, 1)) << schedule;
    EXPECT_EQ(runs(program, "embedding.backward"), each(1, 4, 1)) << schedule;
    const std::map<std::pair<int, int>, int> head = {
        {{4, 0}, 1}, {{4, 1}, 1}, {{4, 2}, 1}, {{4, 3}, 1}};
    EXPECT_EQ(runs(program, "head.forward"), head) << schedule;
    EXPECT_EQ(runs(program, "head.backward"), head) << schedule;
  }
}

TEST(TrainingStep, FullRecomputationRunsTheFirstLayersOfAStageTwice) {
  Job job = spread(small_job(), 1, 2, 1);
  job.plan.recompute = Recompute::kFull;
  EXPECT_EQ(runs(lower(job), "layer.forward"), each(4, 8, 2));
  job.plan.recompute_layers = 1;  // layers 0 and 2
  std::map<std::pair<int, int>, int> expected = each(4, 8, 1);
  for (auto& [layer, count] : expected) count = layer.first % 2 == 0 ? 2 : 1;
  EXPECT_EQ(runs(lower(job), "layer.forward"), expected);
}

// Every operation that a kind issues, with the layer it is applied to.
template <typename Visit>
void visit_operations(const Program& program, const RankKind& kind, Visit visit) {
  for (const Issue& issue : kind.order) {
    for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
      const Template& list = program.templates[static_cast<std::size_t>(step.template_index)];
      for (const TemplateOperation& operation : list.operations) visit(operation, step.layer);
    }
  }
}

using Instance = std::pair<int, int>;  // family, layer

// The buffers that the operand stands for, shares and their mirrors resolved.
std::vector<Instance> resolved(const Program& program, BufferRef reference, int layer) {
  const BufferFamily& family = program.buffers[static_cast<std::size_t>(reference.family)];
  if (family.mirrors.empty()) {
    return {{reference.family, family.per_layer ? reference.layer + layer : 0}};
  }
  std::vector<Instance> instances;
  for (const BufferRef& mirror : family.mirrors) {
    instances.push_back(
        {mirror.family, mirror.layer + (family.per_layer ? reference.layer + layer : 0)});
  }
  return instances;
}

int gradient_of(const Program& program, int parameter) {
  const std::string name = program.buffers[static_cast<std::size_t>(parameter)].name + "_gradient";
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].name == name) return static_cast<int>(b);
  }
  ADD_FAILURE() << "there is no " << name;
  return -1;
}

TEST(TrainingStep, EveryParameterHasOneGradientAndIsUpdatedOnce) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    const std::optional<Job> job = DrawnJob(seed).draw();
    if (!job) continue;
    SCOPED_TRACE(seed);
    const Program program = lower(*job);
    // Stages 2 and 3 and FSDP reduce every micro-batch's gradients, over a pipeline once a step.
    const auto times =
        StepShape(*job).fresh_gradients ? static_cast<int>(program.micro_batches) : 1;
    for (const RankKind& kind : program.kinds) {
      // Held whole, or in a share of the parameters or of their fp32 copies.
      std::set<Instance> gradients;
      for (const BufferRef& held : kind.persistent) {
        const BufferFamily& family = program.buffers[static_cast<std::size_t>(held.family)];
        if (family.category != BufferCategory::kParameter && !family.name.starts_with("master"))
          continue;
        for (const Instance& parameter : resolved(program, held, 0)) {
          gradients.insert({gradient_of(program, parameter.first), parameter.second});
        }
      }
      EXPECT_FALSE(gradients.empty());
      std::map<Instance, int> updated, reduced;
      visit_operations(program, kind, [&](const TemplateOperation& operation, int layer) {
        const auto* kernel = std::get_if<Kernel>(&operation.operation);
        const auto* collective = std::get_if<Collective>(&operation.operation);
        if (kernel != nullptr &&
            (kernel->kind == KernelKind::kAdam || kernel->kind == KernelKind::kSgd)) {
          for (const BufferRef& read : operation.reads) {
            for (const Instance& instance : resolved(program, read, layer)) {
              if (gradients.contains(instance)) ++updated[instance];
            }
          }
        }
        if (collective != nullptr && operation.cause == Cause::kDataParallel) {
          for (const BufferRef& read : operation.reads) {
            const bool per_layer = program.buffers[static_cast<std::size_t>(read.family)].per_layer;
            const Instance instance{read.family, per_layer ? read.layer + layer : 0};
            if (gradients.contains(instance)) ++reduced[instance];
          }
        }
      });
      for (const Instance& gradient : gradients) {
        EXPECT_EQ(updated[gradient], 1);
        EXPECT_EQ(reduced[gradient], job->plan.dp > 1 ? times : 0);
      }
    }
  }
}

TEST(TrainingStep, EveryPartOfTheModelIsHeldByOneStageAndATiedTableByTwo) {
  for (const bool tied : {false, true}) {
    Job job = spread(small_job(), 2, 4, 1);
    job.model.tie_word_embeddings = tied;
    const Program program = lower(job);
    std::map<std::string, int> holders;
    for (const RankKind& kind : program.kinds) {
      for (const BufferRef& held : kind.persistent) {
        const BufferFamily& family = program.buffers[static_cast<std::size_t>(held.family)];
        if (family.category != BufferCategory::kParameter) continue;
        for (const TensorPart& part : family.parts) {
          ++holders[family.per_layer ? std::to_string(held.layer) + "." + part.name : part.name];
        }
      }
    }
    // 16 parts a layer: two norms of 2, qkv 3 + 3, projection 2, first 2, second 2; tables, final
    // norm.
    EXPECT_EQ(holders.size(), 4u * 16 + 2 + 2 + (tied ? 0 : 1));
    for (const auto& [part, count] : holders) {
      EXPECT_EQ(count, tied && part == "embedding.word_weight" ? 2 : 1) << part;
    }
  }
}

TEST(TrainingStep, TheNormCountsEveryParameterOfTheModelOnce) {
  // Over all ranks of a model: replicated gradients count 1/tp each, the tied table on one stage
  // only.
  for (const int tp : {1, 2}) {
    for (const bool tied : {false, true}) {
      Job job = spread(small_job(), tp, 2, 1);
      job.model.tie_word_embeddings = tied;
      const Program program = lower(job);
      double counted = 0;
      for (const RankKind& kind : program.kinds) {
        visit_operations(program, kind, [&](const TemplateOperation& operation, int) {
          const auto* kernel = std::get_if<Kernel>(&operation.operation);
          if (kernel == nullptr) return;
          if (kernel->kind == KernelKind::kSquaredNorm) {
            counted += static_cast<double>(kernel->rows * tp);
          }
          if (operation.name == "norm.replicated") {
            counted -= static_cast<double>(kernel->rows * tp);
            counted += static_cast<double>(kernel->rows);  // tp ranks, 1/tp each
          }
        });
      }
      job.model.vocab_size = job.padded_vocabulary();
      EXPECT_EQ(counted,
                static_cast<double>(count_parameters(job.model, job.sequence_length).total));
    }
  }
}

TEST(TrainingStep, TheHostWorksOncePerMicroBatchAndStageAndOncePerStep) {
  const Program program = lower(spread(small_job(), 1, 2, 1, 2));
  for (const RankKind& kind : program.kinds) {
    std::map<HostKind, int> work;
    visit_operations(program, kind, [&](const TemplateOperation& operation, int) {
      if (const auto* host = std::get_if<HostWork>(&operation.operation)) ++work[host->kind];
    });
    EXPECT_EQ(work[HostKind::kMicroBatch], 8 * 2);
    EXPECT_EQ(work[HostKind::kStep], 1);
  }
}

TEST(TrainingStep, BucketsAreReducedWhileTheBackwardPassGoesOn) {
  Job job = spread(small_llama(), 1, 1, 2);
  job.plan.overlap_grad_reduce = true;
  job.plan.bucket_elements = 3000;
  const Program program = lower(job);
  const RankKind& kind = program.kinds[0];
  // The last micro-batch's backward reduces each bucket right behind the layer that completes it.
  std::string text;
  for (const Pass& pass : kind.passes) {
    if (pass.name != "0B_last") continue;
    for (const Step& step : pass.steps) {
      const std::string& name =
          program.templates[static_cast<std::size_t>(step.template_index)].name;
      text += name.substr(0, name.find(".c")) +
              (name.starts_with("layer") ? std::to_string(step.layer) : "") + " ";
    }
  }
  EXPECT_EQ(text,
            "head.backward layer.backward3 reduce.rank0 layer.backward2 reduce.rank0 "
            "layer.backward1 reduce.rank0 layer.backward0 reduce.rank0 embedding.backward "
            "reduce.rank0 ");
  int last = 0;
  for (const Issue& issue : kind.order) {
    if (kind.passes[static_cast<std::size_t>(issue.pass)].name != "0B_last") continue;
    EXPECT_EQ(issue.micro_batch, program.micro_batches - 1);
    ++last;
  }
  EXPECT_EQ(last, 1);
}

TEST(TrainingStep, OnlyTheFirstRanksFirstChunkHasSmallBuckets) {
  // Megatron-LM; DeepSpeed's ZeRO-1 cuts everywhere.
  const auto reductions = [](DataParallelKind how) {
    Job job = spread(small_llama(), 1, 2, 2);
    job.plan.dp_kind = how;
    job.plan.bucket_elements = 1000;
    const Program program = lower(job);
    std::vector<int> counts;
    for (const RankKind& kind : program.kinds) {
      counts.push_back(0);
      visit_operations(program, kind, [&](const TemplateOperation& operation, int) {
        counts.back() += operation.name.starts_with("reduce.") ? 1 : 0;
      });
    }
    return counts;
  };
  // First rank: two layers of second 1024 | first 2048 | norm, projection, qkv, norm, second 1824 |
  // first 2048 | norm, projection, qkv, norm and the table 960: open | 1760. Last rank: one bucket.
  EXPECT_EQ(reductions(DataParallelKind::kDdp), (std::vector<int>{5, 1}));
  EXPECT_EQ(reductions(DataParallelKind::kDistributedOptimizer), (std::vector<int>{5, 1}));
  EXPECT_GT(reductions(DataParallelKind::kZero1)[1], 4);
}

TEST(TrainingStep, SharesOfTheOptimizerAreOneDpthOfTheirBuckets) {
  Job job = spread(small_llama(), 1, 1, 4);
  job.plan.dp_kind = DataParallelKind::kDistributedOptimizer;
  const Program program = lower(job);
  // 64 x 16 table and head, 4 layers of 3872, final norm 16: 17,552 / 4.
  int masters = 0;
  for (const BufferFamily& family : program.buffers) {
    if (!family.name.starts_with("master.")) continue;
    ++masters;
    EXPECT_EQ(family.elements(), (2 * 960 + 4 * 3872 + 16) / 4);
    EXPECT_EQ(program.groups[static_cast<std::size_t>(family.row_group)].name, "dp");
  }
  EXPECT_EQ(masters, 1);
}

TEST(TrainingStep, MessagesAreDividedAmongTensorParallelRanks) {
  const auto message_elements = [](bool sequence_parallel, bool scatter_gather) {
    Job job = spread(small_job(), 2, 2, 1);
    job.plan.sequence_parallel = sequence_parallel;
    job.plan.scatter_gather = scatter_gather;
    const Program program = lower(job);
    std::set<std::int64_t> elements;
    for (const Template& list : program.templates) {
      for (const TemplateOperation& operation : list.operations) {
        const auto* collective = std::get_if<Collective>(&operation.operation);
        if (collective != nullptr && operation.group < 0) elements.insert(collective->elements);
      }
    }
    return elements;
  };
  // Facts 5: b s h; with sequence parallelism or slices 1/t of it.
  EXPECT_EQ(message_elements(false, false), (std::set<std::int64_t>{8 * 16}));
  EXPECT_EQ(message_elements(true, false), (std::set<std::int64_t>{8 * 16 / 2}));
  EXPECT_EQ(message_elements(false, true), (std::set<std::int64_t>{8 * 16 / 2}));
}

TEST(TrainingStep, TheLossIsTheMeanOverTheGlobalBatch) {
  const Program program = lower(spread(small_job(), 1, 1, 2));
  for (const Template& list : program.templates) {
    for (const TemplateOperation& operation : list.operations) {
      if (operation.name != "loss.backward" && operation.name != "loss.mean") continue;
      EXPECT_EQ(std::get<Kernel>(operation.operation).scale, 1.0 / (8 * 8));
    }
  }
}

// The issues of a kind, in words: "0F_first0".
std::string order_text(const RankKind& kind, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < std::min(limit, kind.order.size()); ++i) {
    const Issue& issue = kind.order[i];
    text += (i == 0 ? "" : " ") + kind.passes[static_cast<std::size_t>(issue.pass)].name;
    if (issue.micro_batch >= 0) text += std::to_string(issue.micro_batch);
  }
  return text;
}

TEST(TrainingStep, ParametersGatheredFirstAreAwaitedByTheFirstForwardOfTheirChunk) {
  Job job = spread(small_llama(), 1, 2, 2, 2);
  job.plan.dp_kind = DataParallelKind::kDistributedOptimizer;
  job.plan.overlap_param_gather = true;
  job.plan.overlap_grad_reduce = false;
  const Program program = lower(job);
  const RankKind& kind = program.kinds[1];
  EXPECT_EQ(order_text(kind, 6), "begin gather_parameters 1RECV_F0 1F_first0 1SEND_F0 1RECV_F1");
  std::map<std::string, std::vector<std::string>> awaited;
  for (const Pass& pass : kind.passes) {
    for (const Step& step : pass.steps) {
      const Template& list = program.templates[static_cast<std::size_t>(step.template_index)];
      for (const TemplateOperation& operation : list.operations) {
        for (const PortRef& port : operation.awaits) {
          awaited[pass.name].push_back(program.ports[static_cast<std::size_t>(port.family)].name);
        }
      }
    }
  }
  EXPECT_EQ(awaited, (std::map<std::string, std::vector<std::string>>{
                         {"1F_first", {"gathered.rank1.chunk0.bucket0"}},
                         {"3F_first", {"gathered.rank1.chunk1.bucket0"}}}));
}

TEST(TrainingStep, TheHostWaitsBehindEachBatchOfMessagesWhereTheFrameworkSynchronises) {
  Job job = spread(small_job(), 1, 2, 1);
  job.software.p2p_synchronises = true;
  EXPECT_EQ(order_text(lower(job).kinds[1], 10),
            "begin 1RECV_F0 wait 1F0 1B0 1SEND_B0 1RECV_F1 wait 1F1 1B1");
  job.software.p2p_synchronises = false;
  EXPECT_EQ(order_text(lower(job).kinds[1], 7), "begin 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1");
}

TEST(ReferenceJob, IsTheSameStepOnOneRank) {
  Job job = spread(small_job(), 2, 2, 2);
  job.plan.sequence_parallel = true;
  job.plan.recompute = Recompute::kFull;
  const Job reference = reference_job(job);
  EXPECT_EQ(reference.plan.micro_batches, 8);
  EXPECT_EQ(reference.plan.micro_batch, 1);
  EXPECT_EQ(reference.plan.stage_layers, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(reference.padded_vocabulary(), job.padded_vocabulary());
  const Program program = lower(reference);
  EXPECT_EQ(program.grid.size(), 1);
  EXPECT_EQ(program.streams, (std::vector<std::string>{"compute"}));
  EXPECT_THAT(program.groups, IsEmpty());
}

}  // namespace
}  // namespace headway
