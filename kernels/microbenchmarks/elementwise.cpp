// Every memory-bound kernel of forward and backward passes: norms, activations, rotary and learned
// positions, embedding, dropout, residuals, cross-entropy, sums of gradients, casts and copies.
#include "kernels/microbenchmarks/kernel_table.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

constexpr KernelOperands kKernels[] = {
    {KernelKind::kEmbeddingForward, "iv", "x"},
    {KernelKind::kEmbeddingBackward, "ixv", "2"},
    {KernelKind::kPositionForward, "xx", "0"},
    {KernelKind::kPositionBackward, "xx", "1"},
    {KernelKind::kRmsNormForward, "xw", "xs"},
    {KernelKind::kRmsNormBackward, "xxwsw", "x4"},
    {KernelKind::kLayerNormForward, "xww", "xt"},
    {KernelKind::kLayerNormBackward, "xxwtww", "x45"},
    {KernelKind::kRotaryForward, "x", "0"},
    {KernelKind::kRotaryBackward, "x", "0"},
    {KernelKind::kGeluForward, "x", "x"},
    {KernelKind::kGeluBackward, "xx", "x"},
    {KernelKind::kSwigluForward, "d", "x"},
    {KernelKind::kSwigluBackward, "xd", "d"},
    {KernelKind::kReluForward, "x", "x"},
    {KernelKind::kReluBackward, "xx", "x"},
    {KernelKind::kBiasAdd, "xw", "0"},
    {KernelKind::kBiasBackward, "xw", "1"},
    {KernelKind::kDropoutForward, "x", "xm"},
    {KernelKind::kDropoutBackward, "xm", "x"},
    {KernelKind::kResidualAdd, "xx", "x"},
    {KernelKind::kBiasDropoutAddForward, "xx", "xm"},
    {KernelKind::kBiasDropoutAddBackward, "xm", "x"},
    {KernelKind::kGradientAdd, "xx", "0"},
    {KernelKind::kGradientAccumulate, "xx", "0"},
    {KernelKind::kCrossEntropyMaximum, "x", "s"},
    {KernelKind::kCrossEntropySums, "xsi", "ss0"},
    {KernelKind::kCrossEntropyLoss, "sss", "s"},
    {KernelKind::kCrossEntropyBackward, "xsi", "0"},
    {KernelKind::kCrossEntropyShift, "sss", "0"},
    {KernelKind::kCrossEntropyInputGradient, "xxs", "0"},
    {KernelKind::kFusedCrossEntropyForward, "xi", "ss"},
    {KernelKind::kFusedCrossEntropyBackward, "xis", "x"},
    {KernelKind::kCast, "x", "x"},
    {KernelKind::kScale, "x", "0"},
    {KernelKind::kZero, "", "x"},
    {KernelKind::kCopy, "x", "x"},
};

void add_all(bool quick) {
  add_kernels(kKernels, quick ? KernelShapes{{512, 1024}}
                              : KernelShapes{{128, 256}, {512, 512}, {512, 1024}, {512, 4096}});
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
