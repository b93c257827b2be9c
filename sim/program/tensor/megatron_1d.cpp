#include "sim/program/tensor/megatron_1d.hpp"

#include "sim/program/sequence/megatron_sequence.hpp"
#include "sim/program/tensor/grid_2d.hpp"
#include "sim/program/tensor/overlapped_1d.hpp"

namespace headway::megatron_1d {

namespace {

Gemm gemm(const ProgramBuilder& builder, GemmRole role, const std::vector<ParameterId>& weights,
          DataType compute) {
  Gemm result;
  result.role = role;
  result.m = builder.shape().tokens;
  for (const ParameterId weight : weights) result.n += builder.parameter(weight).rows;
  result.k = builder.parameter(weights.front()).columns;
  result.weights = static_cast<std::int64_t>(weights.size());
  result.type = compute;
  result.output = builder.shape().storage;
  return result;
}

std::vector<ParameterId> weights_of(const ColumnParallel& linear) {
  if (linear.more_rows == kNoParameter) return {linear.weight};
  return {linear.weight, linear.more_rows};
}
std::vector<ParameterId> weights_of(const RowParallel& linear) { return {linear.weight}; }

// The weight as it is stored: its rows in one buffer or in several.
template <typename Linear>
std::vector<BufferRef> stored_weight(const ProgramBuilder& builder, const Linear& linear) {
  std::vector<BufferRef> refs;
  for (const ParameterId weight : weights_of(linear)) {
    refs.push_back({builder.parameter(weight).family});
  }
  return refs;
}

std::vector<BufferRef> joined(BufferRef first, const std::vector<BufferRef>& others) {
  std::vector<BufferRef> refs = {first};
  refs.insert(refs.end(), others.begin(), others.end());
  return refs;
}

// Columns of what both kinds exchange: of the residual stream, or of a narrower input.
std::int64_t width(const ProgramBuilder& builder) { return builder.shape().hidden; }
std::int64_t width(const ProgramBuilder& builder, const ColumnParallel& linear) {
  return linear.width > 0 ? linear.width : width(builder);
}

// As the weight gradient reads it, in one buffer or in runs.
std::vector<BufferRef> whole_output_gradient(const ProgramBuilder& builder,
                                             const RowParallel& linear) {
  if (!linear.gradient_ring.empty()) return overlapped_1d::gathered_gradient(linear);
  if (linear.quantised) return {linear.quantised->gradient_by_columns()};
  if (builder.shape().sequence_parallel) return {{linear.output_gradient_whole}};
  return {linear.output_gradient};
}

// What is gathered of a linear layer's input or of its output's gradient.
using Gathered = QuantisedLinear::Gather;

Gathered gathered_input(const ProgramBuilder& builder, const ColumnParallel& linear) {
  if (linear.quantised) return linear.quantised->gather_rows();
  return {{linear.input}, {linear.input_whole}, builder.shape().storage};
}

// The weight as the forward product reads it, and as the input gradient's does.
template <typename Linear>
std::vector<BufferRef> forward_weight(const ProgramBuilder& builder, OperationList& list,
                                      const Linear& linear) {
  if (linear.quantised) return {linear.quantised->forward_weight(list)};
  return stored_weight(builder, linear);
}
template <typename Linear>
std::vector<BufferRef> transposed_weight(const ProgramBuilder& builder, OperationList& list,
                                         const Linear& linear) {
  if (linear.quantised) return {linear.quantised->backward_weight(list)};
  return stored_weight(builder, linear);
}

// Returns the product's index.
int input_gradient_product(ProgramBuilder& builder, OperationList& list,
                           const ColumnParallel& linear, int input_gradient) {
  BufferRef gradient{linear.output_gradient};
  if (linear.quantised) gradient = linear.quantised->quantise_gradient(list, gradient);
  const std::vector<BufferRef> weight = transposed_weight(builder, list, linear);
  return list.add(linear.name + "_dgrad",
                  gemm(builder, GemmRole::kInputGradient, weights_of(linear), linear.compute),
                  joined(gradient, weight), {{input_gradient}});
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
                    const std::vector<ParameterId>& weights, DataType compute,
                    std::vector<BufferRef> output_gradient, BufferRef input, bool always_adds) {
  const bool fused = builder.job().software.accumulation == GradientAccumulation::kFused;
  Gemm wgrad = gemm(builder, GemmRole::kWeightGradient, weights, compute);
  wgrad.runs = static_cast<std::int64_t>(output_gradient.size());
  wgrad.accumulate = fused && (always_adds || !builder.shape().fresh_gradients);
  if (fused) wgrad.output = builder.shape().gradient;
  std::vector<BufferRef> reads = std::move(output_gradient), writes;
  reads.push_back(input);
  for (const ParameterId weight : weights) {
    const Parameter& parameter = builder.parameter(weight);
    if (wgrad.accumulate) reads.push_back({parameter.gradient});
    writes.push_back({fused ? parameter.gradient : parameter.scratch});
  }
  const int index = list.add(name + "_wgrad", wgrad, std::move(reads), std::move(writes));
  if (wgrad.runs > 1) list.at(index).group = builder.tensor_group();
  for (std::size_t w = 0; !fused && w < weights.size(); ++w) {
    const std::string suffix = w == 0 ? "_accumulate" : "_accumulate" + std::to_string(w);
    accumulate(builder, list, name + suffix, builder.parameter(weights[w]), always_adds);
  }
  return index;
}

void forward(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  if (linear.square) return grid_2d::forward(builder, list, linear);
  BufferRef input{linear.input};
  if (linear.quantised) input = linear.quantised->quantise_input(list, input);
  if (!linear.ring.empty()) {
    return overlapped_1d::forward(builder, list, linear, input,
                                  forward_weight(builder, list, linear));
  }
  if (builder.shape().sequence_parallel) {
    const Gathered gathered = gathered_input(builder, linear);
    megatron_sequence::gather(builder, list, linear.name + "_gather", input, gathered.whole,
                              width(builder, linear), gathered.type);
    input = gathered.whole;
  }
  const std::vector<BufferRef> weight = forward_weight(builder, list, linear);
  list.add(linear.name, gemm(builder, GemmRole::kForward, weights_of(linear), linear.compute),
           joined(input, weight), {{linear.output}});
}

std::vector<int> backward(ProgramBuilder& builder, OperationList& list,
                          const ColumnParallel& linear) {
  if (linear.square) {
    grid_2d::backward(builder, list, linear);
    return {};
  }
  const StepShape& shape = builder.shape();
  if (!shape.sequence_parallel) {
    const int input_gradient = input_gradient_product(builder, list, linear, linear.input_gradient);
    all_reduce(builder, list, linear.name + "_dgrad_all_reduce", {{linear.input_gradient}},
               shape.tokens * width(builder, linear), shape.storage);
    const int reduced = list.size() - 1;
    const bool beside =
        reduced != input_gradient && builder.job().software.overlap_tp_input_gradient;
    if (beside) {
      list.at(reduced).stream = builder.stream("tp");
      list.at(reduced).after = {input_gradient};
    }
    backward_weight(builder, list, linear, -1);
    return beside ? std::vector<int>{reduced} : std::vector<int>{};
  }
  // The gather starts when the compute stream has come here, and runs beside the input gradient;
  // the reduce-scatter of that runs beside the weight gradient.
  const int gather = gather_again(builder, list, linear);
  const int input_gradient =
      input_gradient_product(builder, list, linear, linear.input_gradient_whole);
  const int scatter = megatron_sequence::scatter(builder, list, linear.name + "_dgrad_scatter",
                                                 {linear.input_gradient_whole},
                                                 {linear.input_gradient}, width(builder, linear));
  list.at(scatter).stream = builder.stream("tp");
  list.at(scatter).after = {input_gradient};
  backward_weight(builder, list, linear, gather);
  return {scatter};
}

void backward_input(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  const StepShape& shape = builder.shape();
  const bool whole = shape.sequence_parallel;
  const int computed = whole ? linear.input_gradient_whole : linear.input_gradient;
  input_gradient_product(builder, list, linear, computed);
  if (whole) {
    megatron_sequence::scatter(builder, list, linear.name + "_dgrad_scatter", {computed},
                               {linear.input_gradient}, width(builder, linear));
  } else {
    all_reduce(builder, list, linear.name + "_dgrad_all_reduce", {{computed}},
               shape.tokens * width(builder, linear), shape.storage);
  }
}

// On a stream of its own, from where the compute stream has come to.
int gather_again(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear) {
  if (!builder.shape().sequence_parallel) return -1;
  Gathered gathered = gathered_input(builder, linear);
  if (linear.quantised && !linear.quantised->one_scale()) {
    gathered = linear.quantised->gather_columns();
  }
  const int gather =
      megatron_sequence::gather(builder, list, linear.name + "_gather_again", gathered.part,
                                gathered.whole, width(builder, linear), gathered.type);
  list.at(gather).stream = builder.stream("tp");
  list.at(gather).joins = {0};
  return gather;
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear,
                     int gathered) {
  BufferRef input{gathered >= 0 ? linear.input_whole : linear.input};
  BufferRef output_gradient{linear.output_gradient};
  if (linear.quantised) {
    if (gathered >= 0 && linear.quantised->one_scale()) {
      linear.quantised->transpose_whole(list, gathered);
    }
    input = linear.quantised->input_by_columns();
    output_gradient = linear.quantised->gradient_by_columns();
  }
  const int wgrad = weight_gradient(builder, list, linear.name, weights_of(linear), linear.compute,
                                    {output_gradient}, input, linear.adds);
  if (gathered >= 0) list.at(wgrad).after = {gathered};
}

void forward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  if (linear.square) return grid_2d::forward(builder, list, linear);
  const StepShape& shape = builder.shape();
  BufferRef input{linear.input};
  if (linear.quantised) input = linear.quantised->quantise_input(list, input);
  const std::vector<BufferRef> weight = forward_weight(builder, list, linear);
  if (!linear.ring.empty()) {
    return overlapped_1d::forward(builder, list, linear, input, weight);
  }
  const Gemm product = gemm(builder, GemmRole::kForward, weights_of(linear), linear.compute);
  if (!shape.sequence_parallel) {
    list.add(linear.name, product, joined(input, weight), {{linear.output}});
    all_reduce(builder, list, linear.name + "_all_reduce", {{linear.output}},
               shape.tokens * width(builder), shape.storage);
    return;
  }
  list.add(linear.name, product, joined(input, weight), {{linear.output_whole}});
  megatron_sequence::scatter(builder, list, linear.name + "_scatter", {linear.output_whole},
                             {linear.output}, width(builder));
}

void backward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  if (linear.square) return grid_2d::backward(builder, list, linear);
  backward_input(builder, list, linear);
  backward_weight(builder, list, linear);
}

