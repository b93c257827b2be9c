#include "sim/model/operation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace headway {

namespace {

// Names in the order of the enumerators.
constexpr std::array<std::string_view, 3> kGemmRoles = {"forward", "input_gradient",
                                                        "weight_gradient"};
static_assert(kGemmRoles.size() == static_cast<std::size_t>(GemmRole::kWeightGradient) + 1);

constexpr std::array<std::string_view, 5> kAttentionKernels = {"unfused", "flash1", "flash2",
                                                               "flash3", "cudnn"};
static_assert(kAttentionKernels.size() == static_cast<std::size_t>(AttentionKernel::kCudnn) + 1);

constexpr std::array<std::string_view, 3> kTokenOrders = {"contiguous", "zigzag", "striped"};
static_assert(kTokenOrders.size() == static_cast<std::size_t>(TokenOrder::kStriped) + 1);

constexpr std::array<std::string_view, 65> kKernelKinds = {"embedding_forward",
                                                           "embedding_backward",
                                                           "position_forward",
                                                           "position_backward",
                                                           "rms_norm_forward",
                                                           "rms_norm_backward",
                                                           "layer_norm_forward",
                                                           "layer_norm_backward",
                                                           "rotary_forward",
                                                           "rotary_backward",
                                                           "latent_forward",
                                                           "latent_backward",
                                                           "gelu_forward",
                                                           "gelu_backward",
                                                           "swiglu_forward",
                                                           "swiglu_backward",
                                                           "relu_forward",
                                                           "relu_backward",
                                                           "bias_add",
                                                           "bias_backward",
                                                           "dropout_forward",
                                                           "dropout_backward",
                                                           "residual_add",
                                                           "bias_dropout_add_forward",
                                                           "bias_dropout_add_backward",
                                                           "gradient_add",
                                                           "gradient_accumulate",
                                                           "cross_entropy_maximum",
                                                           "cross_entropy_sums",
                                                           "cross_entropy_loss",
                                                           "cross_entropy_backward",
                                                           "cross_entropy_shift",
                                                           "cross_entropy_input_gradient",
                                                           "fused_cross_entropy_forward",
                                                           "fused_cross_entropy_backward",
                                                           "loss_sum",
                                                           "cast",
                                                           "amax",
                                                           "quantise",
                                                           "transpose",
                                                           "roll_amax",
                                                           "scale",
                                                           "zero",
                                                           "copy",
                                                           "to_host",
                                                           "to_device",
                                                           "sum_parts",
                                                           "split_sequence",
                                                           "split_columns",
                                                           "join_columns",
                                                           "attention_merge",
                                                           "mix_forward",
                                                           "mix_backward",
                                                           "squared_norm",
                                                           "clip",
                                                           "validate_norm",
                                                           "sgd",
                                                           "adam",
                                                           "lion",
                                                           "momentum",
                                                           "normalise",
                                                           "weighted_sum",
                                                           "factored_direction",
                                                           "decayed_step",
                                                           "cast_parameters"};
static_assert(kKernelKinds.size() == static_cast<std::size_t>(KernelKind::kCastParameters) + 1);

constexpr std::array<std::string_view, 9> kCollectiveKinds = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "all_to_all", "shift",          "send",       "receive"};
static_assert(kCollectiveKinds.size() == static_cast<std::size_t>(CollectiveKind::kReceive) + 1);

constexpr std::array<std::string_view, 3> kReduceOperators = {"sum", "maximum", "average"};
static_assert(kReduceOperators.size() == static_cast<std::size_t>(ReduceOperator::kAverage) + 1);

constexpr std::array<std::string_view, 10> kRoutingKinds = {
    "choose", "choose_backward", "assign",  "splits",          "permute", "permute_backward",
    "sort",   "unsort",          "combine", "combine_backward"};
static_assert(kRoutingKinds.size() == static_cast<std::size_t>(RoutingKind::kCombineBackward) + 1);

constexpr std::array<std::string_view, 3> kRouterScores = {"softmax", "softmax_of_chosen",
                                                           "sigmoid"};
static_assert(kRouterScores.size() == static_cast<std::size_t>(RouterScore::kSigmoid) + 1);

constexpr std::array<std::string_view, 3> kShares = {"equal", "by_counts", "back_by_counts"};
static_assert(kShares.size() == static_cast<std::size_t>(Shares::kBackByCounts) + 1);

constexpr std::array<std::string_view, 5> kHostKinds = {"micro_batch", "step", "synchronise",
                                                        "await", "pause"};
static_assert(kHostKinds.size() == static_cast<std::size_t>(HostKind::kPause) + 1);

