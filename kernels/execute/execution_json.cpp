#include "kernels/execute/execution_json.hpp"

#include <cmath>

#include "sim/core/json_writer.hpp"
#include "sim/engine/timeline_json.hpp"

namespace headway {
namespace {

// Problems beyond these are counted, not told.
constexpr std::size_t kToldProblems = 20;

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFinished:
      return "finished";
    case Outcome::kDeadlock:
      return "deadlock";
    case Outcome::kFailed:
      return "failed";
  }
  return "";
}

void write_lines(JsonWriter& json, const char* key, const std::vector<std::string>& lines) {
  json.key(key).begin_array();
  for (const std::string& line : lines) json.value(line);
  json.end_array();
}

// JSON has no NaN.
void write_number(JsonWriter& json, const char* key, double number) {
  json.key(key);
  if (std::isfinite(number)) {
    json.value(number);
  } else {
    json.null();
  }
}

void write_worst(JsonWriter& json, const char* key, double worst, const std::string& tensor,
                 double limit) {
  json.key(key).begin_object(true);
  write_number(json, "worst", worst);
  json.field("tensor", tensor).field("limit", limit).end_object();
}

void write_check(JsonWriter& json, const CheckReport& check) {
  json.key("check").begin_object();
  json.field("passed", check.passed).field("precision", check.precision);
  json.field("steps", check.steps);
  write_number(json, "loss_error", check.loss_error);
  write_worst(json, "gradients", check.gradient_error, check.gradient_tensor, check.limit);
  write_worst(json, "parameters", check.parameter_error, check.parameter_tensor, check.limit);
  json.field("order_demands", check.order_demands);
  json.field("order_violations", check.order_violations);
  std::vector<std::string> told(
      check.problems.begin(), check.problems.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                           check.problems.size(), kToldProblems)));
  if (told.size() < check.problems.size()) {
    told.push_back("and " + std::to_string(check.problems.size() - told.size()) + " more");
  }
  write_lines(json, "problems", told);
  json.end_object();
}

}  // namespace

std::string execution_json(const ExecutionResult& result, const std::optional<CheckReport>& check) {
  JsonWriter json(1);
  json.begin_object().field("outcome", name_of(result.outcome));
  write_lines(json, "messages", result.messages);
  write_lines(json, "deadlock", result.deadlock);
  json.key("steps").begin_array();
  for (const ExecutedStep& step : result.steps) {
    json.begin_object(true);
    write_number(json, "loss", step.loss);
    json.field("duration_ps", step.duration.picoseconds).end_object();
  }
  json.end_array();
  json.key("peak_bytes").begin_array(true);
  for (const Bytes peak : result.peak) json.value(peak.count);
  json.end_array();
  json.key("resident_bytes").begin_array(true);
  for (const Bytes grown : result.resident) json.value(grown.count);
  json.end_array();
  if (check) write_check(json, *check);
  json.key("timeline");
  write_timeline(json, result.timeline);
  json.end_object();
  return json.text();
}

}  // namespace headway
