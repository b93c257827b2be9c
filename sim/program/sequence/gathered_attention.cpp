#include "sim/program/sequence/gathered_attention.hpp"

namespace headway {

GatheredAttention::GatheredAttention(ProgramBuilder& builder, const AttentionOperands& operands)
    : builder_(builder), operands_(operands) {
  const StepShape& shape = builder_.shape();
  const auto all = [&](const char* name, std::int64_t head_dim) {
    return builder_.activation(std::string("attention.") + name, shape.storage,
                               shape.tokens * shape.ring, shape.core_key_value_heads * head_dim,
                               Copies::kScratch, ProgramBuilder::Split::kColumns,
                               BufferCategory::kCommunication);
  };
  keys_ = all("gathered_keys", shape.head_dim);
  values_ = all("gathered_values", shape.value_head_dim);
  key_gradient_ = all("gathered_key_gradient", shape.head_dim);
  value_gradient_ = all("gathered_value_gradient", shape.value_head_dim);
}

Attention GatheredAttention::core(bool backward) const {
  Attention result = core_shape(builder_, backward);
  result.sequence_kv *= result.ring;
  result.gathered = true;
  return result;
}

Collective GatheredAttention::collective(CollectiveKind kind, int all) const {
  Collective result;
  result.kind = kind;
  result.elements = builder_.program().buffers[static_cast<std::size_t>(all)].elements();
  result.type = builder_.shape().storage;
  return result;
}

int GatheredAttention::gather(OperationList& list, const std::string& name, int own, int all) {
  const int index = list.add(name, collective(CollectiveKind::kAllGather, all), {{own}}, {{all}},
                             Cause::kContextParallel);
  list.at(index).group = builder_.ring_group();
  return index;
}

void GatheredAttention::scatter(OperationList& list, const std::string& name, int all, int own) {
  list.add(name, collective(CollectiveKind::kReduceScatter, all), {{all}}, {{own}},
           Cause::kContextParallel);
  list.last().group = builder_.ring_group();
}

void GatheredAttention::forward(OperationList& list, const std::string& name, int context) {
  gather(list, name + "_gather_keys", operands_.keys, keys_);
  gather(list, name + "_gather_values", operands_.values, values_);
  std::vector<BufferRef> writes = {{context}};
  writes.insert(writes.end(), operands_.statistics.begin(), operands_.statistics.end());
  list.add(name, core(false), {{operands_.queries}, {keys_}, {values_}}, std::move(writes));
}

std::vector<int> GatheredAttention::begin_backward(OperationList& list) {
  const int keys = gather(list, "attention.gather_keys_again", operands_.keys, keys_);
  const int values = gather(list, "attention.gather_values_again", operands_.values, values_);
  for (const int index : {keys, values}) list.at(index).stream = builder_.stream("cp");
  list.at(keys).joins = {0};
  return {values};
}

void GatheredAttention::backward(OperationList& list, BufferRef context_gradient, int context,
                                 const std::vector<int>& begun) {
  std::vector<BufferRef> reads = {
      context_gradient, {operands_.queries}, {keys_}, {values_}, {context}};
  reads.insert(reads.end(), operands_.statistics.begin(), operands_.statistics.end());
  list.add("attention.core_backward", core(true), std::move(reads),
           {{operands_.query_gradient}, {key_gradient_}, {value_gradient_}});
  list.last().after = begun;
  scatter(list, "attention.scatter_key_gradient", key_gradient_, operands_.key_gradient);
  scatter(list, "attention.scatter_value_gradient", value_gradient_, operands_.value_gradient);
}

}  // namespace headway
