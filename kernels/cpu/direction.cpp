// Parts of the optimizers that look at whole matrices: Muon's momentum and what stands around its
// products (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), and the
// update of Adafactor (Shazeer and Stern, arXiv 1804.04235).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// As the reference implementation divides.
constexpr double kNormGuard = 1e-7;

template <typename T>
void momentum(const OperandsOf& operands, const Placement& placement) {
  if (operands.reads() < 2) operands.refuse("expected gradients and the momentum");
  const T beta = static_cast<T>(placement.optimizer.momentum);
  const auto gradients = operands.read_group(0, operands.reads() - 1);
  const std::int64_t size = operands.write(0).elements();
  const std::vector<T> gradient = load_group<T>(gradients, size);
  const Input<T> old(operands.read(operands.reads() - 1, size));
  Output<T> kept(operands.write(0, size), true), direction(operands.write(1, size), false);
  for (std::int64_t i = 0; i < size; ++i) {
    const T own = gradient[static_cast<std::size_t>(i)];
    kept[i] = beta * old[i] + own;
    direction[i] = own + beta * (beta * old[i] + own);
  }
}

template <typename T>
void normalise(const OperandsOf& operands) {
  const std::int64_t size = operands.write(0).elements();
  const std::int64_t runs = operands.read(1).elements();  // of as many matrices
  if (runs < 1 || size % runs != 0) operands.refuse("its norms are of another number of matrices");
  const Input<T> x(operands.read(0, size)), total(operands.read(1, runs));
  std::vector<T> norms;
  for (std::int64_t i = 0; i < runs; ++i) {
    norms.push_back(static_cast<T>(std::sqrt(static_cast<double>(total[i])) + kNormGuard));
  }
  Output<T> y(operands.write(0, size), false);
  for (std::int64_t i = 0; i < size; ++i) {
    y[i] = x[i] / norms[static_cast<std::size_t>(i / (size / runs))];
  }
}

template <typename T>
void weighted_sum(const Kernel& kernel, const OperandsOf& operands) {
  const std::int64_t size = operands.write(0).elements();
  const Input<T> a(operands.read(0, size)), b(operands.read(1, size));
  const T first = static_cast<T>(kernel.scale), second = static_cast<T>(kernel.other_scale);
  std::vector<T> sum(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    sum[static_cast<std::size_t>(i)] = first * a[i] + second * b[i];
  }
  Output<T> y(operands.write(0, size), false);
  std::copy(sum.begin(), sum.end(), y.data());
}

// Algorithm 4 of one block of rows, or of a vector its algorithm 5: squares in double, for the
// smallest of them have no 32-bit product. Returns the update, not yet scaled down.
std::vector<double> factored(const std::vector<double>& gradient, std::int64_t rows,
                             std::int64_t columns, double beta, double epsilon,
                             std::vector<double>& row_moments,
                             std::vector<double>& column_moments) {
  const bool vector = column_moments.empty();
  std::vector<double> row_sums(static_cast<std::size_t>(rows)),
      column_sums(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const double value = gradient[static_cast<std::size_t>(i * columns + j)];
      row_sums[static_cast<std::size_t>(i)] += value * value + epsilon;
      column_sums[static_cast<std::size_t>(j)] += value * value + epsilon;
    }
  }
  const auto decay = [&](std::vector<double>& moments, const std::vector<double>& sums) {
    for (std::size_t i = 0; i < moments.size(); ++i) {
      moments[i] = beta * moments[i] + (1 - beta) * sums[i];
    }
  };
  decay(row_moments, row_sums);
  decay(column_moments, column_sums);
  double total = 0;
  for (const double moment : row_moments) total += moment;
  std::vector<double> update(gradient.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<std::size_t>(i * columns + j);
      const double row = row_moments[static_cast<std::size_t>(i)];
      const double variance =
          vector ? row : row / total * column_moments[static_cast<std::size_t>(j)];
      update[at] = gradient[at] / std::sqrt(variance);
    }
  }
  return update;
}

// Of one matrix, or of as many as there are runs of column moments.
template <typename T>
void factored_direction(const Kernel& kernel, const OperandsOf& operands,
                        const Placement& placement) {
  const OptimizerConstants& c = placement.optimizer;
  const double beta = 1.0 - std::pow(static_cast<double>(placement.step), -c.decay_exponent);
  const bool vector = kernel.columns == 1;
  const std::size_t states = vector ? 1 : 2;
  const std::int64_t elements = kernel.rows * kernel.columns;
  const std::int64_t blocks = vector ? 1 : operands.write(1).elements() / kernel.columns;
  if (blocks < 1 || kernel.rows % blocks != 0) operands.refuse("its moments are of another shape");
  const std::int64_t rows = kernel.rows / blocks, columns = kernel.columns;
  const Input<T> gradient(operands.read(0, elements)), old_rows(operands.read(1, kernel.rows));
  Output<T> row_moments(operands.write(0, kernel.rows), true);
  std::vector<double> all_columns;
  if (!vector) {
    const Input<T> old(operands.read(2, blocks * columns));
    all_columns.assign(old.data(), old.data() + blocks * columns);
  }
  Output<T> direction(operands.write(states, elements), false);
  const auto run = [](const auto* data, std::int64_t first, std::int64_t count) {
    return std::vector<double>(data + first, data + first + count);
  };
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::vector<double> r = run(old_rows.data(), b * rows, rows);
    std::vector<double> k;
    if (!vector) k = run(all_columns.data(), b * columns, columns);
    const std::vector<double> update =
        factored(run(gradient.data(), b * rows * columns, rows * columns), rows, columns, beta,
                 c.squared_epsilon, r, k);
    double squares = 0;
    for (const double value : update) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(update.size()));
    const double scale = 1.0 / std::max(1.0, root / c.largest_root_mean_square);
    for (std::size_t i = 0; i < update.size(); ++i) {
      direction[b * rows * columns + static_cast<std::int64_t>(i)] =
          static_cast<T>(scale * update[i]);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      row_moments[b * rows + i] = static_cast<T>(r[static_cast<std::size_t>(i)]);
    }
    std::copy(k.begin(), k.end(), all_columns.begin() + static_cast<std::ptrdiff_t>(b * columns));
  }
  if (vector) return;
  Output<T> column_moments(operands.write(1, blocks * columns), true);
  for (std::size_t i = 0; i < all_columns.size(); ++i) {
    column_moments[static_cast<std::int64_t>(i)] = static_cast<T>(all_columns[i]);
  }
}

}  // namespace

template <typename T>
void compute_direction(const Kernel& kernel, const OperandsOf& operands,
                       const Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kMomentum:
      return momentum<T>(operands, placement);
    case KernelKind::kNormalise:
      return normalise<T>(operands);
    case KernelKind::kWeightedSum:
      return weighted_sum<T>(kernel, operands);
    default:
      return factored_direction<T>(kernel, operands, placement);
  }
}

template void compute_direction<float>(const Kernel&, const OperandsOf&, const Placement&);
template void compute_direction<double>(const Kernel&, const OperandsOf&, const Placement&);

}  // namespace headway
