#include <algorithm>
#include <cmath>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

constexpr double kClipGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_: limit / (norm + 1e-6)

template <typename T>
void squared_norm(const OperandsOf& operands) {
  if (operands.reads() < 2) operands.refuse("expected gradients and the total");
  double sum = 0;
  for (std::size_t i = 0; i + 1 < operands.reads(); ++i) {
    const Input<T> x(operands.read(i));
    for (std::int64_t j = 0; j < operands.read(i).elements(); ++j) {
      sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    }
  }
  operands.read(operands.reads() - 1, 1);
  Output<T> total(operands.write(0, 1), true);
  total[0] += static_cast<T>(sum);
}

template <typename T>
void clip(const OperandsOf& operands, const Placement& placement) {
  const Input<T> total(operands.read(0, 1));
  const double norm = std::sqrt(static_cast<double>(total[0]));
  const double factor =
      placement.clip_norm > 0 ? std::min(1.0, placement.clip_norm / (norm + kClipGuard)) : 1.0;
  for (std::size_t i = 0; i < operands.writes(); ++i) {
    const Operand& gradient = operands.write(i);
    const Input<T> old(operands.read(i + 1, gradient.elements()));
    Output<T> scaled(gradient, true);
    for (std::int64_t j = 0; j < gradient.elements(); ++j) {
      scaled[j] = old[j] * static_cast<T>(factor);
    }
  }
}

// A step that was taken before its norm was known stands only where nothing had to be clipped.
template <typename T>
void validate_norm(const OperandsOf& operands, const Placement& placement) {
  const Input<T> total(operands.read(0, 1));
  Output<T> validated(operands.write(0, 1), false);
  const double norm = std::sqrt(static_cast<double>(total[0]));
  if (placement.clip_norm > 0 && !(norm <= placement.clip_norm)) {
    operands.refuse("the gradient's norm " + std::to_string(norm) + " is over the limit " +
                    std::to_string(placement.clip_norm) +
                    ": the optimizer's step would be rolled back and done again clipped, which is "
                    "not executed");
  }
  validated[0] = total[0];
}

// The masters (all written but `states`) and the gradients (all read but masters and states), each
// as one flat array as long as the longer of the two.
template <typename T>
struct FlatUpdate {
  FlatUpdate(const OperandsOf& operands, std::size_t states)
      : masters(operands.write_group(0, operands.writes() - states)) {
    if (operands.reads() < masters.size() + states + 1) operands.refuse("it reads no gradient");
    const auto gradients =
        operands.read_group(masters.size(), operands.reads() - masters.size() - states);
    size = std::max(elements_of(masters), elements_of(gradients));
    master = load_group<T>(operands.read_group(0, masters.size()), size);
    gradient = load_group<T>(gradients, size);
  }

  std::span<const Operand> masters;
  std::int64_t size = 0;
  std::vector<T> master, gradient;
};

template <typename T>
void sgd(const OperandsOf& operands, const Placement& placement) {
  FlatUpdate<T> flat(operands, 0);
  for (std::size_t i = 0; i < flat.master.size(); ++i) {
    flat.master[i] -= static_cast<T>(placement.learning_rate) * flat.gradient[i];
  }
  store_group(flat.masters, flat.master);
}

// AdamW with decoupled decay and bias correction, as torch.optim.AdamW.
template <typename T>
void adam(const OperandsOf& operands, const Placement& placement) {
  if (operands.writes() < 3) operands.refuse("it writes no master copy and two moments");
  const OptimizerConstants& c = placement.optimizer;
  const auto step = static_cast<double>(placement.step);
  const T rate = static_cast<T>(placement.learning_rate);
  const T decay = static_cast<T>(1.0 - placement.learning_rate * c.weight_decay);
  const T correction1 = static_cast<T>(1.0 - std::pow(c.beta1, step));
  const T correction2 = static_cast<T>(1.0 - std::pow(c.beta2, step));
  const T beta1 = static_cast<T>(c.beta1), beta2 = static_cast<T>(c.beta2);
  FlatUpdate<T> flat(operands, 2);
  const std::int64_t moments = operands.write(flat.masters.size()).elements();
  if (moments < elements_of(flat.masters))
    operands.refuse("the moments are shorter than the master");
  Output<T> first(operands.write(flat.masters.size(), moments), true),
      second(operands.write(flat.masters.size() + 1, moments), true);
  const Input<T> old_first(operands.read(operands.reads() - 2, moments)),
      old_second(operands.read(operands.reads() - 1, moments));
  for (std::int64_t i = 0; i < std::min(moments, flat.size); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const T gradient = flat.gradient[at];
    first[i] = beta1 * old_first[i] + (T{1} - beta1) * gradient;
    second[i] = beta2 * old_second[i] + (T{1} - beta2) * gradient * gradient;
    const T denominator = std::sqrt(second[i] / correction2) + static_cast<T>(c.epsilon);
    flat.master[at] = flat.master[at] * decay - rate * (first[i] / correction1) / denominator;
  }
  store_group(flat.masters, flat.master);
}

}  // namespace

template <typename T>
void compute_update(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kSquaredNorm:
      return squared_norm<T>(operands);
    case KernelKind::kClip:
      return clip<T>(operands, placement);
    case KernelKind::kValidateNorm:
      return validate_norm<T>(operands, placement);
    case KernelKind::kSgd:
      return sgd<T>(operands, placement);
    default:
      return adam<T>(operands, placement);
  }
}

template void compute_update<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_update<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
