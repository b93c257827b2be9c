#include <algorithm>

#include "kernels/cpu/matrix.hpp"
#include "kernels/cpu/routing.hpp"

namespace headway {
namespace {

// Where the next group begins.
std::int64_t padded(const GroupedGemm& gemm, std::int64_t rows) {
  return (rows + gemm.multiple - 1) / gemm.multiple * gemm.multiple;
}

// Rows of each group: the sums of the columns of counts[parts, groups].
std::vector<std::int64_t> group_rows(const GroupedGemm& gemm, const OperandsOf& operands,
                                     std::int64_t most) {
  const std::vector<std::int64_t> counts = integers(operands.read(2));
  std::vector<std::int64_t> rows(static_cast<std::size_t>(gemm.groups));
  for (std::size_t i = 0; i < counts.size(); ++i) rows[i % rows.size()] += counts[i];
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) sum += padded(gemm, count);
  if (sum > most) operands.refuse("the counts add up to more rows than its operands have");
  return rows;
}

}  // namespace

template <typename T>
void compute_grouped_gemm(const GroupedGemm& gemm, const OperandsOf& operands) {
  const std::int64_t n = gemm.n, k = gemm.k;
  const bool weight = gemm.role == GemmRole::kWeightGradient;
  const bool forward = gemm.role == GemmRole::kForward;
  const std::int64_t width = forward ? k : n;  // of the first operand
  const std::int64_t most = operands.read(0).elements() / width;
  const std::vector<std::int64_t> rows = group_rows(gemm, operands, most);
  const Input<T> a(operands.read(0, most * width));
  const Input<T> b(operands.read(1, weight ? most * k : gemm.groups * n * k));
  if (weight && gemm.accumulate) operands.read(3, gemm.groups * n * k);
  const std::int64_t result = weight ? gemm.groups * n * k : most * (forward ? n : k);
  Output<T> c(operands.write(0, result), weight && gemm.accumulate);
  if (!weight) std::fill(c.data(), c.data() + result, T{0});
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < gemm.groups; ++g) {
    const std::int64_t m = rows[static_cast<std::size_t>(g)];
    const std::int64_t block = g * n * k;
    if (weight) {
      const T kept = gemm.accumulate ? T{1} : T{0};
      if (m > 0) {
        multiply(Transposed::kYes, Transposed::kNo, n, k, m, T{1}, a.data() + first * n, n,
                 b.data() + first * k, k, kept, c.data() + block, k);
      } else if (!gemm.accumulate) {
        std::fill(c.data() + block, c.data() + block + n * k, T{0});
      }
    } else if (m > 0) {
      multiply(Transposed::kNo, forward ? Transposed::kYes : Transposed::kNo, m, forward ? n : k,
               width, T{1}, a.data() + first * width, width, b.data() + block, k, T{0},
               c.data() + first * (forward ? n : k), forward ? n : k);
    }
    first += padded(gemm, m);
  }
}

template void compute_grouped_gemm<float>(const GroupedGemm&, const OperandsOf&);
template void compute_grouped_gemm<double>(const GroupedGemm&, const OperandsOf&);

}  // namespace headway
