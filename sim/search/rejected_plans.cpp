#include "sim/search/rejected_plans.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

namespace headway {

namespace {

std::string gib(Bytes bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes.gib());
  return text;
}

// Keys that are one decision: how much is recomputed, how the pipeline is run.
std::string decision_of(const std::string& key) {
  if (key == "recompute_layers") return "recompute";
  return key == "vpp" ? "schedule" : key;
}

using Decisions = std::set<std::string>;

class Rejections {
 public:
  Rejections(const PlanSpace& space, const std::vector<JudgedPlan>& judged, Bytes allowed)
      : keys_(space.keys()), judged_(judged), allowed_(allowed) {}

  std::vector<RejectedPlans> explain(const PlanChoice* answer) const {
    struct Group {
      std::int64_t count = 0;
      const JudgedPlan* nearest = nullptr;
      std::int64_t distance = std::numeric_limits<std::int64_t>::max();
    };
    std::map<std::string, Group> groups;
    for (const JudgedPlan& plan : judged_) {
      if (plan.verdict == Verdict::kFits) continue;
      Group& group = groups[plan.reason];
      ++group.count;
      const std::int64_t distance = distance_of(plan, answer);
      if (distance >= group.distance) continue;
      group.distance = distance;
      group.nearest = &plan;
    }
    std::vector<RejectedPlans> rejected;
    for (const auto& [reason, group] : groups) {
      rejected.push_back({reason, group.count, miss_words(*group.nearest)});
    }
    std::stable_sort(rejected.begin(), rejected.end(),
                     [](const auto& a, const auto& b) { return a.count > b.count; });
    return rejected;
  }

 private:
  // Over memory: by how much; illegal: in how many decisions it differs from the answer.
  std::int64_t distance_of(const JudgedPlan& plan, const PlanChoice* answer) const {
    if (plan.verdict == Verdict::kOverMemory) return plan.need.count;
    if (answer == nullptr) return 0;
    return static_cast<std::int64_t>(differences(plan.choice, *answer).size());
  }

  std::string miss_words(const JudgedPlan& plan) const {
    const std::string words = choice_words(keys_, plan.choice) + ": ";
    if (plan.verdict == Verdict::kIllegal) return words + plan.message;
    std::string text = words + "needs " + gib(plan.need) + " of " + gib(allowed_);
    const JudgedPlan* best = nullptr;
    for (const JudgedPlan& other : judged_) {
      if (other.verdict != Verdict::kFits || differences(other.choice, plan.choice).size() != 1)
        continue;
      if (best == nullptr || other.bound < best->bound) best = &other;
    }
    if (best != nullptr) text += "; would fit with " + change_words(plan.choice, best->choice);
    return text;
  }

  Decisions differences(const PlanChoice& a, const PlanChoice& b) const {
    Decisions decisions;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) decisions.insert(decision_of(keys_[i]));
    }
    return decisions;
  }

  std::string change_words(const PlanChoice& from, const PlanChoice& to) const {
    const Decisions decisions = differences(from, to);
    PlanChoice changed(to.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (decisions.contains(decision_of(keys_[i]))) changed[i] = to[i];
    }
    return choice_words(keys_, changed);
  }

  const std::vector<std::string>& keys_;
  const std::vector<JudgedPlan>& judged_;
  Bytes allowed_;
};

}  // namespace

std::vector<RejectedPlans> explain_rejections(const PlanSpace& space,
                                              const std::vector<JudgedPlan>& judged, Bytes allowed,
                                              const PlanChoice* best) {
  return Rejections(space, judged, allowed).explain(best);
}

std::string choice_words(const std::vector<std::string>& keys, const PlanChoice& choice) {
  std::string words;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (choice[i].empty()) continue;
    std::string value = choice[i];
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    words += (words.empty() ? "" : ", ") + keys[i] + " " + value;
  }
  return words;
}

}  // namespace headway