template <typename Enum, std::size_t size>
std::string_view name_in(const std::array<std::string_view, size>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

template <typename Enum, std::size_t size>
std::optional<Enum> value_in(const std::array<std::string_view, size>& names,
                             std::string_view word) {
  for (std::size_t i = 0; i < size; ++i) {
    if (names[i] == word) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

double real(std::int64_t number) { return static_cast<double>(number); }

struct FlopsOf {
  Flops operator()(const Gemm& gemm) const {
    return {2.0 * real(gemm.batch) * real(gemm.m) * real(gemm.n) * real(gemm.k)};
  }
  Flops operator()(const GroupedGemm& gemm) const {
    return {2.0 * real(gemm.m) * real(gemm.n) * real(gemm.k)};
  }
  // q k^T and probabilities times v; the backward pass has two products for each.
  Flops operator()(const Attention& attention) const {
    const double pairs = real(attention.batch) * real(attention.sequence_q) * keys_met(attention);
    const double forward = 2.0 * pairs * real(attention.heads) *
                           (real(attention.head_dim) + real(attention.head_dim_v));
    return {attention.backward ? 2.0 * forward : forward};
  }
  Flops operator()(const Kernel&) const { return {}; }
  Flops operator()(const Routing&) const { return {}; }
  Flops operator()(const Collective&) const { return {}; }
  Flops operator()(const HostWork&) const { return {}; }
};

}  // namespace

std::string_view name(GemmRole role) { return name_in(kGemmRoles, role); }
std::string_view name(AttentionKernel kernel) { return name_in(kAttentionKernels, kernel); }
std::string_view name(TokenOrder order) { return name_in(kTokenOrders, order); }
std::string_view name(KernelKind kind) { return name_in(kKernelKinds, kind); }
std::string_view name(RoutingKind kind) { return name_in(kRoutingKinds, kind); }
std::string_view name(RouterScore score) { return name_in(kRouterScores, score); }
std::string_view name(Shares shares) { return name_in(kShares, shares); }
std::string_view name(CollectiveKind kind) { return name_in(kCollectiveKinds, kind); }
std::string_view name(ReduceOperator reduce) { return name_in(kReduceOperators, reduce); }
std::string_view name(HostKind kind) { return name_in(kHostKinds, kind); }

std::optional<GemmRole> gemm_role_named(std::string_view word) {
  return value_in<GemmRole>(kGemmRoles, word);
}
std::optional<AttentionKernel> attention_kernel_named(std::string_view word) {
  return value_in<AttentionKernel>(kAttentionKernels, word);
}
std::optional<TokenOrder> token_order_named(std::string_view word) {
  return value_in<TokenOrder>(kTokenOrders, word);
}
std::optional<KernelKind> kernel_kind_named(std::string_view word) {
  return value_in<KernelKind>(kKernelKinds, word);
}
std::optional<CollectiveKind> collective_kind_named(std::string_view word) {
  return value_in<CollectiveKind>(kCollectiveKinds, word);
}
std::optional<ReduceOperator> reduce_operator_named(std::string_view word) {
  return value_in<ReduceOperator>(kReduceOperators, word);
}
std::optional<HostKind> host_kind_named(std::string_view word) {
  return value_in<HostKind>(kHostKinds, word);
}

// Unfused kernels compute what a window hides, too. With w of s positions there are w s - w^2 / 2
// pairs, which is s^2 / 2 where the window is the sequence.
double keys_met(const Attention& attention) {
  const double keys = real(attention.document > 0 ? attention.document : attention.sequence_kv);
  if (attention.window == 0 || !attention.causal) return keys;
  if (attention.kernel == AttentionKernel::kUnfused) return keys;
  const double window = std::min(keys, real(attention.window));
  return window * (2 * keys - window) / keys;
}

bool depends_on_place(const Attention& attention) {
  return attention.causal && attention.ring > 1 && attention.order == TokenOrder::kContiguous;
}

// By positions, a query sees a key that does not come after it. Zigzag: of a block from elsewhere
// all queries see the first half of the keys, or half of the queries sees all; gathered keys are
// seen by half on average. Striped: a block from elsewhere is causal too, but for its diagonal.
std::optional<Attention> computed_part(const Attention& attention, std::int64_t place) {
  if (!attention.causal || attention.ring == 1) return attention;
  Attention part = attention;
  if (attention.order == TokenOrder::kContiguous) {
    if (attention.gathered && attention.window > 0) {
      // Its queries see what stands before them, at most the window: the mean over its run.
      const double first = real(place * attention.sequence_q), run = real(attention.sequence_q);
      const double full = std::clamp(real(attention.window) - first, 0.0, run);
      const double seen = full * (first + full / 2) + (run - full) * real(attention.window);
      part.sequence_kv = std::max<std::int64_t>(1, std::llround(seen / run));
      part.causal = false;
    } else if (attention.gathered) {
      if (place == 0) {
        part.sequence_kv = attention.sequence_q;
      } else {
        part.sequence_kv = place * attention.sequence_q + attention.sequence_q / 2;
        part.causal = false;
      }
    } else if (attention.distance > place) {
      return std::nullopt;
    } else {
      part.causal = attention.distance == 0;
    }
  } else if (attention.order == TokenOrder::kZigzag && !attention.gathered &&
             attention.distance > 0) {
    part.sequence_kv = attention.sequence_kv / 2;
    part.causal = false;
  }
  return part;
}

Flops flops(const Operation& operation) { return std::visit(FlopsOf{}, operation); }

Bytes size(const Collective& collective) { return size_of(collective.type, collective.elements); }

}  // namespace headway
