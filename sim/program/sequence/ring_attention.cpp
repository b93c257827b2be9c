#include "sim/program/sequence/ring_attention.hpp"

namespace headway {

RingAttention::RingAttention(ProgramBuilder& builder, const AttentionOperands& operands)
    : builder_(builder), operands_(operands) {
  const StepShape& shape = builder_.shape();
  const std::int64_t query_width = shape.core_heads * shape.head_dim;
  const std::int64_t context_width = shape.core_heads * shape.value_head_dim;
  const std::int64_t key_width = shape.core_key_value_heads * shape.head_dim;
  const std::int64_t value_width = shape.core_key_value_heads * shape.value_head_dim;
  const auto make = [&](const std::string& name, DataType type, std::int64_t width,
                        BufferCategory category = BufferCategory::kActivation) {
    return builder_.activation("attention." + name, type, shape.tokens * shape.ulysses, width,
                               Copies::kScratch, ProgramBuilder::Split::kColumns, category);
  };
  const auto pair = [&](const std::string& keys, const std::string& values,
                        BufferCategory category) {
    return Pair{make(keys, shape.storage, key_width, category),
                make(values, shape.storage, value_width, category)};
  };
  for (const char* turn : {"0", "1"}) {
    const std::string name = std::string("ring") + turn;
    const BufferCategory moved = BufferCategory::kCommunication;
    travelling_.push_back(pair(name + "_keys", name + "_values", moved));
    travelling_gradients_.push_back(pair(name + "_key_gradient", name + "_value_gradient", moved));
  }
  block_gradients_ =
      pair("block_key_gradient", "block_value_gradient", BufferCategory::kActivation);
  block_query_gradient_ = make("block_query_gradient", shape.storage, query_width);
  block_context_ = make("block_context", shape.storage, context_width);
  block_statistics_ = make("block_statistics", shape.statistics, shape.core_heads);
  merged_ = make("merged_context", shape.statistics, context_width);
}

Attention RingAttention::core(bool backward, int distance) const {
  Attention result = core_shape(builder_, backward);
  result.distance = distance;
  return result;
}

Kernel RingAttention::kernel(KernelKind kind, std::int64_t columns, DataType type,
                             DataType output) const {
  Kernel result;
  result.kind = kind;
  result.rows = builder_.shape().tokens * builder_.shape().ulysses;
  result.columns = columns;
  result.type = type;
  result.output = output;
  return result;
}

int RingAttention::shift(OperationList& list, const std::string& name, const Pair& from,
                         const Pair& to) {
  Collective collective;
  collective.kind = CollectiveKind::kShift;
  for (const int family : {from.keys, from.values}) {
    collective.elements += builder_.program().buffers[static_cast<std::size_t>(family)].elements();
  }
  collective.type = builder_.shape().storage;
  const int index = list.add(name, collective, {{from.keys}, {from.values}},
                             {{to.keys}, {to.values}}, Cause::kContextParallel);
  list.at(index).group = builder_.ring_group();
  list.at(index).stream = builder_.stream("cp");
  return index;
}

RingAttention::Pair RingAttention::block(int distance) const {
  if (distance == 0) return {operands_.keys, operands_.values};
  return travelling_[static_cast<std::size_t>(distance % 2)];
}

// The first one waits for the rank's own keys.
int RingAttention::shift_block(OperationList& list, const std::string& name, int distance) {
  const int index =
      shift(list, name + std::to_string(distance), block(distance - 1), block(distance));
  if (distance == 1) list.at(index).joins = {0};
  return index;
}

void RingAttention::forward(OperationList& list, const std::string& name, int context) {
  const StepShape& shape = builder_.shape();
  const std::int64_t width = shape.core_heads * shape.value_head_dim;
  const DataType wide = shape.statistics;
  const BufferRef statistics = operands_.statistics.front();
  int arrived = -1;
  for (int distance = 0; distance < shape.ring; ++distance) {
    int next = -1;
    if (distance + 1 < shape.ring) next = shift_block(list, name + "_shift", distance + 1);
    const Pair at_hand = block(distance);
    const std::string number = std::to_string(distance);
    list.add(name + number, core(false, distance),
             {{operands_.queries}, {at_hand.keys}, {at_hand.values}},
             {{block_context_}, distance == 0 ? statistics : BufferRef{block_statistics_}});
    if (arrived >= 0) list.last().after = {arrived};
    arrived = next;
    if (distance == 0) {
      list.add(name + "_widen", kernel(KernelKind::kCast, width, shape.storage, wide),
               {{block_context_}}, {{merged_}});
      continue;
    }
    Kernel merge = kernel(KernelKind::kAttentionMerge, width, shape.storage, wide);
    merge.head_dim = shape.value_head_dim;
    list.add(name + "_merge" + number, merge,
             {{block_context_}, {block_statistics_}, {merged_}, statistics},
             {{merged_}, statistics});
  }
  list.add(name + "_narrow", kernel(KernelKind::kCast, width, wide, shape.storage), {{merged_}},
           {{context}});
}

std::vector<int> RingAttention::begin_backward(OperationList& list) {
  return {shift_block(list, "attention.core_backward_shift", 1)};
}

void RingAttention::add(OperationList& list, const std::string& name, int sum, int other,
                        int after) {
  const StepShape& shape = builder_.shape();
  const BufferFamily& family = builder_.program().buffers[static_cast<std::size_t>(sum)];
  list.add(name, kernel(KernelKind::kGradientAdd, family.columns, shape.storage, shape.storage),
           {{sum}, {other}}, {{sum}});
  if (after >= 0) list.last().after = {after};
}

void RingAttention::block_backward(OperationList& list, BufferRef context_gradient, int context,
                                   int distance, const Pair& gradients, int arrived) {
  const Pair at_hand = block(distance);
  const bool first = distance == 1;
  const std::string name = "attention.core_backward" + std::to_string(distance);
  list.add(name, core(true, distance),
           {context_gradient,
            {operands_.queries},
            {at_hand.keys},
            {at_hand.values},
            {context},
            operands_.statistics.front()},
           {{first ? operands_.query_gradient : block_query_gradient_},
            {gradients.keys},
            {gradients.values}});
  if (arrived >= 0) list.last().after = {arrived};
  if (!first) add(list, name + "_queries", operands_.query_gradient, block_query_gradient_);
}

void RingAttention::backward(OperationList& list, BufferRef context_gradient, int context,
                             const std::vector<int>& begun) {
  const int ring = builder_.shape().ring;
  int arrived = begun.front(), gradients_arrived = -1;
  for (int distance = 1; distance < ring; ++distance) {
    int next = -1;
    if (distance + 1 < ring) {
      next = shift_block(list, "attention.core_backward_shift", distance + 1);
    }
    const Pair& sums = travelling_gradients_[static_cast<std::size_t>(distance % 2)];
    const Pair& passed_on = travelling_gradients_[static_cast<std::size_t>((distance + 1) % 2)];
    const bool first = distance == 1;
    block_backward(list, context_gradient, context, distance, first ? sums : block_gradients_,
                   arrived);
    arrived = next;
    const std::string number = std::to_string(distance);
    if (!first) {
      add(list, "attention.ring_keys" + number, sums.keys, block_gradients_.keys,
          gradients_arrived);
      add(list, "attention.ring_values" + number, sums.values, block_gradients_.values);
    }
    gradients_arrived =
        shift(list, "attention.core_backward_gradient_shift" + number, sums, passed_on);
    list.at(gradients_arrived).joins = {0};
  }
  const Pair& received = travelling_gradients_[static_cast<std::size_t>(ring % 2)];
  block_backward(list, context_gradient, context, 0,
                 {operands_.key_gradient, operands_.value_gradient}, -1);
  add(list, "attention.ring_keys0", operands_.key_gradient, received.keys, gradients_arrived);
  add(list, "attention.ring_values0", operands_.value_gradient, received.values);
}

}  // namespace headway
