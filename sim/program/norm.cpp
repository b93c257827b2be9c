#include "sim/program/norm.hpp"

namespace headway {

namespace {

bool is_rms(const ProgramBuilder& builder) { return builder.job().model.norm == Norm::kRmsNorm; }

Kernel norm_kernel(const ProgramBuilder& builder, const NormPart& norm, KernelKind kind) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = builder.shape().local_tokens;
  kernel.columns = norm.width;
  kernel.type = kernel.output = builder.shape().storage;
  kernel.fused = builder.job().software.fused_norm;
  return kernel;
}

}  // namespace

NormPart make_norm(ProgramBuilder& builder, const std::string& name, bool per_layer, Copies copies,
                   std::int64_t width) {
  const StepShape& shape = builder.shape();
  const auto split =
      shape.sequence_parallel ? ProgramBuilder::Split::kRows : ProgramBuilder::Split::kNone;
  NormPart norm;
  norm.name = name;
  norm.width = width > 0 ? width : shape.hidden;
  norm.weight = builder.vector(name + "_weight", {{name + "_weight", norm.width, 1}}, false,
                               per_layer, true, InitialValue::kOne);
  if (!is_rms(builder)) {
    norm.bias = builder.vector(name + "_bias", {{name + "_bias", norm.width, 1}}, false, per_layer,
                               true, InitialValue::kZero);
  }
  norm.output = builder.activation(name + "_output", shape.storage, shape.local_tokens, norm.width,
                                   copies, split);
  norm.statistics = builder.activation(name + "_statistics", shape.statistics, shape.local_tokens,
                                       is_rms(builder) ? 1 : 2, copies, split);
  // x in fp32 for its square, and x over its root mean square for the weight's gradient.
  if (is_rms(builder) && !builder.job().software.fused_norm && shape.logits_are_narrow) {
    norm.wide = builder.activation(name + "_wide", DataType::kFp32, shape.local_tokens,
                                   2 * norm.width, copies, split);
  }
  norm.output_gradient =
      builder.activation(name + "_output_gradient", shape.storage, shape.local_tokens, norm.width,
                         Copies::kScratch, split);
  return norm;
}

void norm_forward(ProgramBuilder& builder, OperationList& list, const NormPart& norm,
                  BufferRef input) {
  std::vector<BufferRef> reads = {input, {builder.parameter(norm.weight).family}};
  if (norm.bias != kNoParameter) reads.push_back({builder.parameter(norm.bias).family});
  std::vector<BufferRef> writes = {{norm.output}, {norm.statistics}};
  if (norm.wide >= 0) writes.push_back({norm.wide});
  list.add(
      norm.name,
      norm_kernel(builder, norm,
                  is_rms(builder) ? KernelKind::kRmsNormForward : KernelKind::kLayerNormForward),
      std::move(reads), std::move(writes));
}

void norm_backward(ProgramBuilder& builder, OperationList& list, const NormPart& norm,
                   BufferRef input, BufferRef input_gradient, const std::vector<int>& after) {
  const Parameter& weight = builder.parameter(norm.weight);
  std::vector<BufferRef> reads = {
      {norm.output_gradient}, input, {weight.family}, {norm.statistics}, {weight.gradient}};
  std::vector<BufferRef> writes = {input_gradient, {weight.gradient}};
  if (norm.bias != kNoParameter) {
    const Parameter& bias = builder.parameter(norm.bias);
    reads.push_back({bias.gradient});
    writes.push_back({bias.gradient});
  }
  if (norm.wide >= 0) reads.push_back({norm.wide});
  list.add(
      norm.name + "_backward",
      norm_kernel(builder, norm,
                  is_rms(builder) ? KernelKind::kRmsNormBackward : KernelKind::kLayerNormBackward),
      std::move(reads), std::move(writes));
  list.last().after = after;
}

}  // namespace headway
