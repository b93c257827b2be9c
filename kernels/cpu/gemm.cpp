#include "kernels/cpu/gemm.hpp"

#include <vector>

#include "kernels/cpu/matrix.hpp"

namespace headway {
namespace {

// tf32 multiplies inputs cut to 11 significant bits and accumulates in fp32.
template <typename T>
const T* multiplicand(const Input<T>& input, std::int64_t elements, DataType type,
                      std::vector<T>& cut) {
  if (type != DataType::kTf32) return input.data();
  cut.resize(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    cut[static_cast<std::size_t>(i)] = rounded(input[i], DataType::kTf32);
  }
  return cut.data();
}

}  // namespace

template <typename T>
void compute_gemm(const Gemm& gemm, const OperandsOf& operands) {
  const std::int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  const bool weight = gemm.role == GemmRole::kWeightGradient;
  const bool forward = gemm.role == GemmRole::kForward;
  const std::int64_t elements_a = forward ? m * k : m * n;
  const std::int64_t elements_b = weight ? m * k : n * k;
  const Input<T> a(operands.read(0, elements_a)), b(operands.read(1, elements_b));
  std::vector<T> cut_a, cut_b;
  const T* a_data = multiplicand(a, elements_a, gemm.type, cut_a);
  const T* b_data = multiplicand(b, elements_b, gemm.type, cut_b);
  switch (gemm.role) {
    case GemmRole::kForward: {
      Output<T> y(operands.write(0, m * n), false);
      multiply(Transposed::kNo, Transposed::kYes, m, n, k, T{1}, a_data, k, b_data, k, T{0},
               y.data(), n);
      if (!gemm.bias) break;
      const Input<T> bias(operands.read(2, n));
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) y[i * n + j] += bias[j];
      }
      break;
    }
    case GemmRole::kInputGradient: {
      Output<T> dx(operands.write(0, m * k), false);
      multiply(Transposed::kNo, Transposed::kNo, m, k, n, T{1}, a_data, n, b_data, k, T{0},
               dx.data(), k);
      break;
    }
    case GemmRole::kWeightGradient: {
      if (gemm.accumulate) operands.read(2, n * k);
      Output<T> dw(operands.write(0, n * k), gemm.accumulate);
      multiply(Transposed::kYes, Transposed::kNo, n, k, m, T{1}, a_data, n, b_data, k,
               gemm.accumulate ? T{1} : T{0}, dw.data(), k);
      break;
    }
  }
}

template void compute_gemm<float>(const Gemm&, const OperandsOf&);
template void compute_gemm<double>(const Gemm&, const OperandsOf&);

}  // namespace headway
