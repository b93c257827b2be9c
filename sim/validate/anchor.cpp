#include "sim/validate/anchor.hpp"

#include <algorithm>

#include "sim/report/step_report.hpp"

namespace headway {

namespace {

// A category of which less than this share of the step is predicted says nothing of its prices.
constexpr double kWorthCorrecting = 0.005;
// Measured over predicted beyond this is another job, not an error of its prices.
constexpr double kMostCorrection = 5;

struct Category {
  const char* key;
  Cause cause;
  Time Breakdown::*part;
};
constexpr Category kCategories[] = {{"compute", Cause::kCompute, &Breakdown::compute},
                                    {"tp", Cause::kTensorParallel, &Breakdown::tp},
                                    {"cp", Cause::kContextParallel, &Breakdown::cp},
                                    {"ep", Cause::kExpertParallel, &Breakdown::ep},
                                    {"pp", Cause::kPipelineParallel, &Breakdown::pp},
                                    {"dp", Cause::kDataParallel, &Breakdown::dp},
                                    {"optimizer", Cause::kOptimizer, &Breakdown::optimizer},
                                    {"host", Cause::kHost, &Breakdown::host}};

class Anchor {
 public:
  explicit Anchor(const MeasuredRun& run)
      : run_(run), job_(read(run)), profile_(read_profile(job_.profile)) {}

  Correction run() {
    if (!run_.iteration_time) {
      throw InvalidInput(run_.file, "", "the run '" + run_.id + "' states no iteration_time_s");
    }
    const Breakdown parts = step_with({}).breakdown;
    const double predicted = parts.total().seconds();
    Correction correction;
    for (const Category& category : kCategories) {
      const auto measured = run_.breakdown.find(category.key);
      const double part = (parts.*category.part).seconds();
      if (measured == run_.breakdown.end() || part < kWorthCorrecting * predicted) continue;
      correction.factor(category.cause) = limited(measured->second.seconds() / part);
    }
    // What is left of the time is everybody's; overlap makes that not quite linear.
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
      const double left =
          run_.iteration_time->seconds() / step_with(correction).iteration.seconds();
      for (double& factor : correction.factors) factor = limited(factor * left);
    }
    return correction;
  }

 private:
  static Job read(const MeasuredRun& run) {
    Problems problems;
    JobReading reading = read_job(run.job, {}, problems);
    for (const NotYetBuilt& missing : reading.not_built)
      problems.add(run.file, missing.pointer, missing.rule + " is not built yet in this version");
    problems.throw_if_any();
    return std::move(*reading.job);
  }

  static double limited(double factor) {
    return std::clamp(factor, 1 / kMostCorrection, kMostCorrection);
  }

  StepReport step_with(const Correction& correction) const {
    Job job = job_;
    job.software = corrected(job.software, correction);
    const PriceBook prices(profile_, correction);
    StepOptions options;
    options.prices = &prices;
    return report_step(job, profile_, simulate_step(job, profile_, options));
  }

  const MeasuredRun& run_;
  Job job_;
  Profile profile_;
};

}  // namespace

Correction anchored_by(const MeasuredRun& run) { return Anchor(run).run(); }

Software corrected(Software software, const Correction& correction) {
  const double factor = correction.factor(Cause::kHost);
  for (Time* const time : {&software.host_per_kernel_forward, &software.host_per_kernel_backward,
                           &software.host_per_micro_batch, &software.host_per_step}) {
    *time = Time::from_seconds(time->seconds() * factor);
  }
  return software;
}

}  // namespace headway
