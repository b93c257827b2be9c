// Bytes and launches of the kernels that route tokens to their experts, counted from the operations
// that Megatron-LM performs (transformer/moe: moe_utils.py, router.py, token_dispatcher.py): fused
// permutations, and a router of PyTorch's own kernels.
#include "sim/cost/compute_cost.hpp"

namespace headway {

namespace {

constexpr double kWide = 4;   // bytes of a score, of an index
constexpr double kIndex = 4;

struct Work {
  double bytes = 0;
  int launches = 1;
};

Work work(const Routing& routing) {
  const auto tokens = static_cast<double>(routing.tokens);
  const auto choices = tokens * static_cast<double>(routing.per_token);
  const auto scores = tokens * static_cast<double>(routing.experts) * kWide;
  const auto value = static_cast<double>(size_of(routing.type, 2).count) / 2;
  const auto columns = static_cast<double>(routing.columns);
  const double own = tokens * columns * value;
  const double rows = static_cast<double>(routing.rows) * columns * value;
  const double counts = static_cast<double>(routing.parts * routing.local_experts) * kIndex;
  switch (routing.kind) {
    case RoutingKind::kChoose:  // softmax, top-k, softmax of the chosen, their map and its sum
      return {6 * scores + 4 * choices * kWide, 8};
    case RoutingKind::kChooseBackward:
      return {4 * scores + 4 * choices * kWide, 6};
    case RoutingKind::kAssign:  // a map of tokens and experts is sorted by expert
      return {2 * scores / kWide + 4 * choices * kIndex, 5};
    case RoutingKind::kSplits:
      return {6 * counts, 6};
    case RoutingKind::kPermute:
      return {own + rows + choices * kIndex, 1};
    case RoutingKind::kPermuteBackward:
    case RoutingKind::kCombine:
      return {own + rows + choices * (kIndex + kWide), 1};
    case RoutingKind::kSort:
    case RoutingKind::kUnsort:
      return {2 * rows + counts, 1};
    case RoutingKind::kCombineBackward:
      return {own + 2 * rows + choices * (kIndex + 2 * kWide), 1};
  }
  return {};
}

}  // namespace

Bytes bytes_moved(const Routing& routing) {
  return {static_cast<std::int64_t>(work(routing).bytes + 0.5)};
}

int launches(const Routing& routing) { return work(routing).launches; }

}  // namespace headway
