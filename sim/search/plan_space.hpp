// The plans that a search chooses among: what the job gives stays, what it leaves open takes each
// of its values, what has no say in a plan (a virtual stage without a pipeline) is not varied.
// Plans are enumerated lazily, row by row: a row is all but the micro-batch, whose values grow
// until memory ends them. Whether a plan is legal is not judged here.
//
// A key is open where the job's plan says "auto", a list or {"min":, "max":}; where it leaves
// nothing open, the keys it does not give are: tp, pp, schedule, vpp, sequence_parallel, dp_kind,
// recompute, recompute_layers, micro_batch, and with experts ep and etp. "auto" tries: degrees that
// divide what they split and fit the node; schedules, dp_kinds (hsdp where `shard` is given; none
// that rounds gradients) and overlaps within the framework's reach; virtual stages that divide the
// layers of a rank, else powers of two of them; none, selective and full recomputation, full in all
// layers or in the first 1, 2, 4, ... of a virtual stage; micro-batches in powers of two.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/plan/open_job.hpp"
#include "sim/search/framework_reach.hpp"

namespace headway {

// A value of a key of the plan, as JSON text. `option` names where it was given, for messages.
struct PlanValue {
  std::string key, value, option;
};

struct SpaceOptions {
  std::vector<PlanValue> fixed;     // these are not varied
  std::vector<PlanValue> excluded;  // these are not tried
};

// A value, as JSON text, for each open key in the order of PlanSpace::keys(); empty: none, the
// key's default.
using PlanChoice = std::vector<std::string>;

class PlanSpace {
 public:
  // Adds a problem for each key or value that cannot be varied, fixed or excluded. REQUIRES: job
  // and reach outlive this.
  PlanSpace(const OpenJob& job, const FrameworkReach& reach, const SpaceOptions& options,
            Problems& problems);

  const std::vector<std::string>& keys() const { return keys_; }  // the open ones
  // Whether the job left nothing open itself, so that the default keys are.
  bool by_default() const { return by_default_; }

  // Every row in turn, with its last value (the micro-batch, where that is open) left empty.
  // Stops where `visit` returns false.
  void for_each_row(const std::function<bool(const PlanChoice& row)>& visit) const;
  // The values that complete a row, smallest first; one empty value where micro_batch is not open.
  std::vector<std::string> micro_batches(const PlanChoice& row) const;
  // Whether a larger micro-batch than one that does not fit need not be tried.
  bool ends_with_memory() const { return micro_batches_end_; }

  // The plan as a job's `plan`, on one line; without what the choice leaves out.
  std::string plan_text(const PlanChoice& choice) const;

 private:
  struct OpenKey {
    std::string key;
    bool automatic = false;
    std::vector<std::string> listed;  // where not automatic
    std::int64_t min = 1, max = 0;    // a range where max >= min
  };
  class Enumeration;

  void read_given(const SpaceOptions& options, Problems& problems);
  void open(const std::string& key, const JsonNode& value, Problems& problems);
  void open_defaults();
  void exclude(const SpaceOptions& options, Problems& problems);
  std::vector<std::string> values(std::size_t index, const PlanChoice& so_far) const;
  std::vector<std::string> automatic_values(const std::string& key, const PlanChoice& so_far) const;
  std::vector<std::string> automatic_dp_kinds() const;
  bool has_say(const std::string& key, const PlanChoice& so_far) const;
  // The value of a key so far, chosen or given, as a number or a word.
  std::int64_t number(const char* key, const PlanChoice& so_far, std::int64_t otherwise) const;
  std::string word(const char* key, const PlanChoice& so_far, const std::string& otherwise) const;
  std::string text_of(const std::string& key, const PlanChoice& so_far) const;
  std::int64_t layers_of_a_stage(const PlanChoice& so_far) const;

  const OpenJob& job_;
  const FrameworkReach& reach_;
  std::map<std::string, std::string> given_;  // JSON text by key
  std::vector<OpenKey> open_;
  std::vector<std::string> keys_;
  std::map<std::string, std::vector<std::string>> excluded_;
  bool by_default_ = false;
  bool micro_batches_end_ = false;
};

// A word or JSON text as JSON text: 8 -> 8, full -> "full".
std::string as_json(const std::string& text);

}  // namespace headway
