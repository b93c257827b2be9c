#include "sim/report/text.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <vector>

#include "sim/core/quantity.hpp"
#include "sim/plan/expert_loads.hpp"

namespace headway {

namespace {

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char text[256];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string row(const std::string& title, const std::string& words) {
  constexpr std::size_t kTitleWidth = 12;
  return title + std::string(kTitleWidth - title.size(), ' ') + words + "\n";
}

// "143,874"
std::string grouped(double number) {
  std::string digits = print("%.0f", number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string counted(std::int64_t count, const std::string& noun) {
  const char* ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count) + " " + noun + ending;
}

std::string plan_words(const Job& job) {
  const ParallelPlan& plan = job.plan;
  std::string words = print("tp %d x ", plan.tp);
  if (plan.cp > 1) words += print("cp %d x ", plan.cp);
  words += print("pp %d x dp %d", plan.pp, plan.dp);
  if (job.model.num_experts > 0) {
    words += print(", experts over ep %d x etp %d", plan.ep, plan.etp);
    const double dropped = dropped_share(plan.moe.loads, plan.moe.capacity_factor);
    if (dropped > 0) words += print(" (%.1f %% of the choices dropped)", 100 * dropped);
  }
  if (plan.pp > 1) words += ", " + plan.schedule;
  if (plan.vpp > 1) words += print(" (vpp %d)", plan.vpp);
  if (!plan.synchronous_optimizer) words += ", optimizer validated afterwards";
  if (plan.vocabulary != Vocabulary::kLastStage) {
    words += ", vocabulary " + std::string(name(plan.vocabulary));
  }
  words += ", " + counted(plan.micro_batches, "micro-batch") + " of " +
           counted(plan.micro_batch, "sequence");
  words += print(" of %lld tokens", static_cast<long long>(job.sequence_length));
  if (plan.recompute != Recompute::kNothing) {
    words += ", recompute " + std::string(name(plan.recompute));
  }
  if (plan.sequence_parallel && plan.tp > 1) words += ", sequence parallel";
  if (plan.tp_overlap == TensorOverlap::kRing) words += " in rings";
  if (plan.tp_kind != TensorKind::k1d) words += ", " + std::string(name(plan.tp_kind)) + " tensors";
  if (plan.cp > 1) words += ", " + std::string(name(plan.cp_kind)) + " attention";
  if (plan.dp * plan.cp > 1) words += ", " + std::string(name(plan.dp_kind));
  return words;
}

struct Part {
  const char* key;
  const char* words;
  Time time;
};

// The parts of the step that matter, largest first.
std::vector<Part> parts_of(const StepReport& report) {
  const Breakdown& b = report.breakdown;
  std::vector<Part> parts = {{"compute", "compute", b.compute},
                             {"tp", "tensor-parallel communication", b.tp},
                             {"cp", "context-parallel communication", b.cp},
                             {"ep", "expert-parallel communication", b.ep},
                             {"pp", "messages between pipeline stages", b.pp},
                             {"dp", "data-parallel communication", b.dp},
                             {"bubble", "the pipeline bubble", b.bubble},
                             {"optimizer", "the optimizer", b.optimizer},
                             {"host", "waiting for the host", b.host},
                             {"other", "everything else", b.other}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& x, const Part& y) { return x.time > y.time; });
  return parts;
}

double share_of(Time time, const StepReport& report) {
  return time.seconds() / report.iteration.seconds() * 100;
}

std::string breakdown_words(const StepReport& report) {
  std::string words;
  for (const Part& part : parts_of(report)) {
    const double share = share_of(part.time, report);
    constexpr double kWorthSaying = 0.05;  // per cent
    if (share < kWorthSaying) continue;
    words += print("%s%s %.1f %%", words.empty() ? "" : ", ", part.key, share);
  }
  return words;
}

// What limits the step, in one sentence: the greatest part of the critical path, and what the
// busiest rank loses most to.
std::string limit_words(const StepReport& report) {
  std::string words;
  if (!report.critical_path.empty()) {
    const CausePart& first = report.critical_path.front();
    words = print("%s, %.0f %% of the critical path", first.cause.c_str(),
                  share_of(first.time, report));
  }
  for (const Part& part : parts_of(report)) {
    if (std::string(part.key) == "compute") continue;
    words += words.empty() ? "" : "; ";
    words += print("the busiest rank loses most to %s, %.1f %%", part.words,
                   share_of(part.time, report));
    break;
  }
  return words;
}

std::string stage_row(const std::string& title, const StageMemory& stage) {
  return print("  %-10s%10.2f  %9.2f  %9.2f  %11.2f  %7.2f  %5.2f  %6.2f\n", title.c_str(),
               stage.parameters.gib(), stage.gradients.gib(), stage.optimizer.gib(),
               stage.activations.gib(), stage.buffers.gib(),
               (stage.workspace + stage.context).gib(), stage.peak.gib());
}

// The first, the fullest and the last stage, and a line for the rest.
std::string stage_table(const MemoryReport& memory) {
  std::string text =
      "  GiB       parameters  gradients  optimizer  activations  buffers  other    peak\n";
  const std::size_t last = memory.per_stage.size() - 1;
  const auto fullest = static_cast<std::size_t>(memory.fullest_stage);
  Bytes least{std::numeric_limits<std::int64_t>::max()}, most{};
  std::size_t others = 0;
  for (std::size_t s = 0; s <= last; ++s) {
    const StageMemory& stage = memory.per_stage[s];
    if (s == 0 || s == last || s == fullest) {
      text += stage_row("stage " + std::to_string(s), stage);
      continue;
    }
    ++others;
    least = std::min(least, stage.peak);
    most = std::max(most, stage.peak);
  }
  if (others == 1) text += print("  the stage between: %.2f\n", most.gib());
  if (others > 1) {
    text += print("  the %zu stages between: %.2f to %.2f\n", others, least.gib(), most.gib());
  }
  return text;
}

std::string memory_words(const MemoryReport& memory) {
  std::string verdict;
  if (memory.fits) {
    verdict = print("fits: %.1f of %.1f GiB", memory.device.gib(), memory.capacity.gib());
    if (memory.per_stage.size() > 1)
      verdict += print(" on stage %d, the fullest", memory.fullest_stage);
  } else {
    verdict = "does not fit: " + memory.why;
  }
  std::string host;
  if (memory.host.count > 0) {
    host = row("host", print("%.1f of %.1f GiB that a GPU has of its node's memory",
                             memory.host.gib(), memory.host_capacity.gib()));
  }
  return row("memory", verdict) + stage_table(memory) + host;
}

std::string communication_words(const StepReport& report) {
  std::vector<CommunicationLine> lines = report.communication;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.exposed > b.exposed; });
  constexpr std::size_t kShown = 4;
  constexpr double kWorthSaying = 0.05;  // per cent
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) {
    const CommunicationLine& line = lines[i];
    if (share_of(line.exposed, report) < kWorthSaying) break;
    text += print("  %-14s %-9s %5d ranks  %6lld x %-9s  %-9s %8s, exposed %s\n", line.kind.c_str(),
                  line.group.c_str(), line.size, static_cast<long long>(line.count),
                  to_text(line.bytes_per_rank).c_str(), line.algorithm.c_str(),
                  to_text(line.time).c_str(), to_text(line.exposed).c_str());
  }
  return text.empty() ? text : "communication of the busiest rank\n" + text;
}

