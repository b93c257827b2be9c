#include "sim/report/text.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "sim/core/quantity.hpp"

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

std::string plan_words(const Job& job) {
  const ParallelPlan& plan = job.plan;
  std::string words = print("tp %d x pp %d x dp %d", plan.tp, plan.pp, plan.dp);
  if (plan.pp > 1) words += ", " + plan.schedule;
  if (plan.vpp > 1) words += print(" (vpp %d)", plan.vpp);
  words += print(", %lld micro-batches of %lld", static_cast<long long>(plan.micro_batches),
                 static_cast<long long>(plan.micro_batch));
  if (plan.recompute != Recompute::kNone) {
    words += std::string(", recompute ") +
             (plan.recompute == Recompute::kFull ? "full" : "selective");
  }
  if (plan.sequence_parallel && plan.tp > 1) words += ", sequence parallel";
  return words;
}

// The parts of the step that matter, largest first.
std::string breakdown_words(const StepReport& report) {
  const Breakdown& b = report.breakdown;
  std::vector<std::pair<const char*, Time>> parts = {
      {"compute", b.compute}, {"tp", b.tp},         {"cp", b.cp},     {"ep", b.ep},
      {"pp", b.pp},           {"dp", b.dp},         {"bubble", b.bubble},
      {"optimizer", b.optimizer}, {"host", b.host}, {"other", b.other}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  std::string words;
  for (const auto& [cause, time] : parts) {
    const double share = time.seconds() / report.iteration.seconds() * 100;
    constexpr double kWorthSaying = 0.05;  // per cent
    if (share < kWorthSaying) continue;
    words += print("%s%s %.1f %%", words.empty() ? "" : ", ", cause, share);
  }
  return words;
}

std::string memory_words(const MemoryReport& memory) {
  std::string text = print("memory      %.1f of %.1f GiB on the fullest stage: ", memory.device.gib(),
                           memory.capacity.gib());
  if (!memory.fits) return text + "does not fit: " + memory.why + "\n";
  text += "fits\n";
  const std::size_t stages = memory.per_stage.size();
  text += "  stage   parameters  gradients  optimizer  activations  buffers  rest     peak (GiB)\n";
  for (std::size_t s = 0; s < stages; ++s) {
    // First, last, and what differs from its neighbour: equal stages in between are one row.
    if (s > 0 && s + 1 < stages && memory.per_stage[s].peak == memory.per_stage[s - 1].peak) continue;
    const StageMemory& stage = memory.per_stage[s];
    text += print("  %5zu  %11.2f  %9.2f  %9.2f  %11.2f  %7.2f  %4.2f  %7.2f\n", s,
                  stage.parameters.gib(), stage.gradients.gib(), stage.optimizer.gib(),
                  stage.activations.gib(), stage.buffers.gib(),
                  (stage.workspace + stage.context).gib(), stage.peak.gib());
  }
  return text;
}

std::string communication_words(const StepReport& report) {
  std::vector<CommunicationLine> lines = report.communication;
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return a.exposed > b.exposed;
  });
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) {
    const CommunicationLine& line = lines[i];
    text += print("  %-14s over %-4s (%d ranks)  %6lld x %-10s %-6s %8s, exposed %s\n",
                  line.kind.c_str(), line.group.c_str(), line.size,
                  static_cast<long long>(line.count), to_text(line.bytes_per_rank).c_str(),
                  line.algorithm.c_str(), to_text(line.time).c_str(), to_text(line.exposed).c_str());
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
    words += print("%s%.0f %% %s", words.empty() ? "" : ", ", share, std::string(name(grade)).c_str());
  }
  return words;
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
  text += "step        " + to_text(report.iteration) + "  (90 %: " + to_text(report.interval_low) +
          " to " + to_text(report.interval_high) + ")\n";
  text += print("throughput  %.0f tokens/s, %.1f per GPU, %.2f samples/s\n", report.tokens_per_s,
                report.tokens_per_s_per_gpu, report.samples_per_s);
  text += print("efficiency  %.1f TFLOP/s per GPU, MFU %.1f %%, HFU %.1f %%\n",
                report.model_flops_per_s_per_gpu / 1e12, report.mfu * 100, report.hfu * 100);
  text += "time        " + breakdown_words(report) + "\n";
  text += "evidence    " + evidence_words(report.evidence) + "\n";
  text += memory_words(report.memory);
  text += communication_words(report);
  return text;
}

}  // namespace headway
