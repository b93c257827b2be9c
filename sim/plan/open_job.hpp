// A job of which everything but the plan is settled: model, cluster, batch and software are read
// once, and any number of plans are judged against them, as a search does. A plan judged here and
// the same plan in a job file give the same job.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job.hpp"

namespace headway {

class OpenJob {
 public:
  // Reads all but the plan, as read_job() does. Nothing where that has problems. The plan's own
  // keys are not judged yet.
  static std::optional<OpenJob> read(const JsonNode& node,
                                     const std::vector<JobOverride>& overrides, Problems& problems);

  // The job with `plan`, an object with the keys of a job's plan, in place of its own. Safe to call
  // from several threads.
  JobReading with_plan(const JsonNode& plan, Problems& problems) const;

  const std::optional<JsonNode>& plan() const;  // as given, options in place
  const Transformer& model() const;
  const Topology& topology() const;
  const Software& software() const;
  const std::string& profile() const;
  std::int64_t sequence_length() const;
  std::int64_t global_batch() const;
  const std::vector<NotYetBuilt>& not_built() const;  // whatever the plan
  const std::vector<std::string>& notes() const;

 private:
  struct Frame;
  explicit OpenJob(std::shared_ptr<const Frame> frame);

  std::shared_ptr<const Frame> frame_;
};

}  // namespace headway
