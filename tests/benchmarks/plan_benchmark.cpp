// How fast plans are judged and simulated: the default space of Llama-3 70B on 512 H100 for
// Megatron-core, every plan that fits in one iteration, on one thread. `items` are plans. A
// simulated plan is lowered, priced, folded and played; judged ones are lowered, their memory found
// exactly, and given a bound.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "sim/core/heap.hpp"
#include "sim/price/memory.hpp"
#include "sim/program/training_step.hpp"
#include "sim/search/plan_search.hpp"
#include "sim/search/step_bound.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {
namespace {

constexpr const char* kJob = R"({
  "model": "llama3-70b", "cluster": {"topology": "dgx-h100", "gpus": 512},
  "sequence_length": 8192, "global_batch": 1024, "software": {"framework": "megatron-core"}})";

struct Plans {
  Profile profile;
  std::vector<Job> legal, fitting;
};

const Plans& plans() {
  static const Plans all = [] {
    Plans found;
    Problems problems;
    const auto job = OpenJob::read(JsonNode::parse_text(kJob, "job"), {}, problems);
    problems.throw_if_any();
    found.profile = read_profile(job->profile());
    const FrameworkReach& reach = framework_reach(job->software().framework);
    const PlanSpace space(*job, reach, {}, problems);
    space.for_each_row([&](const PlanChoice& row) {
      for (const std::string& size : space.micro_batches(row)) {
        PlanChoice choice = row;
        choice.back() = size;
        Problems wrong;
        JobReading reading =
            job->with_plan(JsonNode::parse_text(space.plan_text(choice), "plan"), wrong);
        if (!reading.job || !launch_refusal(reach, *reading.job).empty()) continue;
        found.legal.push_back(*reading.job);
        const MemoryReport memory =
            report_memory(*reading.job, lower(*reading.job), found.profile.device);
        if (!memory.fits) break;
        found.fitting.push_back(std::move(*reading.job));
      }
      return true;
    });
    return found;
  }();
  return all;
}

void count_plans(benchmark::State& state, std::size_t plans) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * plans));
  state.counters["plans"] = static_cast<double>(plans);
}

void simulate_plans(benchmark::State& state, bool overlap) {
  const Plans& all = plans();
  const PriceBook prices(all.profile);
  StepOptions options;
  options.prices = &prices;
  for (auto _ : state) {
    for (Job job : all.fitting) {
      if (!overlap) job.plan.overlap_grad_reduce = job.plan.overlap_param_gather = false;
      benchmark::DoNotOptimize(simulate_step(job, all.profile, options).timeline.makespan);
    }
  }
  count_plans(state, all.fitting.size());
}
void with_overlap(benchmark::State& state) { simulate_plans(state, true); }
void without_overlap(benchmark::State& state) { simulate_plans(state, false); }
BENCHMARK(with_overlap)->Unit(benchmark::kMillisecond);
BENCHMARK(without_overlap)->Unit(benchmark::kMillisecond);

void judge_plans(benchmark::State& state) {
  const Plans& all = plans();
  const PriceBook prices(all.profile);
  for (auto _ : state) {
    for (const Job& job : all.legal) {
      const Program program = lower(job);
      benchmark::DoNotOptimize(report_memory(job, program, all.profile.device).peak);
      benchmark::DoNotOptimize(least_step_time(job, program, prices));
    }
  }
  count_plans(state, all.legal.size());
}
BENCHMARK(judge_plans)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace headway

int main(int argc, char** argv) {
  headway::use_huge_pages();  // as the program does
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
