#include "sim/report/step_report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "sim/price/flops.hpp"

namespace headway {

namespace {

// What no price knows of: run-to-run spread, the machine's state and what a framework does that its
// preset does not say. 90 % half-width aimed at; with it 85 % of the published runs that were set
// aside for fitting lie inside their interval, and half of the intervals are narrower than 12 %
// either way (results/validation).
constexpr double kUnmodelledBand = 0.072;

std::size_t index(Cause cause) { return static_cast<std::size_t>(cause); }

Time at(const std::vector<Time>& times, Cause cause) {
  return index(cause) < times.size() ? times[index(cause)] : Time::zero();
}

// The device whose compute stream waits least: the one that decides the step.
std::size_t busiest_device(const Timeline& timeline) {
  std::size_t best = 0;
  Time least = Time::max();
  for (std::size_t d = 0; d < timeline.devices.size(); ++d) {
    Time waits = timeline.devices[d].idle;
    for (const Time time : timeline.devices[d].waiting) waits += time;
    if (waits < least) {
      least = waits;
      best = d;
    }
  }
  return best;
}

Breakdown breakdown_of(const DeviceTotals& totals) {
  const auto both = [&](Cause cause) { return at(totals.busy, cause) + at(totals.waiting, cause); };
  Breakdown parts;
  // Waiting for a computation of the device itself (another stream) is not communication.
  parts.compute = at(totals.busy, Cause::kCompute);
  parts.tp = both(Cause::kTensorParallel);
  parts.cp = both(Cause::kContextParallel);
  parts.ep = both(Cause::kExpertParallel);
  parts.pp = both(Cause::kPipelineParallel);
  parts.dp = both(Cause::kDataParallel);
  parts.optimizer = both(Cause::kOptimizer);
  parts.host = both(Cause::kHost);
  parts.other = both(Cause::kOther);
  parts.bubble = totals.idle + at(totals.waiting, Cause::kCompute);
  return parts;
}

// The critical path by cause, longest first.
std::vector<CausePart> critical_path_of(const Timeline& timeline) {
  std::vector<CausePart> parts;
  for (std::size_t c = 0; c < timeline.critical_path.size(); ++c) {
    if (timeline.critical_path[c] == Time::zero()) continue;
    parts.push_back({std::string(name(static_cast<Cause>(c))), timeline.critical_path[c]});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const CausePart& a, const CausePart& b) { return a.time > b.time; });
  return parts;
}

const TemplateOperation& operation_of(const SimulatedStep& step, const TaskOrigin& origin) {
  return step.program.templates[static_cast<std::size_t>(origin.template_index)]
      .operations[static_cast<std::size_t>(origin.operation)];
}

// How often each task template is played on a device.
std::vector<std::int64_t> plays(const LoweredStep& lowered, std::size_t device) {
  std::vector<std::int64_t> counts(lowered.graph.templates.size(), 0);
  for (const Instance& instance : lowered.graph.instances) {
    if (static_cast<std::size_t>(instance.device) == device) {
      ++counts[static_cast<std::size_t>(instance.task_template)];
    }
  }
  return counts;
}

WorkKind work_kind(const Operation& operation) {
  if (std::holds_alternative<Gemm>(operation)) return WorkKind::kMultiplication;
  if (std::holds_alternative<Attention>(operation)) return WorkKind::kAttention;
  if (std::holds_alternative<Collective>(operation)) return WorkKind::kCommunication;
  return WorkKind::kMemoryBound;
}

Evidence evidence_of(const SimulatedStep& step, std::size_t device) {
  const std::vector<std::int64_t> counts = plays(step.lowered, device);
  Evidence evidence;
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (counts[t] == 0) continue;
    for (const TaskOrigin& origin : step.lowered.origins[t]) {
      // What runs beside compute counts only where it is waited for, and that is booked elsewhere.
      if (operation_of(step, origin).stream != 0) continue;
      evidence.add(step.lowered.prices[static_cast<std::size_t>(origin.price)].price,
                   work_kind(operation_of(step, origin).operation), counts[t]);
    }
  }
  return evidence;
}

std::string group_name(const SimulatedStep& step, const TemplateOperation& operation) {
  if (operation.group < 0) return operation.peer_axis;
  return step.program.groups[static_cast<std::size_t>(operation.group)].name;
}

