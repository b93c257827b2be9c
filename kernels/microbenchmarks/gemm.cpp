// Matrix multiplications of the shapes that small transformers have, forward, input gradient and
// weight gradient (added to what is there), by OpenBLAS on one core.
#include "kernels/microbenchmarks/operation_operands.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void add_gemm(GemmRole role, DataType type, std::int64_t m, std::int64_t n, std::int64_t k) {
  add(gemm_benchmark(role, type, type, m, n, k));
}

void add_all(bool quick) {
  using Sizes = std::vector<std::int64_t>;
  const Sizes tokens = quick ? Sizes{128, 512} : Sizes{64, 128, 256, 512, 1024};
  const Sizes widths = quick ? Sizes{256, 1024} : Sizes{128, 256, 512, 1024, 2048};
  // Layers are wider on one side; the head's vocabulary is the widest.
  const std::vector<std::pair<std::int64_t, std::int64_t>> oblong =
      quick ? std::vector<std::pair<std::int64_t, std::int64_t>>{}
            : std::vector<std::pair<std::int64_t, std::int64_t>>{
                  {768, 256},  {1536, 512},  {3072, 1024}, {384, 384}, {768, 768},
                  {4096, 512}, {4096, 1024}, {8192, 512},  {512, 3072}};
  for (const GemmRole role :
       {GemmRole::kForward, GemmRole::kInputGradient, GemmRole::kWeightGradient}) {
    for (const std::int64_t m : tokens) {
      for (const std::int64_t n : widths) {
        for (const std::int64_t k : widths) add_gemm(role, DataType::kFp32, m, n, k);
      }
      for (const auto& [n, k] : oblong) add_gemm(role, DataType::kFp32, m, n, k);
    }
  }
  if (quick) return;
  for (const std::int64_t width : {128, 512}) {
    for (const GemmRole role :
         {GemmRole::kForward, GemmRole::kInputGradient, GemmRole::kWeightGradient}) {
      for (const std::int64_t m : {128, 512}) add_gemm(role, DataType::kFp64, m, width, width);
    }
  }
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
