#include "sim/search/plan_judge.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "sim/program/training_step.hpp"
#include "sim/search/step_bound.hpp"

namespace headway {

namespace {

// "tp: 16 does not divide the 96 attention heads" -> "tp: N does not divide the N attention heads":
// the same fault of many plans.
std::string without_numbers(const std::string& message) {
  std::string text;
  for (std::size_t i = 0; i < message.size(); ++i) {
    const bool digit = message[i] >= '0' && message[i] <= '9';
    const bool inside_word =
        i > 0 && (std::isalpha(static_cast<unsigned char>(message[i - 1])) != 0);
    if (!digit || inside_word) {
      text += message[i];
      continue;
    }
    text += 'N';
    while (i + 1 < message.size() && message[i + 1] >= '0' && message[i + 1] <= '9') ++i;
  }
  return text;
}

std::string last_key(const std::string& pointer) {
  const std::size_t slash = pointer.rfind('/');
  const std::string key = slash == std::string::npos ? pointer : pointer.substr(slash + 1);
  return key.empty() || key == "plan" ? "" : key + ": ";
}

std::string largest_line(const StageMemory& stage) {
  const std::pair<const char*, Bytes> lines[] = {{"parameters", stage.parameters},
                                                 {"gradients", stage.gradients},
                                                 {"optimizer state", stage.optimizer},
                                                 {"activations", stage.activations},
                                                 {"buffers", stage.buffers},
                                                 {"workspace", stage.workspace},
                                                 {"context", stage.context}};
  return std::max_element(std::begin(lines), std::end(lines),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

PlanJudge::PlanJudge(const OpenJob& job, const PlanSpace& space, const FrameworkReach& reach,
                     const PriceBook& prices, double memory_margin)
    : job_(job), space_(space), reach_(reach), prices_(prices) {
  const auto capacity = static_cast<double>(prices.profile().device.memory.count);
  allowed_ = Bytes{static_cast<std::int64_t>(capacity * (1 - memory_margin))};
}

std::vector<JudgedPlan> PlanJudge::judge_row(const PlanChoice& row,
                                             const std::function<bool()>& stopped) const {
  std::vector<JudgedPlan> plans;
  for (const std::string& micro_batch : space_.micro_batches(row)) {
    if (stopped()) break;
    JudgedPlan plan;
    plan.choice = row;
    if (!micro_batch.empty()) plan.choice.back() = micro_batch;
    judge(plan);
    plans.push_back(std::move(plan));
    if (plans.back().verdict == Verdict::kOverMemory && space_.ends_with_memory()) break;
  }
  return plans;
}

Job PlanJudge::job_of(const PlanChoice& choice) const {
  JudgedPlan plan;
  plan.choice = choice;
  return *legal_job(plan);
}

void PlanJudge::judge(JudgedPlan& plan) const {
  const std::optional<Job> job = legal_job(plan);
  if (!job) return;
  try {
    const Program program = lower(*job);
    const MemoryReport memory = report_memory(*job, program, prices_.profile().device);
    plan.need = needed_memory(memory);
    if (plan.need > allowed_) {
      plan.verdict = Verdict::kOverMemory;
      plan.reason = "over memory, most of it " +
                    largest_line(memory.per_stage[static_cast<std::size_t>(memory.fullest_stage)]);
      return;
    }
    plan.bound = least_step_time(*job, program, prices_);
    plan.verdict = Verdict::kFits;
  } catch (const InvalidInput& error) {  // the profile lacks a price
    plan.reason = without_numbers(error.problems().front().message);
    plan.message = error.problems().front().message;
  }
}

// The job with the plan; nothing where it is illegal, with the reason.
std::optional<Job> PlanJudge::legal_job(JudgedPlan& plan) const {
  Problems problems;
  JobReading reading =
      job_.with_plan(JsonNode::parse_text(space_.plan_text(plan.choice), "plan"), problems);
  const auto refuse = [&](const std::string& key, const std::string& message) {
    plan.reason = key + without_numbers(message);
    plan.message = message;
    return std::nullopt;
  };
  if (!problems.empty()) {
    const Problem& first = problems.list().front();
    return refuse(last_key(first.pointer), first.message);
  }
  if (!reading.not_built.empty()) {
    return refuse("", reading.not_built.front().rule + " is not built yet in this version");
  }
  if (const std::string why = launch_refusal(reach_, *reading.job); !why.empty()) {
    return refuse("", why);
  }
  return std::move(reading.job);
}

Bytes needed_memory(const MemoryReport& memory) { return std::max(memory.peak, memory.device); }

}  // namespace headway
