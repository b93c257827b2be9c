// Numbers of 8 and 4 bits as they come out of a GPU's quantisers, held with their scale: what a
// product of them computes is the product of the values held. Scales are powers of two, as those of
// the block recipes are, so that a tensor's values do not depend on how it was cut into shards but
// for those that vanish beside its largest.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/memory_bound.hpp"

namespace headway {
namespace {

// Floating-point numbers of few bits (OCP 8-bit Floating Point 1.0; OCP Microscaling 1.0).
struct Grid {
  int significant_bits;
  int least_exponent;  // of a normal number
  double largest;
};
constexpr Grid kE4M3{4, -6, 448}, kE5M2{3, -14, 57344}, kE2M1{2, 0, 6};
// Integers: all exponents are the least one's.
constexpr Grid kEightBits{7, 6, 127}, kFourBits{3, 2, 7};

const Grid& grid_of(DataType type) {
  if (type == DataType::kFp8E5M2) return kE5M2;
  if (type == DataType::kInt8) return kEightBits;
  if (type == DataType::kInt4) return kFourBits;
  return type == DataType::kFp4 ? kE2M1 : kE4M3;
}

// To nearest even; what is too large becomes the largest.
double on_grid(double value, const Grid& grid) {
  if (std::isnan(value) || value == 0) return value;
  if (std::fabs(value) >= grid.largest) return std::copysign(grid.largest, value);
  const int exponent =
      std::max(std::ilogb(value), grid.least_exponent) - (grid.significant_bits - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return std::clamp(rounded, -grid.largest, grid.largest);
}

// The power of two that brings `amax` below `largest`; 1 for a tensor of zeros.
double scale_for(double largest, double amax) {
  if (!(amax > 0) || !std::isfinite(amax)) return 1;
  return std::ldexp(1.0, static_cast<int>(std::floor(std::log2(largest / amax))));
}

template <typename Values>
double amax_of(const Values& x, std::size_t elements) {
  double largest = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  }
  return largest;
}

template <typename T>
class Quantiser {
 public:
  Quantiser(const Kernel& kernel, const OperandsOf& operands)
      : kernel_(kernel),
        operands_(operands),
        grid_(grid_of(kernel.output)),
        x_(values(kernel, operands)) {}

  void run() {
    const std::size_t copies = kernel_.transposed ? 2 : 1;
    double tensor_scale = 1;
    if (kernel_.scaling == Scaling::kDelayed) {
      tensor_scale = remember(copies);
    } else if (kernel_.scaling == Scaling::kCurrent) {
      const Input<T> amax(operands_.read(1, 1));
      tensor_scale = scale_for(grid_.largest * block_scale_limit(), static_cast<double>(amax[0]));
    }
    write(0, kernel_.block_rows, kernel_.block_columns, tensor_scale);
    if (kernel_.transposed) write(1, kernel_.block_columns, kernel_.block_rows, tensor_scale);
  }

 private:
  // A flat group, padded, where it becomes integers.
  static std::vector<T> values(const Kernel& kernel, const OperandsOf& operands) {
    const std::int64_t elements = kernel.rows * kernel.columns;
    const bool flat = kernel.output == DataType::kInt8 || kernel.output == DataType::kInt4;
    if (flat) return load_group<T>(operands.read_group(0, operands.reads()), elements);
    const Input<T> x(operands.read(0, elements));
    return std::vector<T>(x.data(), x.data() + elements);
  }

  // Scales of e4m3 (nvfp4) take part of the range.
  double block_scale_limit() const { return kernel_.output == DataType::kFp4 ? kE4M3.largest : 1; }

  // Delayed: notes this tensor's amax, and returns the scale by that of the step before. Before the
  // first step has ended a gradient's is taken as 1, so that small ones do not vanish; all else has
  // scale 1 (Transformer Engine's start for every tensor).
  double remember(std::size_t copies) {
    operands_.read(1, 2);
    Output<T> history(operands_.write(copies, 2), true);
    const auto before = static_cast<double>(history[1]);
    history[0] = std::max(history[0], static_cast<T>(amax_of(x_, x_.size())));
    if (before > 0) return scale_for(grid_.largest, before);
    return kernel_.output == DataType::kFp8E5M2 ? scale_for(grid_.largest, 1) : 1;
  }

  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * kernel_.columns + column);
  }

  void write(std::size_t copy, std::int64_t block_rows, std::int64_t block_columns, double scale) {
    Output<T> y(operands_.write(copy, kernel_.rows * kernel_.columns), false);
    if (kernel_.block_rows == 0) {
      for (std::int64_t i = 0; i < kernel_.rows * kernel_.columns; ++i) {
        y[i] = static_cast<T>(
            on_grid(static_cast<double>(x_[static_cast<std::size_t>(i)]) * scale, grid_) / scale);
      }
      return;
    }
    for (std::int64_t row = 0; row < kernel_.rows; row += block_rows) {
      for (std::int64_t column = 0; column < kernel_.columns; column += block_columns) {
        write_block(y, row, std::min(row + block_rows, kernel_.rows), column,
                    std::min(column + block_columns, kernel_.columns), scale);
      }
    }
  }

  void write_block(Output<T>& y, std::int64_t row, std::int64_t end_row, std::int64_t column,
                   std::int64_t end_column, double tensor_scale) {
    double amax = 0;
    for (std::int64_t r = row; r < end_row; ++r) {
      for (std::int64_t c = column; c < end_column; ++c) {
        amax = std::max(amax, std::fabs(static_cast<double>(x_[index(r, c)])));
      }
    }
    double scale = scale_for(grid_.largest, amax);
    if (kernel_.output == DataType::kFp4) {
      // NVIDIA, arXiv 2509.25149: the block's scale is an e4m3 number in units of the tensor's.
      const double divisor = on_grid(amax * tensor_scale / grid_.largest, kE4M3);
      scale = divisor > 0 ? tensor_scale / divisor : 0;
    }
    for (std::int64_t r = row; r < end_row; ++r) {
      for (std::int64_t c = column; c < end_column; ++c) {
        const std::int64_t at = r * kernel_.columns + c;
        const double value = static_cast<double>(x_[index(r, c)]);
        y[at] = static_cast<T>(scale > 0 ? on_grid(value * scale, grid_) / scale : 0.0);
      }
    }
  }

  const Kernel& kernel_;
  const OperandsOf& operands_;
  const Grid& grid_;
  const std::vector<T> x_;
};

template <typename T>
void largest_magnitude(const OperandsOf& operands) {
  const Input<T> x(operands.read(0));
  Output<T> amax(operands.write(0, 1), false);
  amax[0] =
      static_cast<T>(amax_of(x.data(), static_cast<std::size_t>(operands.read(0).elements())));
}

template <typename T>
void roll(const OperandsOf& operands) {
  for (std::size_t i = 0; i < operands.writes(); ++i) {
    operands.read(i, 2);
    Output<T> history(operands.write(i, 2), true);
    history[1] = history[0];
    history[0] = 0;
  }
}

}  // namespace

template <typename T>
void compute_quantisation(const Kernel& kernel, const OperandsOf& operands) {
  if (kernel.kind == KernelKind::kAmax) return largest_magnitude<T>(operands);
  if (kernel.kind == KernelKind::kRollAmax) return roll<T>(operands);
  Quantiser<T>(kernel, operands).run();
}

template void compute_quantisation<float>(const Kernel&, const OperandsOf&);
template void compute_quantisation<double>(const Kernel&, const OperandsOf&);

}  // namespace headway