// Exposed time per cause and kind: what blocks the compute stream, and a share of the waiting for
// its cause in proportion to the time of what runs beside it.
std::vector<CommunicationLine> communication_of(const SimulatedStep& step, std::size_t device) {
  const std::vector<std::int64_t> counts = plays(step.lowered, device);
  struct Line {
    CommunicationLine line;
    Cause cause = Cause::kOther;
    Time beside;
  };
  std::map<std::tuple<int, std::string, std::string, std::int64_t, std::string>, Line> lines;
  std::vector<Time> beside(index(Cause::kOther) + 1);
  for (std::size_t t = 0; t < counts.size(); ++t) {
    if (counts[t] == 0) continue;
    for (const TaskOrigin& origin : step.lowered.origins[t]) {
      const TemplateOperation& operation = operation_of(step, origin);
      const auto* collective = std::get_if<Collective>(&operation.operation);
      if (collective == nullptr) continue;
      const OperationPrice& price = step.lowered.prices[static_cast<std::size_t>(origin.price)];
      if (price.group_size < 2) continue;
      const std::string group = group_name(step, operation);
      Line& entry = lines[{static_cast<int>(operation.cause), std::string(name(collective->kind)),
                           group, size(*collective).count, price.collective.algorithm}];
      CommunicationLine& line = entry.line;
      line.kind = name(collective->kind);
      line.group = group;
      line.size = price.group_size;
      line.bytes_per_rank = size(*collective);
      line.count += counts[t];
      line.algorithm = price.collective.algorithm;
      line.protocol = price.collective.protocol;
      const Time all = price.price.time * counts[t];
      line.time += all;
      entry.cause = operation.cause;
      if (operation.stream == 0) {
        line.exposed += all;
      } else {
        entry.beside += all;
        beside[index(operation.cause)] += all;
      }
    }
  }
  const DeviceTotals& totals = step.timeline.devices[device];
  std::vector<CommunicationLine> result;
  for (auto& [unused, entry] : lines) {
    const Time waited = at(totals.waiting, entry.cause);
    const Time all = beside[index(entry.cause)];
    if (all > Time::zero()) {
      entry.line.exposed +=
          Time::from_seconds(waited.seconds() * entry.beside.seconds() / all.seconds());
    }
    // Waiting beyond the time of the thing itself is for something else that it waited for.
    entry.line.exposed = std::min(entry.line.exposed, entry.line.time);
    result.push_back(entry.line);
  }
  return result;
}

// Of packed sequences the sum over their documents, which attend to themselves alone; padding
// counts as a document.
Flops step_model_flops(const Job& job, FlopsConvention convention) {
  if (job.packs.empty()) {
    return model_flops(job.model, job.sequence_length, job.global_batch, convention);
  }
  std::map<std::int64_t, std::int64_t> documents;  // how many, by length
  for (const std::vector<std::int64_t>& pack : job.packs) {
    for (const std::int64_t length : pack) ++documents[length];
  }
  double count = 0;
  for (const auto& [length, many] : documents) {
    count += model_flops(job.model, length, many, convention).count;
  }
  return {count * static_cast<double>(job.global_batch) / static_cast<double>(job.packs.size())};
}

void add_throughput(const Job& job, const SimulatedStep& step, const Profile& profile,
                    const ReportOptions& options, StepReport& report) {
  const double seconds = report.iteration.seconds();
  if (seconds <= 0) return;
  const auto sequences = static_cast<double>(job.global_batch);
  report.samples_per_s = sequences / seconds;
  report.tokens_per_s = report.samples_per_s * static_cast<double>(job.sequence_length);
  report.tokens_per_s_per_gpu = report.tokens_per_s / report.gpus;
  const Flops model = step_model_flops(job, options.flops);
  report.model_flops_per_s_per_gpu = model.count / seconds / report.gpus;
  const auto peak = profile.device.dense_peak.find(compute_type(job.precision));
  if (peak == profile.device.dense_peak.end() || peak->second.per_second <= 0) return;
  report.mfu = report.model_flops_per_s_per_gpu / peak->second.per_second;
  const Flops executed = hardware_flops(step.program);
  report.hfu = executed.count / seconds / report.gpus / peak->second.per_second;
}

void add_energy_and_cost(const Job& job, StepReport& report) {
  const double seconds = report.iteration.seconds();
  if (const auto watts = job.topology.watts_per_node()) {
    report.energy_j = *watts * job.topology.nodes() * seconds;
  }
  if (const auto dollars = job.topology.dollars_per_gpu_hour()) {
    constexpr double kSecondsPerHour = 3600;
    report.cost_usd = *dollars * report.gpus * seconds / kSecondsPerHour;
  }
}

}  // namespace

StepReport report_step(const Job& job, const Profile& profile, const SimulatedStep& step,
                       const ReportOptions& options) {
  return report_step(job, profile, step, report_memory(job, step.program, profile.device), options);
}

StepReport report_step(const Job& job, const Profile& profile, const SimulatedStep& step,
                       MemoryReport memory, const ReportOptions& options) {
  StepReport report;
  report.gpus = job.gpus();
  report.dp = job.plan.dp;
  report.iteration = step.timeline.makespan;
  report.events = step.timeline.events;
  report.rank_classes = step.lowered.graph.devices;
  for (const Wait& wait : step.timeline.deadlock) report.deadlock.push_back(describe(step, wait));
  report.memory = std::move(memory);
  if (!report.deadlock.empty()) return report;

  const std::size_t device = busiest_device(step.timeline);
  report.breakdown = breakdown_of(step.timeline.devices[device]);
  report.bubble_fraction = report.iteration > Time::zero()
                               ? report.breakdown.bubble.seconds() / report.iteration.seconds()
                               : 0;
  report.critical_path = critical_path_of(step.timeline);
  report.evidence = evidence_of(step, device);
  const double band = std::hypot(report.evidence.band(), kUnmodelledBand);
  report.interval_low = Time::from_seconds(report.iteration.seconds() * (1 - band));
  report.interval_high = Time::from_seconds(report.iteration.seconds() * (1 + band));
  report.communication = communication_of(step, device);
  add_throughput(job, step, profile, options, report);
  add_energy_and_cost(job, report);
  return report;
}

}  // namespace headway
