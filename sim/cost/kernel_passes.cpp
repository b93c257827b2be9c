// Bytes and launches of every memory-bound kernel: what each of its passes reads and writes per
// element, counted from the operations that the frameworks' fused kernels and eager code perform.
#include "sim/cost/compute_cost.hpp"

namespace headway {

namespace {

// Per element of [rows, columns]: how many values of the input type and of the output type are read
// or written, and how many bytes of other types (masks of one byte, fp32 temporaries of eager
// code).
struct Passes {
  double inputs = 0;
  double outputs = 0;
  double bytes = 0;
  int launches = 1;
};

// Eager norms of 16-bit tensors work in fp32 (Hugging Face's and Megatron's unfused RMSNorm):
// cast 2+4, square 4+4, mean 4, times rsqrt 4+4, cast 4+2, times weight 2+2.
constexpr Passes kEagerRmsForward = {0, 0, 36, 7};
// Backward of those: times weight 4, weight gradient 6 and its sum 2, cast 6, products with the
// statistics 8 and 12 and their sum 4, square 8, mean 4, product 12, sum of the two paths 12,
// cast 6.
constexpr Passes kEagerRmsBackward = {0, 0, 84, 13};
// x cos, rotate_half as negate and concatenate, times sin, sum: 2 + 1 + 2 + 2 + 3 values.
constexpr Passes kEagerRotaryForward = {10, 0, 0, 5};
// The same backwards, with the gradient's slices put together again.
constexpr Passes kEagerRotaryBackward = {12, 0, 0, 6};

// Megatron's unfused vocabulary-parallel loss (tensor_parallel/cross_entropy.py), in the type that
// the logits come in; casts are operations of their own. Maximum; subtract, exponential, sum and
// divide in place; backward a product in place.
Passes cross_entropy(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kCrossEntropyMaximum:
      return {1, 0, 0, 1};
    case KernelKind::kCrossEntropySums:
      return kernel.fused ? Passes{1, 1, 0, 1} : Passes{2 + 2 + 1 + 2, 0, 0, 4};
    default:
      return {1, 1, 0, 1};
  }
}

Passes norm(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kRmsNormForward:
      return kernel.fused ? Passes{1, 1, 0, 1} : kEagerRmsForward;
    case KernelKind::kRmsNormBackward:  // reads dy and x, writes dx; a small second kernel sums
                                        // dweight
      return kernel.fused ? Passes{2, 1, 0, 2} : kEagerRmsBackward;
    case KernelKind::kLayerNormForward:
      return {1, 1, 0, 1};
    default:  // PyTorch's own sums dweight and dbias in a second pass over dy and x
      return kernel.fused ? Passes{2, 1, 0, 2} : Passes{4, 1, 0, 2};
  }
}

Passes activation(const Kernel& kernel) {
  const bool apart = kernel.bias && !kernel.fused;
  switch (kernel.kind) {
    case KernelKind::kGeluForward:
      return apart ? Passes{3, 1, 0, 2} : Passes{1, 1, 0, 1};
    case KernelKind::kGeluBackward:  // dbias: a column sum over dx
      return kernel.bias ? Passes{3, 1, 0, 2} : Passes{2, 1, 0, 1};
    case KernelKind::kSwigluForward:  // eager: silu, then the product
      return kernel.fused ? Passes{2, 1, 0, 1} : Passes{4, 1, 0, 2};
    case KernelKind::kSwigluBackward:  // eager: two products, silu backward, concatenation
      return kernel.fused ? Passes{3, 2, 0, 1} : Passes{11, 2, 0, 4};
    case KernelKind::kReluForward:
      return {1, 1, 0, 1};
    default:
      return {2, 1, 0, 1};
  }
}

Passes dropout_and_add(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kDropoutForward:
      return {1, 1, 1, 1};
    case KernelKind::kDropoutBackward:
      return {1, 1, 1, 1};
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
      return {2, 1, 0, 1};
    case KernelKind::kBiasDropoutAddForward:  // eager: bias 2, dropout 2 and mask, sum 3
      return kernel.fused ? Passes{2, 1, 1, 1} : Passes{6, 1, 1, kernel.bias ? 3 : 2};
    default:  // mask, and a column sum for dbias
      return kernel.bias ? Passes{2, 1, 1, 2} : Passes{1, 1, 1, 1};
  }
}

