#include "sim/plan/tensor_grid.hpp"

namespace headway {

int column_ranks(const ParallelPlan& plan) {
  return plan.tp_kind == TensorKind::k1d ? plan.tp : plan.tp_side;
}

int key_value_copies(const Transformer& model, int tp) {
  if (model.latent_attention || model.num_key_value_heads >= tp) return 1;
  return tp / static_cast<int>(model.num_key_value_heads);
}

std::vector<FoldedAxis> tensor_axes(const Transformer& model, const ParallelPlan& plan,
                                    int stride) {
  if (plan.tp_kind != TensorKind::k1d) {
    const int side = plan.tp_side, depth = plan.tp_depth;
    return {{kTensorColumnAxis, side, stride},
            {kTensorRowAxis, side, stride * side},
            {kTensorTokensAxis, side * depth, stride * side},
            {kTensorDepthAxis, depth, stride * side * side}};
  }
  const int copies = key_value_copies(model, plan.tp);
  if (copies == 1) return {};
  return {{kKeyValueCopyAxis, copies, stride}, {kKeyValueAxis, plan.tp / copies, stride * copies}};
}

}  // namespace headway
