// What of the machine a step is asked to meet beside its description, as `headway simulate` takes
// it: other jobs on the network, GPUs of unequal speed; and what it says of them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/cost/profile.hpp"
#include "sim/plan/job.hpp"
#include "sim/simulate/jitter.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

struct Factor {
  std::string name;
  double value = 1;
};

// "nic=0.5". Adds a problem where it is no such pair or out of range.
std::optional<Factor> read_factor(const std::string& text, const std::string& option, double min,
                                  double max, Problems& problems);

inline constexpr const char* kDegrade = "--degrade";
inline constexpr const char* kDegradeHelp =
    "leave links this share of their bandwidth; 0: dead, and transfers go round them. LINK is a "
    "kind (nic), a vertex (node0/nic3), or two (node0/nic3:unit0/leaf3)";
// What is left of links, by name (cluster/link_names.hpp).
std::map<std::string, double> read_degraded(const std::vector<std::string>& texts,
                                            Problems& problems);

// The jobs of "JOB.json@GPU" texts, and all that they need while they are played.
class BackgroundJobs {
 public:
  // Throws InvalidInput: no such text, a wrong job, another cluster, GPUs that are taken or that
  // the cluster does not have, steps that overlap.
  BackgroundJobs(const std::vector<std::string>& texts, const Job& beside);

  const std::vector<BackgroundJob>& jobs() const { return jobs_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::deque<Job> read_;
  std::deque<Profile> profiles_;
  std::vector<BackgroundJob> jobs_;
  std::vector<std::string> names_;
};

// A row of the summary for each, then the step without them; and the same as JSON.
std::string background_words(const BackgroundJobs& background, Time alone);
std::string background_json(const BackgroundJobs& background, Time alone);

// Nothing without a sigma. Throws InvalidInput for values out of range, and draws or a seed without
// a sigma.
std::optional<JitterOptions> read_jitter(std::optional<double> sigma, std::optional<int> draws,
                                         std::optional<std::int64_t> seed);
std::string jitter_words(const JitterOptions& options, const JitterReport& report, Time even);
std::string jitter_json(const JitterOptions& options, const JitterReport& report);

}  // namespace headway
