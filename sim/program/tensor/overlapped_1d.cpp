#include "sim/program/tensor/overlapped_1d.hpp"

#include "sim/program/sequence/megatron_sequence.hpp"

namespace headway::overlapped_1d {

namespace {

// A run of tokens, as large as one rank's.
int run_buffer(ProgramBuilder& builder, const std::string& name, DataType type, Copies copies) {
  return builder.activation(name, type, builder.shape().local_tokens, builder.shape().hidden,
                            copies, ProgramBuilder::Split::kNone, BufferCategory::kCommunication);
}

bool one_scale(const ProgramBuilder& builder) {
  return builder.shape().quantisation != nullptr && builder.shape().quantisation->block == 0;
}

// The GEMM of the tokens that the rank `distance` places before holds.
Gemm gemm(const ProgramBuilder& builder, GemmRole role, const Parameter& weight, DataType compute,
          int distance) {
  Gemm result;
  result.role = role;
  result.m = builder.shape().local_tokens;
  result.n = weight.rows;
  result.k = weight.columns;
  result.type = compute;
  result.output = builder.shape().storage;
  result.runs = builder.shape().tp;
  result.distance = distance;
  return result;
}

int multiply(ProgramBuilder& builder, OperationList& list, const std::string& name,
             const Gemm& product, std::vector<BufferRef> reads, BufferRef output) {
  const int index = list.add(name, product, std::move(reads), {output});
  list.at(index).group = builder.tensor_group();
  return index;
}

// Everything that the compute stream has issued before is done with what the hop overwrites.
int shift(ProgramBuilder& builder, OperationList& list, const std::string& name, DataType type,
          BufferRef from, BufferRef to) {
  Collective collective;
  collective.kind = CollectiveKind::kShift;
  collective.elements = builder.shape().local_tokens * builder.shape().hidden;
  collective.type = type;
  const int index = list.add(name, collective, {from}, {to}, Cause::kTensorParallel);
  list.at(index).group = builder.tensor_group();
  list.at(index).stream = builder.stream("tp");
  list.at(index).joins = {0};
  return index;
}

// Runs of tokens come round the ring, and each is multiplied into its rows of `output`.
void gather_and_multiply(ProgramBuilder& builder, OperationList& list, const std::string& name,
                         DataType type, const std::vector<BufferRef>& runs, Gemm product,
                         const std::vector<BufferRef>& weight, BufferRef output) {
  // What a template waits for, its first operation waits for: of the stream that all others follow.
  if (list.empty()) {
    list.add(name + "_await", HostWork{HostKind::kAwait}, {}, {}, Cause::kTensorParallel);
  }
  int arrived = -1;
  for (int distance = 0; distance < builder.shape().tp; ++distance) {
    const auto at = static_cast<std::size_t>(distance);
    int next = -1;
    if (at + 1 < runs.size()) {
      next = shift(builder, list, name + "_shift" + std::to_string(distance + 1), type, runs[at],
                   runs[at + 1]);
    }
    product.distance = distance;
    std::vector<BufferRef> reads = {runs[at]};
    reads.insert(reads.end(), weight.begin(), weight.end());
    if (distance > 0) reads.push_back(output);
    multiply(builder, list, name + std::to_string(distance), product, std::move(reads), output);
    if (arrived >= 0) list.last().after = {arrived};
    arrived = next;
  }
}

}  // namespace

void make_buffers(ProgramBuilder& builder, megatron_1d::ColumnParallel& linear) {
  const StepShape& shape = builder.shape();
  const DataType type = shape.quantisation != nullptr ? shape.quantisation->forward : shape.storage;
  for (const char* turn : {"0", "1"}) {
    linear.ring.push_back(
        run_buffer(builder, linear.name + "_ring" + turn, type, Copies::kScratch));
  }
}

void make_buffers(ProgramBuilder& builder, megatron_1d::RowParallel& linear, Copies gradients) {
  const StepShape& shape = builder.shape();
  for (const char* turn : {"0", "1"}) {
    linear.ring.push_back(
        run_buffer(builder, linear.name + "_ring" + turn, shape.storage, Copies::kScratch));
  }
  linear.product = run_buffer(builder, linear.name + "_product", shape.storage, Copies::kScratch);
  const bool converted = shape.quantisation != nullptr;
  const DataType type = converted ? shape.quantisation->gradient : shape.storage;
  const auto name = [&](const char* what, int distance) {
    return linear.name + what + std::to_string(distance);
  };
  for (int distance = 1; distance < shape.tp; ++distance) {
    linear.gradient_ring.push_back(run_buffer(builder, name("_gradient_ring", distance), type,
                                              converted ? Copies::kScratch : gradients));
  }
  for (int distance = 0; one_scale(builder) && distance < shape.tp; ++distance) {
    linear.gradient_columns.push_back(
        run_buffer(builder, name("_gradient_columns", distance), type, gradients));
  }
}

void forward(ProgramBuilder& builder, OperationList& list,
             const megatron_1d::ColumnParallel& linear, BufferRef input,
             const std::vector<BufferRef>& weight) {
  std::vector<BufferRef> runs = {input};
  for (int distance = 1; distance < builder.shape().tp; ++distance) {
    runs.push_back({linear.ring[static_cast<std::size_t>(distance % 2)]});
  }
  const DataType type =
      linear.quantised ? linear.quantised->gather_rows().type : builder.shape().storage;
  Gemm product =
      gemm(builder, GemmRole::kForward, builder.parameter(linear.weight), linear.compute, 0);
  if (linear.more_rows != kNoParameter) {
    product.n += builder.parameter(linear.more_rows).rows;
    product.weights = 2;
  }
  gather_and_multiply(builder, list, linear.name, type, runs, product, weight, {linear.output});
}

// Partial sums for a rank start one place behind it and grow at each hop; its own come last.
void forward(ProgramBuilder& builder, OperationList& list, const megatron_1d::RowParallel& linear,
             BufferRef input, const std::vector<BufferRef>& weight) {
  const StepShape& shape = builder.shape();
  const Parameter& parameter = builder.parameter(linear.weight);
  Kernel sum;
  sum.kind = KernelKind::kGradientAdd;
  sum.rows = shape.local_tokens;
  sum.columns = shape.hidden;
  sum.type = sum.output = shape.storage;
  int arrived = -1;
  for (int step = 1; step <= shape.tp; ++step) {
    const int distance = step % shape.tp;
    const BufferRef sums{linear.ring[static_cast<std::size_t>(step % 2)]};
    const BufferRef target = distance == 0 ? BufferRef{linear.output}
                             : step == 1   ? sums
                                           : BufferRef{linear.product};
    const std::string name = linear.name + std::to_string(distance);
    multiply(builder, list, name,
             gemm(builder, GemmRole::kForward, parameter, linear.compute, distance),
             {input, weight.front()}, target);
    if (step > 1) {
      const BufferRef into = distance == 0 ? target : sums;
      const BufferRef other = distance == 0 ? sums : target;
      list.add(name + "_sum", sum, {into, other}, {into}, Cause::kTensorParallel);
      list.last().after = {arrived};
    }
    if (distance == 0) break;
    arrived = shift(builder, list, linear.name + "_shift" + std::to_string(step), shape.storage,
                    sums, {linear.ring[static_cast<std::size_t>((step + 1) % 2)]});
  }
}

void backward_input(ProgramBuilder& builder, OperationList& list,
                    const megatron_1d::RowParallel& linear, BufferRef output_gradient,
                    const std::vector<BufferRef>& weight) {
  std::vector<BufferRef> runs = {output_gradient};
  for (const int run : linear.gradient_ring) runs.push_back({run});
  const bool quantised = linear.quantised.has_value();
  const DataType type = quantised ? linear.quantised->gather_rows().type : builder.shape().storage;
  gather_and_multiply(
      builder, list, linear.name + "_dgrad", type, runs,
      gemm(builder, GemmRole::kInputGradient, builder.parameter(linear.weight), linear.compute, 0),
      weight, {linear.input_gradient});
  if (!quantised) return;
  if (linear.quantised->one_scale()) {
    Kernel transpose;
    transpose.kind = KernelKind::kTranspose;
    transpose.rows = builder.shape().tokens;
    transpose.columns = builder.shape().hidden;
    transpose.type = transpose.output = type;
    std::vector<BufferRef> columns;
    for (const int run : linear.gradient_columns) columns.push_back({run});
    list.add(linear.name + ".gradient_transpose", transpose, runs, std::move(columns));
    return;
  }
  // The copy by columns cannot be made from that by rows: it is gathered beside the GEMMs.
  const QuantisedLinear::Gather columns = linear.quantised->gather_columns();
  const int gathered =
      megatron_sequence::gather(builder, list, linear.name + "_gradient_gather_columns",
                                columns.part, columns.whole, builder.shape().hidden, columns.type);
  list.at(gathered).stream = builder.stream("tp");
}

std::vector<BufferRef> gathered_gradient(const megatron_1d::RowParallel& linear) {
  std::vector<BufferRef> runs;
  if (linear.quantised && !linear.quantised->one_scale()) {
    return {linear.quantised->gradient_by_columns()};
  }
  if (linear.quantised) {
    for (const int run : linear.gradient_columns) runs.push_back({run});
    return runs;
  }
  runs.push_back(linear.output_gradient);
  for (const int run : linear.gradient_ring) runs.push_back({run});
  return runs;
}

}  // namespace headway::overlapped_1d
