// Two rows for one, weighted by the softmax of a pair of logits: how DeepSpeed's residual experts
// join a token's dense MLP and its expert (arXiv 2201.05596, section 4.1; deepspeed/moe/layer.py).
#include <cmath>
#include <vector>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// The share of the first of two, of each row.
template <typename T>
std::vector<T> first_shares(const Operand& logits, std::int64_t rows) {
  const Input<T> values(logits);
  std::vector<T> shares(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    shares[static_cast<std::size_t>(i)] =
        T{1} / (T{1} + std::exp(values[2 * i + 1] - values[2 * i]));
  }
  return shares;
}

template <typename T>
void forward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> a(operands.read(0, rows * columns)), b(operands.read(1, rows * columns));
  const std::vector<T> shares = first_shares<T>(operands.read(2, 2 * rows), rows);
  Output<T> y(operands.write(0, rows * columns), false);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const T share = shares[static_cast<std::size_t>(i / columns)];
    y[i] = share * a[i] + (T{1} - share) * b[i];
  }
}

template <typename T>
void backward(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t rows = kernel.rows, columns = kernel.columns;
  const Input<T> dy(operands.read(0, rows * columns)), a(operands.read(1, rows * columns)),
      b(operands.read(2, rows * columns));
  const std::vector<T> shares = first_shares<T>(operands.read(3, 2 * rows), rows);
  Output<T> da(operands.write(0, rows * columns), false);
  Output<T> db(operands.write(1, rows * columns), false);
  Output<T> dlogits(operands.write(2, 2 * rows), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T share = shares[static_cast<std::size_t>(i)];
    T slope = 0;
    for (std::int64_t at = i * columns; at < (i + 1) * columns; ++at) {
      da[at] = share * dy[at];
      db[at] = (T{1} - share) * dy[at];
      slope += dy[at] * (a[at] - b[at]);
    }
    dlogits[2 * i] = share * (T{1} - share) * slope;
    dlogits[2 * i + 1] = -dlogits[2 * i];
  }
}

}  // namespace

template <typename T>
void compute_mix(const Kernel& kernel, const OperandsOf& operands) {
  kernel.kind == KernelKind::kMixForward ? forward<T>(kernel, operands)
                                         : backward<T>(kernel, operands);
}

template void compute_mix<float>(const Kernel&, const OperandsOf&);
template void compute_mix<double>(const Kernel&, const OperandsOf&);

}  // namespace headway
