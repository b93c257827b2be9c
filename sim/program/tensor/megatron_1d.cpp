#include "sim/program/tensor/megatron_1d.hpp"

#include "sim/program/sequence/megatron_sequence.hpp"

namespace headway::megatron_1d {

namespace {

Gemm gemm(const ProgramBuilder& builder, GemmRole role, const Parameter& weight, DataType compute) {
  Gemm result;
  result.role = role;
  result.m = builder.shape().tokens;
  result.n = weight.rows;
  result.k = weight.columns;
  result.type = compute;
  result.output = builder.shape().storage;
  return result;
}

// Columns of the residual stream, which is what both kinds exchange.
std::int64_t width(const ProgramBuilder& builder) { return builder.shape().hidden; }

BufferRef whole_output_gradient(const ProgramBuilder& builder, const RowParallel& linear) {
  return builder.shape().sequence_parallel ? BufferRef{linear.output_gradient_whole}
                                           : linear.output_gradient;
}

}  // namespace

void all_reduce(ProgramBuilder& builder, OperationList& list, const std::string& name,
                std::vector<BufferRef> buffers, std::int64_t elements, DataType type,
                ReduceOperator reduce) {
  const int group = builder.tensor_group();
  if (group < 0) return;
  Collective collective;
  collective.kind = CollectiveKind::kAllReduce;
  collective.reduce = reduce;
  collective.elements = elements;
  collective.type = type;
  list.add(name, collective, buffers, buffers, Cause::kTensorParallel);
  list.last().group = group;
}

void accumulate(ProgramBuilder& builder, OperationList& list, const std::string& name,
                const Parameter& parameter, bool always_adds) {
  const bool adds = always_adds || !builder.shape().fresh_gradients;
  Kernel kernel;
  kernel.kind = adds ? KernelKind::kGradientAccumulate : KernelKind::kCast;
  kernel.rows = parameter.rows;
  kernel.columns = parameter.columns;
  kernel.type = builder.shape().storage;
  kernel.output = builder.shape().gradient;
  std::vector<BufferRef> reads = {{parameter.scratch}};
  if (adds) reads.insert(reads.begin(), {parameter.gradient});
  list.add(name, kernel, std::move(reads), {{parameter.gradient}});
}

int weight_gradient(ProgramBuilder& builder, OperationList& list, const std::string& name,
                    ParameterId weight, DataType compute, BufferRef output_gradient,
                    BufferRef input) {
  const Parameter& parameter = builder.parameter(weight);
  Gemm wgrad = gemm(builder, GemmRole::kWeightGradient, parameter, compute);
  if (builder.job().software.accumulation == GradientAccumulation::kFused) {
    wgrad.accumulate = !builder.shape().fresh_gradients;
    wgrad.output = builder.shape().gradient;
    std::vector<BufferRef> reads = {output_gradient, input};
    if (wgrad.accumulate) reads.push_back({parameter.gradient});
    return list.add(name + "_wgrad", wgrad, std::move(reads), {{parameter.gradient}});
  }
  const int index =
      list.add(name + "_wgrad", wgrad, {output_gradient, input}, {{parameter.scratch}});
  accumulate(builder, list, name + "_accumulate", parameter);
  return index;
}

void forward(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  int input = linear.input;
  if (builder.shape().sequence_parallel) {
    megatron_sequence::gather(builder, list, linear.name + "_gather", {linear.input},
                              {linear.input_whole}, width(builder));
    input = linear.input_whole;
  }
  const Parameter& weight = builder.parameter(linear.weight);
  list.add(linear.name, gemm(builder, GemmRole::kForward, weight, linear.compute),
           {{input}, {weight.family}}, {{linear.output}});
}

std::vector<int> backward(ProgramBuilder& builder, OperationList& list,
                          const ColumnParallel& linear) {
  const StepShape& shape = builder.shape();
  const Parameter& weight = builder.parameter(linear.weight);
  const Gemm dgrad = gemm(builder, GemmRole::kInputGradient, weight, linear.compute);
  if (!shape.sequence_parallel) {
    list.add(linear.name + "_dgrad", dgrad, {{linear.output_gradient}, {weight.family}},
             {{linear.input_gradient}});
    const int input_gradient = list.size() - 1;
    all_reduce(builder, list, linear.name + "_dgrad_all_reduce", {{linear.input_gradient}},
               shape.tokens * width(builder), shape.storage);
    const int reduced = list.size() - 1;
    const bool beside =
        reduced != input_gradient && builder.job().software.overlap_tp_input_gradient;
    if (beside) {
      list.at(reduced).stream = builder.stream("tp");
      list.at(reduced).after = {input_gradient};
    }
    weight_gradient(builder, list, linear.name, linear.weight, linear.compute,
                    {linear.output_gradient}, {linear.input});
    return beside ? std::vector<int>{reduced} : std::vector<int>{};
  }
  // The gather starts when the compute stream has come here, and runs beside the input gradient;
  // the reduce-scatter of that runs beside the weight gradient.
  const int gather = gather_again(builder, list, linear);
  const int input_gradient =
      list.add(linear.name + "_dgrad", dgrad, {{linear.output_gradient}, {weight.family}},
               {{linear.input_gradient_whole}});
  const int scatter = megatron_sequence::scatter(builder, list, linear.name + "_dgrad_scatter",
                                                 {linear.input_gradient_whole},
                                                 {linear.input_gradient}, width(builder));
  list.at(scatter).stream = builder.stream("tp");
  list.at(scatter).after = {input_gradient};
  backward_weight(builder, list, linear, gather);
  return {scatter};
}

void backward_input(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  const StepShape& shape = builder.shape();
  const Parameter& weight = builder.parameter(linear.weight);
  const bool whole = shape.sequence_parallel;
  const int computed = whole ? linear.input_gradient_whole : linear.input_gradient;
  list.add(linear.name + "_dgrad", gemm(builder, GemmRole::kInputGradient, weight, linear.compute),
           {{linear.output_gradient}, {weight.family}}, {{computed}});
  if (whole) {
    megatron_sequence::scatter(builder, list, linear.name + "_dgrad_scatter", {computed},
                               {linear.input_gradient}, width(builder));
  } else {
    all_reduce(builder, list, linear.name + "_dgrad_all_reduce", {{computed}},
               shape.tokens * width(builder), shape.storage);
  }
}

// On a stream of its own, from where the compute stream has come to.
int gather_again(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  if (!builder.shape().sequence_parallel) return -1;
  const int gather =
      megatron_sequence::gather(builder, list, linear.name + "_gather_again", {linear.input},
                                {linear.input_whole}, width(builder));
  list.at(gather).stream = builder.stream("tp");
  list.at(gather).joins = {0};
  return gather;
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear,
                     int gathered) {
  const int wgrad = weight_gradient(builder, list, linear.name, linear.weight, linear.compute,
                                    {linear.output_gradient},
                                    {gathered >= 0 ? linear.input_whole : linear.input});
  if (gathered >= 0) list.at(wgrad).after = {gathered};
}

void forward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  const StepShape& shape = builder.shape();
  const Parameter& weight = builder.parameter(linear.weight);
  const Gemm product = gemm(builder, GemmRole::kForward, weight, linear.compute);
  if (!shape.sequence_parallel) {
    list.add(linear.name, product, {{linear.input}, {weight.family}}, {{linear.output}});
    all_reduce(builder, list, linear.name + "_all_reduce", {{linear.output}},
               shape.tokens * width(builder), shape.storage);
    return;
  }
  list.add(linear.name, product, {{linear.input}, {weight.family}}, {{linear.output_whole}});
  megatron_sequence::scatter(builder, list, linear.name + "_scatter", {linear.output_whole},
                             {linear.output}, width(builder));
}

void backward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  backward_input(builder, list, linear);
  backward_weight(builder, list, linear);
}

void backward_input(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  const Parameter& weight = builder.parameter(linear.weight);
  if (builder.shape().sequence_parallel) {
    megatron_sequence::gather(builder, list, linear.name + "_gradient_gather",
                              linear.output_gradient, {linear.output_gradient_whole},
                              width(builder));
  }
  list.add(linear.name + "_dgrad", gemm(builder, GemmRole::kInputGradient, weight, linear.compute),
           {whole_output_gradient(builder, linear), {weight.family}}, {{linear.input_gradient}});
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  weight_gradient(builder, list, linear.name, linear.weight, linear.compute,
                  whole_output_gradient(builder, linear), {linear.input});
}

}  // namespace headway::megatron_1d
