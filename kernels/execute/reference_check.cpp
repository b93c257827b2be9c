#include "kernels/execute/reference_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/rank_memory.hpp"

namespace headway {
namespace {

// Tensors whose norm is below this share of the whole gradient's are judged by that instead.
constexpr double kNegligible = 1e-6;

// A bias of a key cannot change a softmax: its gradient is zero, and what is found instead is the
// rounding of terms as large as others of its layer. So an error of one unit of roundoff of the
// layer's whole gradient is none (a sum of n terms is off by about as many units of the sum of
// their sizes: Higham 2002, section 4.2).
double unit_roundoff(DataType type) {
  switch (type) {
    case DataType::kFp64:
    case DataType::kFp8:  // all else is held in 64 bits (held_in_double)
      return 0x1p-53;
    case DataType::kFp32:
      return 0x1p-24;
    case DataType::kTf32:
    case DataType::kFp16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

// "layers.7" of "layers.7.attention.key_bias"; empty for what is in no layer.
std::string layer_of(const std::string& tensor) {
  if (!tensor.starts_with("layers.")) return "";
  return tensor.substr(0, tensor.find('.', std::string("layers.").size()));
}

std::map<std::string, double> norms_by_layer(const GlobalTensors& tensors) {
  std::map<std::string, double> norms;
  for (const auto& [name, tensor] : tensors.tensors()) {
    double& sum = norms[layer_of(name)];
    for (const double value : tensor.values) sum += value * value;
  }
  for (auto& [layer, norm] : norms) norm = std::sqrt(norm);
  return norms;
}

std::string scientific(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

struct Worst {
  double error = 0;
  std::string tensor;
};

class Comparison {
 public:
  Comparison(double limit, DataType type, std::vector<std::string>& problems)
      : limit_(limit), roundoff_(unit_roundoff(type)), problems_(problems) {}

  Worst compare(const GlobalTensors& ours, const GlobalTensors& reference,
                const std::string& what) {
    const std::string of = what + " of ";
    Worst worst;
    const double of_all = kNegligible * reference.norm();
    const std::map<std::string, double> layers = norms_by_layer(reference);
    for (const auto& [name, expected] : reference.tensors()) {
      const auto found = ours.tensors().find(name);
      if (found == ours.tensors().end()) {
        problems_.push_back(of);
        problems_.back().append(name).append(" is on no rank");
        continue;
      }
      const double floor = std::max(of_all, roundoff_ / limit_ * layers.at(layer_of(name)));
      const double error = error_of(found->second, expected, floor, std::string(of).append(name));
      if (!(error <= worst.error)) worst = {error, name};
    }
    for (const auto& [name, tensor] : ours.tensors()) {
      if (!reference.tensors().contains(name)) {
        problems_.push_back(of);
        problems_.back().append(name).append(" is not in the reference");
      }
    }
    return worst;
  }

 private:
  double error_of(const GlobalTensor& ours, const GlobalTensor& expected, double floor,
                  const std::string& what) {
    if (ours.rows != expected.rows || ours.columns != expected.columns) {
      problems_.push_back(what + " has another shape than in the reference");
      return 0;
    }
    if (std::find(ours.known.begin(), ours.known.end(), false) != ours.known.end()) {
      problems_.push_back(what + " is not complete: some elements are on no rank");
    }
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      const double d = ours.values[i] - expected.values[i];
      difference += d * d;
      norm += expected.values[i] * expected.values[i];
    }
    const double scale = std::max({std::sqrt(norm), floor, 1e-300});
    const double error = std::sqrt(difference) / scale;
    if (!(error <= limit_)) {
      problems_.push_back(what + " differs by " + scientific(error) + " of its norm; limit " +
                          scientific(limit_));
    }
    if (!(ours.disagreement <= limit_ * scale)) {
      problems_.push_back(what + " differs between ranks by " + scientific(ours.disagreement));
    }
    return error;
  }

  double limit_, roundoff_;
  std::vector<std::string>& problems_;
};

}  // namespace

double check_limit(DataType type) {
  switch (type) {
    case DataType::kFp64:
      return 1e-9;
    case DataType::kFp32:
    case DataType::kTf32:
      return 1e-5;
    case DataType::kFp8:
      return 1e-5;
    default:
      return 2e-2;
  }
}

DataType parameter_type(const Program& program) {
  if (held_in_double(program)) return DataType::kFp8;
  for (const BufferFamily& family : program.buffers) {
    if (family.category == BufferCategory::kParameter) return family.type;
  }
  return DataType::kFp64;
}

CheckReport check_against(const ExecutionResult& executed, const ExecutionResult& reference,
                          DataType type) {
  CheckReport report;
  report.precision = name(type);
  report.limit = check_limit(type);
  report.steps = static_cast<int>(executed.steps.size());
  Comparison comparison(report.limit, type, report.problems);
  for (std::size_t s = 0; s < executed.steps.size(); ++s) {
    const std::string step = "step " + std::to_string(s) + ": ";
    const double expected = reference.steps[s].loss;
    const double error =
        std::fabs(executed.steps[s].loss - expected) / std::max(std::fabs(expected), 1e-300);
    if (!(error <= report.loss_error)) report.loss_error = error;
    if (!(error <= report.limit)) {
      report.problems.push_back(step + "loss " + scientific(executed.steps[s].loss) +
                                ", reference " + scientific(expected));
    }
    const auto same = [&](const std::vector<double>& values, double wanted, const char* what) {
      for (const double value : values) {
        if (std::fabs(value - wanted) <= report.limit * std::fabs(wanted)) continue;
        report.problems.push_back(step + "a rank's own " + what + " is " + scientific(value) +
                                  ", expected " + scientific(wanted));
      }
    };
    same(executed.steps[s].own_losses, executed.steps[s].loss, "loss");
    same(executed.steps[s].own_norms, reference.steps[s].gradients.norm(), "gradient norm");
    const Worst worst = comparison.compare(executed.steps[s].gradients,
                                           reference.steps[s].gradients, step + "gradient");
    if (!(worst.error <= report.gradient_error)) {
      report.gradient_error = worst.error;
      report.gradient_tensor = worst.tensor;
    }
    if (executed.steps[s].gradients.tensors().empty()) {
      report.problems.push_back(step + "no gradient reached an optimizer");
    }
  }
  const Worst worst = comparison.compare(executed.parameters, reference.parameters, "parameter");
  report.parameter_error = worst.error;
  report.parameter_tensor = worst.tensor;
  report.passed = report.problems.empty();
  return report;
}

CheckReport check_execution(const Program& program, const ExecutionResult& executed,
                            const ExecutionResult& reference) {
  CheckReport report = check_against(executed, reference, parameter_type(program));
  const ExecutionPlan plan(program);
  std::vector<std::string> faults = order_violations(plan, executed.times);
  for (std::string& line : PlanOrder(plan).unordered()) faults.push_back(std::move(line));
  report.order_demands = order_demands(plan);
  report.order_violations = static_cast<std::int64_t>(faults.size());
  report.problems.insert(report.problems.end(), faults.begin(), faults.end());
  report.passed = report.problems.empty();
  return report;
}

}  // namespace headway
