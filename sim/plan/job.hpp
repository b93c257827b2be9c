// A job, resolved: model, cluster, precision, batch, software and plan with every value filled in
// and marked as given, of the framework, or default. Reading reports every problem at once; what is
// legal but has no effect becomes a note.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/model/precision.hpp"
#include "sim/model/transformer.hpp"
#include "sim/plan/parallel_plan.hpp"
#include "sim/plan/rank_grid.hpp"
#include "sim/plan/software.hpp"

namespace headway {

enum class Origin : std::uint8_t { kGiven, kFramework, kDefault };

// The second numbering of context-parallel ranks (RankGrid) where some exchange heads and a ring
// runs across them.
inline constexpr const char* kUlyssesAxis = "ulysses";
inline constexpr const char* kRingAxis = "ring";
// That of tensor-parallel ranks where there are fewer key-value heads than ranks: which heads a
// rank holds, and which of their copies.
inline constexpr const char* kKeyValueAxis = "kv";
inline constexpr const char* kKeyValueCopyAxis = "kv_copy";
// And where they share a matrix as a square, a stack of squares or a cube.
inline constexpr const char* kTensorColumnAxis = "tp_column";
inline constexpr const char* kTensorRowAxis = "tp_row";
inline constexpr const char* kTensorDepthAxis = "tp_depth";

// And of data-parallel ranks where groups of `plan.shard` share out what each of them replicates.
inline constexpr const char* kShardAxis = "shard";
inline constexpr const char* kReplicaAxis = "replica";

struct Job {
  Transformer model;
  Topology topology;
  std::string profile;  // of sim/cost: "a100-sxm-80gb", or a path
  Precision precision = Precision::kBf16;
  std::int64_t sequence_length = 0;
  std::int64_t global_batch = 0;  // sequences
  // Packed sequences: the lengths of the documents of each, one after another (they add up to
  // sequence_length). Sequence s of the data set is packs[s mod size]; empty: of one document each.
  std::vector<std::vector<std::int64_t>> packs = {};
  std::string packed_from = {};  // the file of their lengths
  Software software = {};
  ParallelPlan plan = {};

  std::map<std::string, Origin> origins = {};  // by key: "plan.tp"
  std::vector<std::string> notes = {};         // keys without effect, assumptions
  std::vector<LinkOverride> links = {};        // of the cluster, as given
  // Of a cluster in one line, as given.
  std::optional<std::string> nic = {};
  std::optional<double> oversubscription = {};

  int gpus() const { return topology.gpus(); }
  std::int64_t padded_vocabulary() const;
  // Axes innermost first, by plan.order; of a mixture of experts with the axes of its experts
  // folded over those of a stage.
  RankGrid grid() const;
};

// A rule or key that an issue still open will build: the job is legal, this version cannot run it.
// `validate` counts such jobs as skipped with `rule` as the reason; `simulate` reports it (exit 2).
struct NotYetBuilt {
  std::string pointer, rule;
};

struct JobReading {
  std::optional<Job> job;  // nothing where there are problems or things not yet built
  std::vector<NotYetBuilt> not_built;
};

// `overrides` are option values by dotted key ("plan.tp" -> "8"), as JSON text or bare words; they
// replace the file's. Their problems name the option. Adds to `problems`, never throws for bad
// input.
struct JobOverride {
  std::string key;     // "plan.tp"
  std::string value;   // "8", "llama3-70b"
  std::string option;  // "--tp", for messages
};
JobReading read_job(const JsonNode& node, const std::vector<JobOverride>& overrides,
                    Problems& problems);

// The fully resolved job as JSON: {"model": ..., each leaf {"value":, "origin":}}.
std::string resolved_job_json(const Job& job, int indent);

}  // namespace headway
