#include "sim/program/own_tokens.hpp"

#include <utility>

#include "sim/program/tensor/megatron_1d.hpp"

namespace headway::own_tokens {

namespace {

Gemm gemm(const ProgramBuilder& builder, GemmRole role, const Linear& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  Gemm result;
  result.role = role;
  result.m = builder.shape().local_tokens;
  result.n = weight.rows;
  result.k = weight.columns;
  result.type = linear.quantised ? builder.shape().compute : builder.shape().storage;
  result.output = builder.shape().storage;
  return result;
}

}  // namespace

void forward(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  Gemm product = gemm(builder, GemmRole::kForward, linear);
  product.output = linear.result;
  BufferRef input{linear.input}, weight{builder.parameter(linear.weight).family};
  if (linear.quantised) {
    input = linear.quantised->quantise_input(list, input);
    weight = linear.quantised->forward_weight(list);
  }
  list.add(linear.name, product, {input, weight}, {{linear.output}});
}

void backward_input(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  BufferRef gradient{linear.output_gradient}, weight{builder.parameter(linear.weight).family};
  if (linear.quantised) {
    gradient = linear.quantised->quantise_gradient(list, gradient);
    weight = linear.quantised->backward_weight(list);
  }
  list.add(linear.name + "_dgrad", gemm(builder, GemmRole::kInputGradient, linear),
           {gradient, weight}, {{linear.input_gradient}});
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const Linear& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  Gemm product = gemm(builder, GemmRole::kWeightGradient, linear);
  std::vector<BufferRef> reads = {{linear.output_gradient}, {linear.input}};
  if (linear.quantised) {
    reads = {linear.quantised->gradient_by_columns(), linear.quantised->input_by_columns()};
  }
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
