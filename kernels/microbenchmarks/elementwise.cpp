// Every memory-bound kernel of forward and backward passes: norms, activations, rotary and learned
// positions, embedding, dropout, residuals, cross-entropy, sums of gradients, casts and copies.
#include "kernels/microbenchmarks/kernel_table.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void add_all(bool quick) {
  add_kernels(training_kernels(),
              quick ? KernelShapes{{512, 1024}}
                    : KernelShapes{{128, 256}, {512, 512}, {512, 1024}, {512, 4096}});
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
