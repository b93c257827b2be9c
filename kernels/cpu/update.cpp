#include <algorithm>
#include <cmath>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

constexpr double kClipGuard = 1e-6;  // torch.nn.utils.clip_grad_norm_: limit / (norm + 1e-6)

// Calls visit(first, values) for every chunk of an operand, converted.
template <typename T, typename Visit>
void for_each_chunk(const Operand& operand, Visit visit) {
  std::vector<T> values;
  in_chunks(0, operand.elements(), [&](std::int64_t first, std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    load(operand, first, count, values.data());
    visit(first, values);
  });
}

template <typename T>
void squared_norms(const OperandsOf& operands, std::int64_t runs) {
  const std::int64_t run = operands.read(0).elements() / runs;
  const Input<T> x(operands.read(0, run * runs));
  operands.read(1, runs);
  Output<T> total(operands.write(0, runs), true);
  for (std::int64_t i = 0; i < run * runs; ++i) total[i / run] += x[i] * x[i];
}

template <typename T>
void squared_norm(const OperandsOf& operands) {
  if (operands.reads() < 2) operands.refuse("expected gradients and the total");
  if (operands.write(0).elements() > 1)
    return squared_norms<T>(operands, operands.write(0).elements());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < operands.reads(); ++i) {
    for_each_chunk<T>(operands.read(i), [&](std::int64_t, const std::vector<T>& values) {
      for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    });
  }
  operands.read(operands.reads() - 1, 1);
  Output<T> total(operands.write(0, 1), true);
  total[0] += static_cast<T>(sum);
}

template <typename T>
void clip(const OperandsOf& operands, const Placement& placement) {
  const Input<T> total(operands.read(0, 1));
  const double norm = std::sqrt(static_cast<double>(total[0]));
  const T factor = static_cast<T>(
      placement.clip_norm > 0 ? std::min(1.0, placement.clip_norm / (norm + kClipGuard)) : 1.0);
  for (std::size_t i = 0; i < operands.writes(); ++i) {
    const Operand& scaled = operands.write(i);
    for_each_chunk<T>(
        operands.read(i + 1, scaled.elements()), [&](std::int64_t first, std::vector<T>& values) {
          for (T& value : values) value *= factor;
          store(scaled, first, static_cast<std::int64_t>(values.size()), values.data());
        });
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
// as one flat array as long as the longer of the two, that passes through the caches in chunks: a
// whole model may be one operand, and is not copied.
template <typename T>
class FlatUpdate {
 public:
  FlatUpdate(const OperandsOf& operands, std::size_t states)
      : masters_(operands.write_group(0, operands.writes() - states)) {
    if (operands.reads() < masters_.size() + states + 1) operands.refuse("it reads no gradient");
    old_masters_ = operands.read_group(0, masters_.size());
    gradients_ = operands.read_group(masters_.size(), operands.reads() - masters_.size() - states);
    size_ = std::max(elements_of(masters_), elements_of(gradients_));
  }

  std::size_t masters() const { return masters_.size(); }
  std::int64_t master_elements() const { return elements_of(masters_); }

  // Calls update(element, master, gradient) for every element; `master` is changed in place.
  template <typename Update>
  void for_each(Update update) const {
    std::vector<T> master(static_cast<std::size_t>(std::min(kChunk, size_))), gradient(master);
    in_chunks(0, size_, [&](std::int64_t first, std::int64_t count) {
      load_range(old_masters_, first, count, master.data());
      load_range(gradients_, first, count, gradient.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        update(first + i, master[at], gradient[at]);
      }
      store_range<T>(masters_, first, count, master.data());
    });
  }

 private:
  std::span<const Operand> masters_, old_masters_, gradients_;
  std::int64_t size_ = 0;
};

template <typename T>
void sgd(const OperandsOf& operands, const Placement& placement) {
  const T rate = static_cast<T>(placement.learning_rate);
  FlatUpdate<T>(operands, 0).for_each([&](std::int64_t, T& master, T gradient) {
    master -= rate * gradient;
  });
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
  const FlatUpdate<T> flat(operands, 2);
  const std::int64_t moments = operands.write(flat.masters()).elements();
  if (moments < flat.master_elements()) operands.refuse("the moments are shorter than the master");
  Output<T> first(operands.write(flat.masters(), moments), true),
      second(operands.write(flat.masters() + 1, moments), true);
  const Input<T> old_first(operands.read(operands.reads() - 2, moments)),
      old_second(operands.read(operands.reads() - 1, moments));
  flat.for_each([&](std::int64_t i, T& master, T gradient) {
    if (i >= moments) return;
    first[i] = beta1 * old_first[i] + (T{1} - beta1) * gradient;
    second[i] = beta2 * old_second[i] + (T{1} - beta2) * gradient * gradient;
    const T denominator = std::sqrt(second[i] / correction2) + static_cast<T>(c.epsilon);
    master = master * decay - rate * (first[i] / correction1) / denominator;
  });
}

// Lion (arXiv 2302.06675, algorithm 2): the sign of a mean of momentum and gradient.
template <typename T>
void lion(const OperandsOf& operands, const Placement& placement) {
  if (operands.writes() < 2) operands.refuse("it writes no master copy and a moment");
  const OptimizerConstants& c = placement.optimizer;
  const T rate = static_cast<T>(placement.learning_rate);
  const T decay = static_cast<T>(1.0 - placement.learning_rate * c.weight_decay);
  const T beta1 = static_cast<T>(c.beta1), beta2 = static_cast<T>(c.lion_beta2);
  const FlatUpdate<T> flat(operands, 1);
  const std::int64_t moments = operands.write(flat.masters()).elements();
  if (moments < flat.master_elements()) operands.refuse("the moment is shorter than the master");
  Output<T> moment(operands.write(flat.masters(), moments), true);
  const Input<T> old(operands.read(operands.reads() - 1, moments));
  flat.for_each([&](std::int64_t i, T& master, T gradient) {
    if (i >= moments) return;
    const T mean = beta1 * old[i] + (T{1} - beta1) * gradient;
    const T sign = static_cast<T>((mean > 0) - (mean < 0));
    master = master * decay - rate * sign;
    moment[i] = beta2 * old[i] + (T{1} - beta2) * gradient;
  });
}

// A step along a direction that another kernel has found, with decoupled decay.
template <typename T>
void decayed_step(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const T rate = static_cast<T>(placement.learning_rate * kernel.scale);
  const T decay = static_cast<T>(1.0 - placement.learning_rate * placement.optimizer.weight_decay);
  FlatUpdate<T>(operands, 0).for_each([&](std::int64_t, T& master, T direction) {
    master = master * decay - rate * direction;
  });
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
    case KernelKind::kAdam:
      return adam<T>(operands, placement);
    case KernelKind::kLion:
      return lion<T>(operands, placement);
    case KernelKind::kDecayedStep:
      return decayed_step<T>(kernel, operands, placement);
    default:
      operands.refuse("the CPU executor does not know this update");
  }
}

template void compute_update<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_update<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
