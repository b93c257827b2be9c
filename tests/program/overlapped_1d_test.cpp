// Exchanges of tensor-parallel matrices in hops beside the parts of their GEMMs: what moves, what
// waits for what, and how much of it stays exposed.
#include "sim/program/tensor/overlapped_1d.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"
#include "tests/program/template_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

Job ring_of(Job job, int tp) {
  job = spread(std::move(job), tp, 1, 1);
  job.plan.sequence_parallel = true;
  job.plan.tp_overlap = TensorOverlap::kRing;
  return job;
}

// "shift of 32", those of other streams than the first in brackets; GEMMs by name.
std::vector<std::string> work_of(const Template& list, const std::string& prefix) {
  std::vector<std::string> lines;
  for (const TemplateOperation& operation : list.operations) {
    if (!operation.name.starts_with(prefix)) continue;
    std::string line = operation.name.substr(prefix.size());
    if (const auto* collective = std::get_if<Collective>(&operation.operation)) {
      line = std::string(name(collective->kind)) + " of " + std::to_string(collective->elements);
    } else if (!std::holds_alternative<Gemm>(operation.operation)) {
      continue;
    }
    lines.push_back(operation.stream == 0 ? line : "[" + line + "]");
  }
  return lines;
}

TEST(OverlappedMatrices, HopsMoveWhatGathersAndScattersWould) {
  // t 4: forward of column and row each t - 1 hops of x / t; backward of the row likewise; the
  // column's backward keeps its gather and reduce-scatter beside whole GEMMs.
  const Program program = lower(ring_of(small_job(), 4));
  const std::string hop = "[shift of " + std::to_string(8 * 16 / 4) + "]";
  EXPECT_THAT(work_of(template_named(program, "layer.forward"), "mlp."),
              ElementsAre(hop, "first0", hop, "first1", hop, "first2", "first3",  //
                          "second1", hop, "second2", hop, "second3", hop, "second0"));
  const std::string x = std::to_string(8 * 16);
  EXPECT_THAT(work_of(template_named(program, "layer.backward"), "mlp."),
              ElementsAre(hop, "second_dgrad0", hop, "second_dgrad1", hop, "second_dgrad2",
                          "second_dgrad3", "second_wgrad", "[all_gather of " + x + "]",
                          "first_dgrad", "[reduce_scatter of " + x + "]", "first_wgrad"));
}

// When the last operation of a template ends, where a part of a GEMM takes `part`, a hop takes
// `hop` and all else nothing. The ranks are alike: none waits for another.
int end_of(const Template& list, std::size_t streams, int part, int hop) {
  std::vector<int> ends, last(streams, 0);
  for (const TemplateOperation& operation : list.operations) {
    int begin = last[static_cast<std::size_t>(operation.stream)];
    for (const int before : operation.after) {
      begin = std::max(begin, ends[static_cast<std::size_t>(before)]);
    }
    for (const int stream : operation.joins) {
      begin = std::max(begin, last[static_cast<std::size_t>(stream)]);
    }
    const auto* gemm = std::get_if<Gemm>(&operation.operation);
    const bool hops = std::holds_alternative<Collective>(operation.operation);
    ends.push_back(begin + (hops ? hop : gemm != nullptr && gemm->runs > 1 ? part : 0));
    last[static_cast<std::size_t>(operation.stream)] = ends.back();
  }
  return *std::max_element(last.begin(), last.end());
}

TEST(OverlappedMatrices, AHopIsExposedByWhatItTakesLongerThanAGemm) {
  // The first part of a gather, and the last of a scatter, has a GEMM of its own; each of the t - 1
  // hops runs beside another: t part + (t - 1) max(hop - part, 0) a matrix, four of them a layer.
  for (const int tp : {2, 4}) {
    const Program program = lower(ring_of(small_job(), tp));
    const Template& forward = template_named(program, "layer.forward");
    for (const auto& [part, hop] : {std::pair(10, 0), {10, 7}, {10, 10}, {10, 13}, {0, 5}}) {
      EXPECT_EQ(end_of(forward, program.streams.size(), part, hop),
                4 * (tp * part + (tp - 1) * std::max(hop - part, 0)))
          << tp << " ranks, part " << part << ", hop " << hop;
    }
  }
}

TEST(OverlappedMatrices, TokensTravelInEightBitsAndSumsInSixteen) {
  Job job = ring_of(small_job(), 2);
  job.precision = Precision::kFp8Delayed;
  const Program program = lower(job);
  std::vector<std::string> types;
  for (const TemplateOperation& operation : template_named(program, "layer.forward").operations) {
    const auto* collective = std::get_if<Collective>(&operation.operation);
    if (collective == nullptr || collective->kind != CollectiveKind::kShift) continue;
    types.push_back(operation.name + " " + std::string(name(collective->type)));
  }
  EXPECT_THAT(types, ElementsAre("attention.qkv_shift1 fp8", "attention.projection_shift1 bf16",
                                 "mlp.first_shift1 fp8", "mlp.second_shift1 bf16"));
}

}  // namespace
}  // namespace headway
