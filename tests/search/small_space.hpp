// Small questions for the tests of the search: GPT-3 1.7B on two nodes of A100s.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/plan_search.hpp"

namespace headway {

// `plan` is the job's, "{...}". The project's own framework is not bound by its host.
inline std::string small_job(const std::string& plan, const std::string& framework = "headway") {
  return R"({"model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 16},
    "sequence_length": 2048, "global_batch": 32, "software": {"framework": ")" +
         framework + R"("}, "plan": )" + plan + "}";
}

inline OpenJob open_job(const std::string& text) {
  Problems problems;
  std::optional<OpenJob> job = OpenJob::read(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  return std::move(*job);
}

inline const Profile& a100() {
  static const Profile profile = read_profile("a100-sxm-80gb");
  return profile;
}

// A device with so much memory, otherwise an A100.
inline Profile a100_with(double gib) {
  Profile profile = a100();
  profile.device.memory = Bytes{static_cast<std::int64_t>(gib * 1073741824.0)};
  return profile;
}

inline SearchResult search(const std::string& plan, const Profile& profile,
                           const SearchOptions& options, const SpaceOptions& space_options = {}) {
  const OpenJob job = open_job(small_job(plan));
  const FrameworkReach& reach = framework_reach(job.software().framework);
  Problems problems;
  const PlanSpace space(job, reach, space_options, problems);
  problems.throw_if_any();
  const PriceBook prices(profile);
  return search_plans(job, space, reach, prices, options);
}

}  // namespace headway
