#include "sim/program/own_tokens.hpp"

#include <utility>

#include "sim/program/tensor/megatron_1d.hpp"

namespace headway::own_tokens {

namespace {

Gemm gemm(const ProgramBuilder& builder, GemmRole role, const Parameter& weight) {
  Gemm result;
  result.role = role;
  result.m = builder.shape().local_tokens;
  result.n = weight.rows;
  result.k = weight.columns;
  result.type = result.output = builder.shape().storage;
  return result;
}

}  // namespace

void forward(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  Gemm product = gemm(builder, GemmRole::kForward, weight);
  product.output = linear.result;
  list.add(linear.name, product, {{linear.input}, {weight.family}}, {{linear.output}});
}

void backward_input(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  list.add(linear.name + "_dgrad", gemm(builder, GemmRole::kInputGradient, weight),
           {{linear.output_gradient}, {weight.family}}, {{linear.input_gradient}});
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  Gemm product = gemm(builder, GemmRole::kWeightGradient, weight);
  std::vector<BufferRef> reads = {{linear.output_gradient}, {linear.input}};
  if (builder.job().software.accumulation == GradientAccumulation::kFused) {
    product.accumulate = !builder.shape().fresh_gradients;
    product.output = builder.shape().gradient;
    if (product.accumulate) reads.push_back({weight.gradient});
    list.add(linear.name + "_wgrad", product, std::move(reads), {{weight.gradient}});
    return;
  }
  list.add(linear.name + "_wgrad", product, std::move(reads), {{weight.scratch}});
  megatron_1d::accumulate(builder, list, linear.name + "_accumulate", weight);
}

}  // namespace headway::own_tokens