Passes passes(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kEmbeddingForward:
      return {1, 1, 0, 1};
    case KernelKind::kEmbeddingBackward:  // reads dhidden, adds into the table's rows
      return {1, 2, 0, 2};
    case KernelKind::kPositionForward:
      return {2, 1, 0, 1};
    case KernelKind::kPositionBackward:
      return {1, 2, 0, 1};
    case KernelKind::kRmsNormForward:
    case KernelKind::kRmsNormBackward:
    case KernelKind::kLayerNormForward:
    case KernelKind::kLayerNormBackward:
      return norm(kernel);
    case KernelKind::kRotaryForward:
      return kernel.fused ? Passes{1, 1, 0, 1} : kEagerRotaryForward;
    case KernelKind::kRotaryBackward:
      return kernel.fused ? Passes{1, 1, 0, 1} : kEagerRotaryBackward;
    case KernelKind::kLatentForward:  // rotates queries, and lays keys together (latent_values)
    case KernelKind::kLatentBackward:
      return {0, 0, 0, 2};
    case KernelKind::kGeluForward:
    case KernelKind::kGeluBackward:
    case KernelKind::kSwigluForward:
    case KernelKind::kSwigluBackward:
    case KernelKind::kReluForward:
    case KernelKind::kReluBackward:
      return activation(kernel);
    case KernelKind::kDropoutForward:
    case KernelKind::kDropoutBackward:
    case KernelKind::kResidualAdd:
    case KernelKind::kGradientAdd:
    case KernelKind::kBiasDropoutAddForward:
    case KernelKind::kBiasDropoutAddBackward:
      return dropout_and_add(kernel);
    case KernelKind::kCrossEntropyMaximum:
    case KernelKind::kCrossEntropySums:
    case KernelKind::kCrossEntropyBackward:
      return cross_entropy(kernel);
    case KernelKind::kCrossEntropyShift:  // difference, exponential, product
      return {3 + 1 + 2, 3, 0, 3};
    case KernelKind::kCrossEntropyInputGradient:  // product in place, difference in place
      return {1 + 2, 2, 0, 2};
    case KernelKind::kFusedCrossEntropyForward:  // one pass with a running maximum and sum
      return {1, 0, 0, 1};
    case KernelKind::kFusedCrossEntropyBackward:
      return {1, 1, 0, 1};
    case KernelKind::kAttentionMerge:  // the block read, the sum read and written
      return {1, 2, 0, 1};
    case KernelKind::kMixForward:  // eager: softmax, two products, their sum
      return {2 + 2 + 2, 2 + 1, 0, 4};
    case KernelKind::kMixBackward:  // da, db; two sums of products over columns; softmax backward
      return {2 + 4, 2, 0, 7};
    case KernelKind::kGradientAccumulate:  // gradient read, main gradient read and written
      return {1, 2, 0, 1};
    case KernelKind::kBiasBackward:
    case KernelKind::kSquaredNorm:
    case KernelKind::kAmax:
      return {1, 0, 0, 1};
    case KernelKind::kQuantise:  // both copies from one reading (TE, cast_transpose)
      return {1, kernel.transposed ? 2.0 : 1.0, 0, 1};
    case KernelKind::kCastParameters:  // to 8 bits: the largest magnitude first
      return {size_of(kernel.output, 1).count == 1 ? 2.0 : 1.0, 1, 0, 1};
    case KernelKind::kZero:
      return {0, 1, 0, 1};
    case KernelKind::kSgd:
      return {2, 1, 0, 1};
    case KernelKind::kAdam:  // master, gradient, two moments read; master, moments written
      return {4, 3, 0, 1};
    case KernelKind::kLion:  // as Adam, with one moment
      return {3, 2, 0, 1};
    case KernelKind::kMomentum:  // gradient and momentum read; momentum and direction written
      return {2, 2, 0, 1};
    case KernelKind::kFactoredDirection:  // squares summed; gradient and moments give the update,
                                          // which is scaled down by its own size
      return {2, 3, 0, 3};
    case KernelKind::kDecayedStep:
    case KernelKind::kWeightedSum:
      return {2, 1, 0, 1};
    case KernelKind::kCrossEntropyLoss:
    case KernelKind::kLossSum:
      return {2, 1, 0, 1};
    case KernelKind::kBiasAdd:
    case KernelKind::kCast:
    case KernelKind::kScale:
    case KernelKind::kCopy:
    case KernelKind::kToHost:  // what the device's memory sees; the way to the host is its own cost
    case KernelKind::kToDevice:
    case KernelKind::kSumParts:
    case KernelKind::kSplitSequence:
    case KernelKind::kSplitColumns:
    case KernelKind::kJoinColumns:
    case KernelKind::kClip:
    case KernelKind::kTranspose:
    case KernelKind::kRollAmax:
    case KernelKind::kValidateNorm:
    case KernelKind::kNormalise:
      return {1, 1, 0, 1};
  }
  return {};
}

// Per column of heads: query, key and value are read and written; backward the same back.
double latent_values(const Kernel& kernel) {
  const auto heads = static_cast<double>(kernel.columns);
  const auto plain = static_cast<double>(kernel.plain_dim);
  const auto turned = static_cast<double>(kernel.head_dim);
  const auto value = static_cast<double>(kernel.value_dim);
  const double apart = heads * (2 * plain + turned + value) + turned;
  const double packed = heads * (2 * plain + 2 * turned + value);
  return static_cast<double>(kernel.rows) * (apart + packed);
}

// Of these only the rows matter: their columns are those of the logits they sum up.
bool per_row(KernelKind kind) {
  return kind == KernelKind::kCrossEntropyLoss || kind == KernelKind::kLossSum ||
         kind == KernelKind::kCrossEntropyShift;
}

}  // namespace

Bytes bytes_moved(const Kernel& kernel) {
  if (kernel.kind == KernelKind::kLatentForward || kernel.kind == KernelKind::kLatentBackward) {
    const double value = static_cast<double>(size_of(kernel.type, 2).count) / 2;
    return {static_cast<std::int64_t>(latent_values(kernel) * value + 0.5)};
  }
  const Passes each = passes(kernel);
  const std::int64_t elements = per_row(kernel.kind) ? kernel.rows : kernel.rows * kernel.columns;
  const auto input = static_cast<double>(size_of(kernel.type, elements).count);
  const auto output = static_cast<double>(size_of(kernel.output, elements).count);
  const double bytes =
      each.inputs * input + each.outputs * output + each.bytes * static_cast<double>(elements);
  return {static_cast<std::int64_t>(bytes + 0.5)};
}

int launches(const Kernel& kernel) { return passes(kernel).launches; }

}  // namespace headway
