// Whether a plan fits its model, its cluster and itself: divisibility, layers per stage, the
// schedule's own demands. Everything that can be judged is judged, so that all problems are
// reported at once; what depends on a value that was wrong is left alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/transformer.hpp"
#include "sim/plan/plan_reader.hpp"

namespace headway {

// What a plan is judged against; nothing where it is wrong itself.
struct PlanContext {
  std::optional<Transformer> model;
  std::optional<std::int64_t> gpus, sequence_length, global_batch;
  std::int64_t gpus_per_node = 0;  // 0: not known
  bool has_host_memory = true;     // whether the topology states it
};

// Resolves the plan (dp, micro-batches, stages, layers of each stage) and adds a problem for
// whatever does not fit, a note for what has no effect, a rule for what is not built. `batch` names
// the job's "global_batch" and "sequence_length" in messages.
void resolve_plan(PlanReading& reading, const PlanContext& context, JobSection& section,
                  JobSection& job, std::vector<std::string>& notes);

// Layers of each of `stages` virtual stages where the job does not say: in equal parts; else, where
// layers + 2 divides, embedding and head each count as a layer; else the remainder goes, one each,
// to the earliest. REQUIRES: layers + 2 >= stages.
std::vector<std::int64_t> divided_layers(std::int64_t layers, std::int64_t stages);

// The layers of a pipeline whose last stage also holds the head: as many there, rounded up, as make
// its model FLOPs, head included, those of the average stage; the others get the rest evenly, what
// does not divide the stages before the last ("Redis", arXiv 2411.05288, section 6.1; the layers of
// its published runs). REQUIRES: stages >= 2, layers >= stages.
std::vector<std::int64_t> redistributed_layers(const Transformer& model,
                                               std::int64_t sequence_length, std::int64_t stages);

}  // namespace headway
