// The attention core, forward and backward, causal.
#include "kernels/microbenchmarks/operation_operands.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void add_all(bool quick) {
  using Sizes = std::vector<std::int64_t>;
  for (const bool backward : {false, true}) {
    for (const std::int64_t sequence : quick ? Sizes{128, 512} : Sizes{64, 128, 256, 512, 1024}) {
      for (const std::int64_t heads : quick ? Sizes{4} : Sizes{2, 4, 8}) {
        for (const std::int64_t head_dim : quick ? Sizes{64} : Sizes{32, 64, 128}) {
          add(attention_benchmark(backward, DataType::kFp32, 1, heads, heads, sequence, head_dim));
        }
      }
    }
    if (!quick) {
      add(attention_benchmark(backward, DataType::kFp32, 1, 8, 2, 256, 64));
      add(attention_benchmark(backward, DataType::kFp32, 4, 4, 4, 128, 64));
    }
  }
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
