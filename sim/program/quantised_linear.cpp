#include "sim/program/quantised_linear.hpp"

#include <utility>

#include "sim/program/tensor/megatron_1d.hpp"

namespace headway {

QuantisedLinear::QuantisedLinear(ProgramBuilder& builder, std::string name, ParameterId weight,
                                 Shared shared)
    : builder_(&builder),
      scales_(*builder.shape().quantisation),
      name_(std::move(name)),
      weight_id_(weight),
      shared_(shared),
      for_each_use_(builder.shape().sharded_parameters),
      weight_is_parameter_(builder.shape().weight != builder.shape().storage) {
  make_input({.rows = tokens(Shared::kInput)});
  make_gradient({.rows = tokens(Shared::kGradient)});
  make_weight();
}

QuantisedLinear::QuantisedLinear(ProgramBuilder& builder, std::string name, ParameterId weight,
                                 const Operands& operands)
    : builder_(&builder),
      scales_(*builder.shape().quantisation),
      name_(std::move(name)),
      weight_id_(weight),
      shared_(Shared::kNeither),
      most_rows_(operands.most_rows),
      for_each_use_(builder.shape().sharded_parameters),
      weight_is_parameter_(builder.shape().weight != builder.shape().storage) {
  make_input(operands);
  make_gradient(operands);
  make_weight();
}

std::int64_t QuantisedLinear::tokens(Shared side) const {
  return shares(side) ? builder_->shape().local_tokens : builder_->shape().tokens;
}

bool QuantisedLinear::shares(Shared side) const {
  return builder_->shape().sequence_parallel && shared_ == side;
}

QuantisedLinear::Tensor QuantisedLinear::tensor(const char* what, DataType type, std::int64_t rows,
                                                std::int64_t columns, std::int64_t block_rows) {
  Tensor result;
  result.name = name_ + "." + what;
  result.type = type;
  result.rows = rows;
  result.columns = columns;
  result.block_rows = one_scale() ? 0 : block_rows;
  result.block_columns = scales_.block;
  if (scales_.scaling == Scaling::kDelayed) {
    result.history = layer_buffer(result.name + "_amax_history", DataType::kFp32, 2, 1);
    builder_->program().buffers[static_cast<std::size_t>(result.history)].initial =
        InitialValue::kZero;
  } else if (scales_.scaling == Scaling::kCurrent) {
    result.amax = copy(result.name + "_amax", DataType::kFp32, 1, 1, Copies::kScratch,
                       BufferCategory::kCommunication);
  }
  return result;
}

int QuantisedLinear::copy(const std::string& name, DataType type, std::int64_t rows,
                          std::int64_t columns, Copies copies, BufferCategory category) const {
  return builder_->activation(name, type, rows, columns, copies, ProgramBuilder::Split::kNone,
                              category);
}

// Of an input or a gradient.
int QuantisedLinear::copy(const Tensor& tensor, const char* how, Copies copies) const {
  const int family = copy(tensor.name + how, tensor.type, tensor.rows, tensor.columns, copies);
  builder_->program().buffers[static_cast<std::size_t>(family)].most_rows = most_rows_;
  return family;
}

int QuantisedLinear::layer_buffer(const std::string& name, DataType type, std::int64_t rows,
                                  std::int64_t columns) const {
  BufferFamily family;
  family.name = name;
  family.category = BufferCategory::kParameter;
  family.type = type;
  family.rows = rows;
  family.columns = columns;
  family.per_layer = true;
  return builder_->buffer(std::move(family));
}

// Kept for the backward pass: the copy by columns, or, where it is gathered again and transposed
// then, this rank's tokens by rows.
void QuantisedLinear::make_input(const Operands& operands) {
  if (operands.same_input != nullptr) {
    input_ = operands.same_input->input_;
    input_.made = false;
    return;
  }
  const StepShape& shape = builder_->shape();
  const bool shared = shares(Shared::kInput);
  const std::int64_t depth = builder_->parameter(weight_id_).columns;
  input_ = tensor("input", scales_.forward, operands.rows, depth, 1);
  input_.reduced = shared;
  input_.by_load = operands.by_load;
  input_.has_rows = operands.input_rows >= 0;
  const Copies saved = Copies::kPerLayerAndMicroBatch;
  const bool transposed_later = shared && one_scale();
  input_.by_rows = input_.has_rows
                       ? operands.input_rows
                       : copy(input_, "_by_rows", transposed_later ? saved : Copies::kScratch);
  if (!transposed_later) input_.by_columns = copy(input_, "_by_columns", saved);
  if (!shared) return;
  whole_rows_ = copy(input_.name + "_whole_by_rows", input_.type, shape.tokens, depth,
                     Copies::kScratch, BufferCategory::kCommunication);
  whole_columns_ = copy(input_.name + "_whole_by_columns", input_.type, shape.tokens, depth,
                        Copies::kScratch, BufferCategory::kCommunication);
}

void QuantisedLinear::make_gradient(const Operands& operands) {
  const StepShape& shape = builder_->shape();
  const bool shared = shares(Shared::kGradient);
  const std::int64_t depth = builder_->parameter(weight_id_).rows / operands.groups;
  gradient_ = tensor("gradient", scales_.gradient, operands.rows, depth, 1);
  gradient_.reduced = shared;
  gradient_.by_load = operands.by_load;
  gradient_.has_rows = operands.gradient_rows >= 0;
  // What a weight gradient that comes later is made from.
  const Copies kept = shape.splits_backward ? Copies::kPerLayerAndMicroBatch : Copies::kScratch;
  gradient_.by_rows =
      gradient_.has_rows ? operands.gradient_rows : copy(gradient_, "_by_rows", Copies::kScratch);
  if (!shared || !one_scale()) {
    gradient_.by_columns = copy(gradient_, "_by_columns", shared ? Copies::kScratch : kept);
  }
  if (!shared) return;
  whole_rows_ = copy(gradient_.name + "_whole_by_rows", gradient_.type, shape.tokens, depth,
                     Copies::kScratch, BufferCategory::kCommunication);
  whole_columns_ = copy(gradient_.name + "_whole_by_columns", gradient_.type, shape.tokens, depth,
                        kept, BufferCategory::kCommunication);
}

void QuantisedLinear::make_weight() {
  const Parameter& weight = builder_->parameter(weight_id_);
  weight_ = tensor("weight", scales_.forward, weight.rows, weight.columns, scales_.weight_block);
  const auto make = [&](const char* how) {
    const std::string name = weight_.name + how;
    return for_each_use_ ? copy(name, weight_.type, weight_.rows, weight_.columns, Copies::kScratch)
                         : layer_buffer(name, weight_.type, weight_.rows, weight_.columns);
  };
  weight_.by_rows = weight_is_parameter_ ? weight.family : make("_by_rows");
  if (weight_is_parameter_) weight_.history = weight_.amax = -1;  // the optimizer's business
  weight_.by_columns = make("_by_columns");
}

void QuantisedLinear::quantise(OperationList& list, const Tensor& tensor, BufferRef source,
                               Which which) const {
  Kernel kernel;
  kernel.rows = tensor.rows;
  kernel.columns = tensor.columns;
  kernel.type = tensor.has_rows ? tensor.type : builder_->shape().storage;
  std::vector<BufferRef> reads = {source};
  if (tensor.amax >= 0) {
    kernel.kind = KernelKind::kAmax;
    kernel.output = DataType::kFp32;
    list.add(tensor.name + "_amax", kernel, {source}, {{tensor.amax}});
    list.last().by_load = tensor.by_load;
    if (tensor.reduced) {
      megatron_1d::all_reduce(*builder_, list, tensor.name + "_amax_all_reduce", {{tensor.amax}}, 1,
                              DataType::kFp32, ReduceOperator::kMaximum);
    }
    reads.push_back({tensor.amax});
  }
  kernel.kind = KernelKind::kQuantise;
  kernel.output = tensor.type;
  kernel.scaling = scales_.scaling;
  kernel.block_rows = tensor.block_rows;
  kernel.block_columns = tensor.block_columns;
  std::vector<BufferRef> writes;
  if (which != Which::kColumns) writes.push_back({tensor.by_rows});
  if (which != Which::kRows) writes.push_back({tensor.by_columns});
  kernel.transposed = writes.size() == 2;
  if (which == Which::kColumns) std::swap(kernel.block_rows, kernel.block_columns);
  if (tensor.history >= 0) {
    reads.push_back({tensor.history});
    writes.push_back({tensor.history});
  }
  list.add(tensor.name + (which == Which::kColumns ? "_quantise_by_columns" : "_quantise"), kernel,
           std::move(reads), std::move(writes));
  list.last().by_load = tensor.by_load;
}

BufferRef QuantisedLinear::quantise_input(OperationList& list, BufferRef input) const {
  return quantise(list, input_, input);
}

BufferRef QuantisedLinear::quantise_gradient(OperationList& list, BufferRef output_gradient) const {
  return quantise(list, gradient_, output_gradient);
}

// Makes what is not there yet; returns the copy by rows.
BufferRef QuantisedLinear::quantise(OperationList& list, const Tensor& tensor,
                                    BufferRef source) const {
  if (!tensor.made) return {tensor.by_rows};
  if (tensor.has_rows) {
    quantise(list, tensor, {tensor.by_rows}, Which::kColumns);
  } else {
    quantise(list, tensor, source, tensor.by_columns >= 0 ? Which::kBoth : Which::kRows);
  }
  return {tensor.by_rows};
}

QuantisedLinear::Gather QuantisedLinear::gather_rows() const {
  const Tensor& tensor = shared_ == Shared::kInput ? input_ : gradient_;
  return {{tensor.by_rows}, {whole_rows_}, tensor.type};
}

QuantisedLinear::Gather QuantisedLinear::gather_columns() const {
  const Tensor& tensor = shared_ == Shared::kInput ? input_ : gradient_;
  return {{tensor.by_columns}, {whole_columns_}, tensor.type};
}

void QuantisedLinear::transpose_whole(OperationList& list, int after) const {
  transpose(list, "", builder_->shape().tokens, {whole_rows_}, {whole_columns_});
  if (after >= 0) list.last().after = {after};
}

void QuantisedLinear::transpose(OperationList& list, const std::string& run, std::int64_t rows,
                                BufferRef by_rows, BufferRef by_columns) const {
  const Tensor& tensor = shared_ == Shared::kInput ? input_ : gradient_;
  Kernel kernel;
  kernel.kind = KernelKind::kTranspose;
  kernel.rows = rows;
  kernel.columns = tensor.columns;
  kernel.type = kernel.output = tensor.type;
  list.add(tensor.name + "_transpose" + run, kernel, {by_rows}, {by_columns});
}

BufferRef QuantisedLinear::input_by_columns() const {
  return {shares(Shared::kInput) ? whole_columns_ : input_.by_columns};
}

BufferRef QuantisedLinear::gradient_by_columns() const {
  return {shares(Shared::kGradient) ? whole_columns_ : gradient_.by_columns};
}

BufferRef QuantisedLinear::forward_weight(OperationList& list) const {
  if (for_each_use_ && !weight_is_parameter_) {
    quantise(list, weight_, {builder_->parameter(weight_id_).family}, Which::kRows);
  }
  return {weight_.by_rows};
}

BufferRef QuantisedLinear::backward_weight(OperationList& list) const {
  if (for_each_use_ && weight_is_parameter_) {
    transpose_parameter(list);
  } else if (for_each_use_) {
    quantise(list, weight_, {builder_->parameter(weight_id_).family}, Which::kColumns);
  }
  return {weight_.by_columns};
}

void QuantisedLinear::quantise_weight(OperationList& list) const {
  if (for_each_use_) return;
  if (weight_is_parameter_) {
    transpose_parameter(list);
  } else {
    quantise(list, weight_, {builder_->parameter(weight_id_).family}, Which::kBoth);
  }
}

void QuantisedLinear::transpose_parameter(OperationList& list) const {
  Kernel kernel;
  kernel.kind = KernelKind::kTranspose;
  kernel.rows = weight_.rows;
  kernel.columns = weight_.columns;
  kernel.type = kernel.output = weight_.type;
  list.add(weight_.name + "_transpose", kernel, {{weight_.by_rows}}, {{weight_.by_columns}});
}

std::vector<int> QuantisedLinear::kept() const {
  std::vector<int> families = histories();
  if (for_each_use_) return families;
  if (!weight_is_parameter_) families.push_back(weight_.by_rows);
  families.push_back(weight_.by_columns);
  return families;
}

std::vector<int> QuantisedLinear::histories() const {
  std::vector<int> families;
  for (const Tensor* tensor : {&input_, &weight_, &gradient_}) {
    if (tensor->made && tensor->history >= 0) families.push_back(tensor->history);
  }
  return families;
}

}  // namespace headway