void backward_input(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  BufferRef gradient = linear.output_gradient;
  if (linear.quantised) gradient = linear.quantised->quantise_gradient(list, gradient);
  if (!linear.gradient_ring.empty()) {
    return overlapped_1d::backward_input(builder, list, linear, gradient,
                                         transposed_weight(builder, list, linear));
  }
  if (builder.shape().sequence_parallel) {
    Gathered gathered{gradient, {linear.output_gradient_whole}, builder.shape().storage};
    if (linear.quantised) gathered = linear.quantised->gather_rows();
    const auto gather = [&](const char* suffix) {
      megatron_sequence::gather(builder, list, linear.name + suffix, gathered.part, gathered.whole,
                                width(builder), gathered.type);
    };
    gather("_gradient_gather");
    gradient = gathered.whole;
    if (linear.quantised && linear.quantised->one_scale()) {
      linear.quantised->transpose_whole(list);
    } else if (linear.quantised) {
      gathered = linear.quantised->gather_columns();
      gather("_gradient_gather_columns");
    }
  }
  const std::vector<BufferRef> weight = transposed_weight(builder, list, linear);
  list.add(linear.name + "_dgrad",
           gemm(builder, GemmRole::kInputGradient, weights_of(linear), linear.compute),
           joined(gradient, weight), {{linear.input_gradient}});
}

void backward_weight(ProgramBuilder& builder, OperationList& list, const RowParallel& linear) {
  const bool quantised = linear.quantised.has_value();
  const int wgrad =
      weight_gradient(builder, list, linear.name, weights_of(linear), linear.compute,
                      whole_output_gradient(builder, linear),
                      quantised ? linear.quantised->input_by_columns() : BufferRef{linear.input});
  const bool gathered_beside = !linear.gradient_ring.empty() && quantised;
  if (gathered_beside && !linear.quantised->one_scale()) {
    list.at(wgrad).joins = {builder.stream("tp")};
  }
}

}  // namespace headway::megatron_1d