std::string evidence_words(const Evidence& evidence) {
  std::string words;
  for (const Grade grade :
       {Grade::kMeasured, Grade::kFitted, Grade::kExtrapolated, Grade::kAnchored}) {
    const double share = evidence.share(grade) * 100;
    constexpr double kWorthSaying = 0.5;  // per cent
    if (share < kWorthSaying) continue;
    words +=
        print("%s%.0f %% %s", words.empty() ? "" : ", ", share, std::string(name(grade)).c_str());
  }
  return words;
}

std::string efficiency_words(const StepReport& report) {
  std::string words = print("%.1f TFLOP/s per GPU", report.model_flops_per_s_per_gpu / 1e12);
  if (report.mfu > 0) {
    words += print(", MFU %.1f %%, HFU %.1f %%", report.mfu * 100, report.hfu * 100);
  }
  return words;
}

std::string price_words(const StepReport& report) {
  constexpr double kJoulesPerKilowattHour = 3.6e6;
  std::string words;
  if (report.cost_usd) words = print("%.4g $", *report.cost_usd);
  if (report.energy_j) {
    words +=
        print("%s%.3g kWh", words.empty() ? "" : ", ", *report.energy_j / kJoulesPerKilowattHour);
  }
  return words + " a step";
}

// Where few ranks do the same thing at the same time, simulating takes long; that is said.
std::string folding_words(const StepReport& report) {
  constexpr int kWorthSaying = 64;
  if (report.rank_classes < kWorthSaying || 2 * report.rank_classes < report.gpus) return "";
  return row("ranks", std::to_string(report.rank_classes) + " of " + std::to_string(report.gpus) +
                          " differ and were simulated one by one");
}

}  // namespace

std::string summary(const Job& job, const StepReport& report) {
  std::string text = job.model.name + " on " + std::to_string(report.gpus) + " x " + job.profile +
                     " (" + job.topology.name() + "), " + job.software.framework + "\n" +
                     plan_words(job) + "\n\n";
  if (!report.deadlock.empty()) {
    text += "the schedule deadlocks:\n";
    for (const std::string& wait : report.deadlock) text += "  " + wait + "\n";
    return text;
  }
  const bool exact = report.interval_low == report.iteration &&
                     report.interval_high == report.iteration;  // measured once
  text += row("step", to_text(report.iteration) +
                          (exact ? ""
                                 : ", with 90 % confidence " + to_text(report.interval_low) +
                                       " to " + to_text(report.interval_high)));
  text += row("throughput", grouped(report.tokens_per_s) + " tokens/s, " +
                                grouped(report.tokens_per_s_per_gpu) + " per GPU; " +
                                print("%.4g samples/s", report.samples_per_s));
  text += row("efficiency", efficiency_words(report));
  text += row("time", breakdown_words(report));
  text += row("limit", limit_words(report));
  text += memory_words(report.memory);
  text += communication_words(report);
  text += row("evidence", evidence_words(report.evidence));
  if (report.cost_usd || report.energy_j) text += row("price", price_words(report));
  text += folding_words(report);
  return text;
}

}  // namespace headway
