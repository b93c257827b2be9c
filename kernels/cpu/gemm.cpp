#include "kernels/cpu/gemm.hpp"

#include <optional>
#include <vector>

#include "kernels/cpu/matrix.hpp"

namespace headway {
namespace {

// tf32 multiplies inputs cut to 11 significant bits and accumulates in fp32.
template <typename T>
const T* multiplicand(const T* input, std::int64_t elements, DataType type, std::vector<T>& cut) {
  if (type != DataType::kTf32) return input;
  cut.resize(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    cut[static_cast<std::size_t>(i)] = rounded(input[i], DataType::kTf32);
  }
  return cut.data();
}

// The first row of a GEMM's run in an operand of all rows; 0 in one of the run alone.
std::int64_t first_row_in(const Gemm& gemm, const Operand& operand, std::int64_t columns,
                          const Placement& placement) {
  return operand.elements() > gemm.m * columns ? placement.first_row : 0;
}

// An output gradient that came in runs, in the order of the rows: this rank's run is the
// `placement.run`-th, the next buffer that before it.
template <typename T>
std::vector<T> joined_runs(const Gemm& gemm, const OperandsOf& operands,
                           const Placement& placement) {
  const std::int64_t rows = gemm.m / gemm.runs;
  std::vector<T> all(static_cast<std::size_t>(gemm.m * gemm.n));
  for (std::int64_t d = 0; d < gemm.runs; ++d) {
    const std::int64_t run = (placement.run - d + gemm.runs) % gemm.runs;
    load(operands.read(static_cast<std::size_t>(d), rows * gemm.n), 0, rows * gemm.n,
         all.data() + run * rows * gemm.n);
  }
  return all;
}

// A matrix whose rows stand in several buffers, one after another; a single buffer is not copied.
template <typename T>
class StackedInput {
 public:
  StackedInput(const OperandsOf& operands, std::size_t first, std::int64_t buffers,
               std::int64_t elements) {
    if (buffers == 1) {
      one_.emplace(operands.read(first, elements));
      return;
    }
    const auto group = operands.read_group(first, static_cast<std::size_t>(buffers));
    if (elements_of(group) != elements) operands.refuse("the weights' rows do not add up");
    joined_ = load_group<T>(group, elements);
  }
  const T* data() const { return one_ ? one_->data() : joined_.data(); }

 private:
  std::optional<Input<T>> one_;
  std::vector<T> joined_;
};

// dw = dy^T x, the output gradient in one buffer or in runs, the weight's in one or several.
template <typename T>
void weight_gradient(const Gemm& gemm, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  std::vector<T> runs, cut_dy, cut_x;
  std::optional<Input<T>> whole;
  if (gemm.runs > 1) {
    runs = joined_runs<T>(gemm, operands, placement);
  } else {
    whole.emplace(operands.read(0, m * n));
  }
  const auto next = static_cast<std::size_t>(gemm.runs);
  const Input<T> x(operands.read(next, m * k));
  const T* dy = multiplicand(whole ? whole->data() : runs.data(), m * n, gemm.type, cut_dy);
  const T* x_data = multiplicand(x.data(), m * k, gemm.type, cut_x);
  std::int64_t first = 0;  // of the weight's rows
  for (std::size_t w = 0; w < static_cast<std::size_t>(gemm.weights); ++w) {
    const std::int64_t rows = operands.write(w).elements() / k;
    if (gemm.accumulate) operands.read(next + 1 + w, rows * k);
    Output<T> dw(operands.write(w, rows * k), gemm.accumulate);
    multiply(Transposed::kYes, Transposed::kNo, rows, k, m, T{1}, dy + first, n, x_data, k,
             gemm.accumulate ? T{1} : T{0}, dw.data(), k);
    first += rows;
  }
  if (first != n) operands.refuse("the weights' rows do not add up");
}

// As many products of equal blocks of rows.
template <typename T>
void batched(const Gemm& gemm, const OperandsOf& operands) {
  const std::int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  const bool weight = gemm.role == GemmRole::kWeightGradient;
  const bool forward = gemm.role == GemmRole::kForward;
  const std::int64_t left = forward ? m * k : m * n, right = weight ? m * k : n * k;
  const std::int64_t product = forward ? m * n : weight ? n * k : m * k;
  if (gemm.bias || gemm.accumulate) operands.refuse("batched products have no epilogue");
  const Input<T> a(operands.read(0, gemm.batch * left)), b(operands.read(1, gemm.batch * right));
  Output<T> y(operands.write(0, gemm.batch * product), false);
  std::vector<T> cut_a, cut_b;
  const T* a_data = multiplicand(a.data(), gemm.batch * left, gemm.type, cut_a);
  const T* b_data = multiplicand(b.data(), gemm.batch * right, gemm.type, cut_b);
  const Transposed first = weight ? Transposed::kYes : Transposed::kNo;
  const Transposed second = forward ? Transposed::kYes : Transposed::kNo;
  const std::int64_t rows = weight ? n : m, columns = forward ? n : k;
  const std::int64_t inner = forward ? k : weight ? m : n;
  for (std::int64_t i = 0; i < gemm.batch; ++i) {
    multiply(first, second, rows, columns, inner, T{1}, a_data + i * left, forward ? k : n,
             b_data + i * right, k, T{0}, y.data() + i * product, columns);
  }
}

}  // namespace

template <typename T>
void compute_gemm(const Gemm& gemm, const OperandsOf& operands, const Placement& placement) {
  if (gemm.batch > 1) return batched<T>(gemm, operands);
  if (gemm.role == GemmRole::kWeightGradient) {
    return weight_gradient<T>(gemm, operands, placement);
  }
  const std::int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  const bool forward = gemm.role == GemmRole::kForward;
  const std::int64_t width_a = forward ? k : n, width_y = forward ? n : k;
  // An operand of all rows, or of the run alone.
  const auto sized = [&](const Operand& operand, std::int64_t width) {
    const bool whole = gemm.runs > 1 && operand.elements() == gemm.runs * m * width;
    return (whole ? gemm.runs : 1) * m * width;
  };
  const Input<T> a(operands.read(0, sized(operands.read(0), width_a)));
  const StackedInput<T> w(operands, 1, gemm.weights, n * k);
  Output<T> y(operands.write(0, sized(operands.write(0), width_y)),
              gemm.runs > 1 || gemm.accumulate);
  const T beta = gemm.accumulate ? T{1} : T{0};
  const std::int64_t first_a = first_row_in(gemm, operands.read(0), width_a, placement);
  const std::int64_t first_y = first_row_in(gemm, operands.write(0), width_y, placement);
  std::vector<T> cut_a, cut_w;
  const T* a_data = multiplicand(a.data() + first_a * width_a, m * width_a, gemm.type, cut_a);
  const T* w_data = multiplicand(w.data(), n * k, gemm.type, cut_w);
  T* y_data = y.data() + first_y * width_y;
  if (!forward) {
    return multiply(Transposed::kNo, Transposed::kNo, m, k, n, T{1}, a_data, n, w_data, k, beta,
                    y_data, k);
  }
  multiply(Transposed::kNo, Transposed::kYes, m, n, k, T{1}, a_data, k, w_data, k, beta, y_data, n);
  if (!gemm.bias) return;
  const Input<T> bias(operands.read(1 + static_cast<std::size_t>(gemm.weights), n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) y_data[i * n + j] += bias[j];
  }
}

template void compute_gemm<float>(const Gemm&, const OperandsOf&, const Placement&);
template void compute_gemm<double>(const Gemm&, const OperandsOf&, const Placement&);

}  // namespace headway
