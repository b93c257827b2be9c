#include "kernels/cpu/memory_bound.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

// Whether each element survives: drawn by global token and column.
class Survivors {
 public:
  explicit Survivors(const Placement& placement)
      : placement_(placement), random_(placement.seed, placement.site) {}
  bool survives(std::int64_t row, std::int64_t column) const {
    const std::int64_t local = placement_.first_row + row;
    const std::int64_t token = placement_.first_token +
                               placement_.map.sequence(local) * placement_.map.length +
                               placement_.map.position(local);
    return random_.child(static_cast<std::uint64_t>(token))
               .uniform(static_cast<std::uint64_t>(placement_.first_column + column)) >=
           placement_.dropout;
  }

 private:
  const Placement& placement_;
  CounterRandom random_;
};

// y = [residual +] dropout(x [+ bias]). The optional operands are there or not: what is dropped
// with probability 0 needs no mask.
template <typename T>
void forward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement,
             bool with_residual) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const bool with_bias = with_residual && operands.reads() == 3;
  const bool with_mask = operands.writes() == 2;
  if (!with_mask && placement.dropout > 0) operands.refuse("it drops but keeps no mask");
  const Input<T> x(operands.read(0, rows * columns));
  const Input<T> bias(with_bias ? operands.read(1, columns) : operands.read(0));
  const Input<T> residual(with_residual ? operands.read(with_bias ? 2 : 1, rows * columns)
                                        : operands.read(0));
  const Survivors survivors(placement);
  const T scale = static_cast<T>(1.0 / (1.0 - placement.dropout));
  std::vector<T> keep(static_cast<std::size_t>(rows * columns));
  {
    Output<T> y(operands.write(0, rows * columns), false);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t at = i * columns + j;
        const bool survives = placement.dropout <= 0 || survivors.survives(i, j);
        keep[static_cast<std::size_t>(at)] = survives ? T{1} : T{0};
        T value = x[at];
        if (with_bias) value += bias[j];
        value = survives ? value * scale : T{0};
        y[at] = with_residual ? value + residual[at] : value;
      }
    }
  }
  if (with_mask) headway::store(operands.write(1, rows * columns), 0, rows * columns, keep.data());
}

template <typename T>
void backward(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const bool with_mask = operands.reads() >= 2 && operands.read(1).type == DataType::kBool;
  const bool with_bias = operands.writes() == 2;
  if (!with_mask && placement.dropout > 0) operands.refuse("it drops but was given no mask");
  const Input<T> dy(operands.read(0, rows * columns));
  const Input<T> mask(with_mask ? operands.read(1, rows * columns) : operands.read(0));
  if (with_bias) operands.read(with_mask ? 2 : 1, columns);
  const T scale = static_cast<T>(1.0 / (1.0 - placement.dropout));
  std::vector<T> dbias(static_cast<std::size_t>(columns));
  {
    Output<T> dx(operands.write(0, rows * columns), false);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t at = i * columns + j;
        dx[at] = with_mask ? dy[at] * mask[at] * scale : dy[at];
        dbias[static_cast<std::size_t>(j)] += dx[at];
      }
    }
  }
  if (!with_bias) return;
  Output<T> total(operands.write(1, columns), true);
  for (std::int64_t j = 0; j < columns; ++j) total[j] += dbias[static_cast<std::size_t>(j)];
}

}  // namespace

template <typename T>
void compute_dropout(const Kernel& kernel, const OperandsOf& operands, const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kDropoutForward:
      return forward<T>(kernel, operands, placement, false);
    case KernelKind::kBiasDropoutAddForward:
      return forward<T>(kernel, operands, placement, true);
    default:
      return backward<T>(kernel, operands, placement);
  }
}

template void compute_dropout<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_dropout<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
