// What follows the last gradient: its norm, clipping, SGD and AdamW, and the copy of the master
// into the parameters.
#include "kernels/microbenchmarks/kernel_table.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void add_all(bool quick) {
  add_kernels(optimizer_kernels(), quick ? KernelShapes{{1024, 1024}}
                                         : KernelShapes{{256, 256}, {1024, 1024}, {4096, 2048}});
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
