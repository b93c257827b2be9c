#include "sim/program/program_builder.hpp"

#include <algorithm>
#include <utility>

#include "sim/plan/tensor_grid.hpp"
#include "sim/program/weight_versions.hpp"

namespace headway {

namespace {

// GPT-2's and Megatron-LM's standard deviation of initial weights (--init-method-std).
constexpr double kInitialDeviation = 0.02;

// Position of the named item, which is added where it is missing.
template <typename Item, typename NameOf>
int find_or_add(std::vector<Item>& items, const Item& item, NameOf name_of) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const Item& other) {
    return name_of(other) == name_of(item);
  });
  if (found != items.end()) return static_cast<int>(found - items.begin());
  items.push_back(item);
  return static_cast<int>(items.size()) - 1;
}

}  // namespace

int OperationList::add(std::string name, Operation operation, std::vector<BufferRef> reads,
                       std::vector<BufferRef> writes, Cause cause) {
  TemplateOperation added;
  added.name = std::move(name);
  added.operation = std::move(operation);
  added.reads = std::move(reads);
  added.writes = std::move(writes);
  added.cause = cause;
  template_.operations.push_back(std::move(added));
  return static_cast<int>(template_.operations.size()) - 1;
}

ProgramBuilder::ProgramBuilder(const Job& job) : job_(job), shape_(job) {
  program_.grid = job.grid();
  program_.streams = {"compute"};
  program_.layout = {shape_.order, ring_axis(), heads_axis()};
}

int ProgramBuilder::stream(const std::string& name) {
  return find_or_add(program_.streams, name, [](const std::string& text) { return text; });
}

int ProgramBuilder::add_group(const GroupFamily& family) {
  return find_or_add(program_.groups, family, [](const GroupFamily& item) { return item.name; });
}

int ProgramBuilder::group(const std::vector<std::string>& axes) {
  GroupFamily family;
  for (const std::string& axis : axes) {
    if (program_.grid.axis_size(axis) == 1) continue;
    family.axes.push_back(axis);
    family.name += (family.name.empty() ? "" : "-") + axis;
  }
  return family.axes.empty() ? -1 : add_group(family);
}

std::string ProgramBuilder::ring_axis() const {
  if (shape_.ring == 1) return "";
  return shape_.ulysses == 1 ? "cp" : kRingAxis;
}

std::string ProgramBuilder::heads_axis() const {
  if (shape_.ulysses == 1) return "";
  return shape_.ring == 1 ? "cp" : kUlyssesAxis;
}

int ProgramBuilder::port(const PortFamily& family) {
  return find_or_add(program_.ports, family, [](const PortFamily& item) { return item.name; });
}

int ProgramBuilder::buffer(BufferFamily family) {
  program_.buffers.push_back(std::move(family));
  return static_cast<int>(program_.buffers.size()) - 1;
}

int ProgramBuilder::named_buffer(const BufferFamily& family) {
  return find_or_add(program_.buffers, family,
                     [](const BufferFamily& item) -> const std::string& { return item.name; });
}

int ProgramBuilder::activation(const std::string& name, DataType type, std::int64_t rows,
                               std::int64_t columns, Copies copies, Split split,
                               BufferCategory category) {
  BufferFamily family;
  family.name = name;
  family.category = category;
  family.type = type;
  family.rows = rows;
  family.columns = columns;
  family.per_layer = copies == Copies::kPerLayerAndMicroBatch;
  family.per_micro_batch = copies != Copies::kScratch;
  if (split == Split::kRows) family.row_group = tensor_group();
  if (split == Split::kColumns) family.column_group = tensor_group();
  if (split == Split::kBlock) {
    const bool square = job_.plan.tp_kind != TensorKind::k1d;
    family.column_group = square ? group({kTensorColumnAxis}) : tensor_group();
    if (square) family.row_group = group({kTensorTokensAxis});
  }
  return buffer(std::move(family));
}

int ProgramBuilder::scalar(const std::string& name) {
  BufferFamily family;
  family.name = name;
  family.category = BufferCategory::kCommunication;
  family.type = DataType::kFp64;
  family.rows = 1;
  family.columns = 1;
  return named_buffer(family);
}

int ProgramBuilder::residual_stream(const std::string& name, DataType type, Copies copies) {
  return activation(name, type, shape_.local_tokens, shape_.hidden, copies,
                    shape_.sequence_parallel ? Split::kRows : Split::kNone);
}

ParameterId ProgramBuilder::parameter(BufferFamily family, const std::vector<PartShape>& parts,
                                      const Spread& spread) {
  const int dimension = spread.dimension;
  const std::vector<std::string> axes =
      spread.expert ? std::vector<std::string>{"etp"} : spread.axes;
  const int group_index = dimension >= 0 ? group(axes) : -1;
  const int cross_group = spread.cross_axes.empty() ? -1 : group(spread.cross_axes);
  const auto size_of_group = [&](int index) -> std::int64_t {
    if (index < 0) return 1;
    return program_.grid.group_size(program_.groups[static_cast<std::size_t>(index)]);
  };
  const std::int64_t ranks = size_of_group(group_index), crossing = size_of_group(cross_group);
  const std::int64_t holders = spread.expert ? shape_.ep : 1;
  if (spread.expert) {
    family.blocks = job_.model.num_experts;
    family.block_group = group({"ep"});
  }
  for (const PartShape& part : parts) {
    TensorPart tensor;
    tensor.name = part.name;
    tensor.rows = part.rows;
    tensor.columns = part.columns;
    tensor.sharded_dimension = group_index >= 0 ? dimension : -1;
    tensor.group = group_index;
    tensor.cross_group = cross_group;
    family.parts.push_back(std::move(tensor));
    family.rows += (dimension == 0 ? part.rows / ranks : part.rows) / holders;
    family.columns = (dimension == 1 ? part.columns / ranks : part.columns) / crossing;
  }
  family.category = BufferCategory::kParameter;

  BufferFamily gradient = family;
  family.per_micro_batch = keeps_weight_versions(job_.plan);
  gradient.name += "_gradient";
  gradient.category = BufferCategory::kGradient;
  gradient.type = shape_.gradient;
  gradient.initial = InitialValue::kUndefined;
  gradient.initial_scale = 0;

  Parameter added;
  added.rows = family.rows;
  added.columns = family.columns;
  added.copies = spread.expert ? 1 : std::max(shape_.tp / static_cast<int>(ranks * crossing), 1);
  added.partial_over = spread.partial_over;
  added.expert = spread.expert;
  added.family = buffer(std::move(family));
  added.gradient = buffer(std::move(gradient));
  parameters_.push_back(added);
  return static_cast<ParameterId>(parameters_.size()) - 1;
}

ParameterId ProgramBuilder::matrix(const std::string& name, const std::vector<PartShape>& parts,
                                   const Spread& spread, bool per_layer, bool accumulates,
                                   std::optional<DataType> type) {
  BufferFamily family;
  family.name = name;
  family.type = type.value_or(shape_.storage);
  family.per_layer = per_layer;
  family.initial = InitialValue::kNormal;
  family.initial_scale = kInitialDeviation;
  const ParameterId id = parameter(std::move(family), parts, spread);
  Parameter& added = parameters_[static_cast<std::size_t>(id)];
  if (!accumulates) {
    added.scratch =
        activation(name + "_micro_batch_gradient", shape_.storage, added.rows, added.columns,
                   Copies::kScratch, Split::kNone, BufferCategory::kGradient);
  }
  return id;
}

ParameterId ProgramBuilder::matrix(const std::string& name, const std::vector<PartShape>& parts,
                                   int dimension, bool per_layer, bool accumulates,
                                   std::optional<DataType> type,
                                   const std::vector<std::string>& axes) {
  return matrix(name, parts, Spread{dimension, {}, false, axes}, per_layer, accumulates, type);
}

ParameterId ProgramBuilder::own_tokens_matrix(const std::string& name,
                                              const std::vector<PartShape>& parts, bool per_layer,
                                              bool accumulates, std::optional<DataType> type) {
  return matrix(name, parts, Spread{-1, own_tokens_axis(), false, {}}, per_layer, accumulates,
                type);
}

ParameterId ProgramBuilder::expert_matrix(const std::string& name,
                                          const std::vector<PartShape>& parts, int dimension,
                                          bool accumulates, std::optional<DataType> type) {
  return matrix(name, parts, Spread{dimension, {}, true, {}}, true, accumulates, type);
}

ParameterId ProgramBuilder::vector(const std::string& name, const std::vector<PartShape>& parts,
                                   bool sharded, bool per_layer, bool partial,
                                   InitialValue initial) {
  Spread spread{sharded ? 0 : -1, partial ? own_tokens_axis() : "", false, {"tp"}};
  // Each row of a square has its own tokens.
  if (sharded && job_.plan.tp_kind != TensorKind::k1d) {
    spread.axes = {kTensorColumnAxis};
    spread.partial_over = kTensorTokensAxis;
  }
  return vector(name, parts, spread, per_layer, initial);
}

ParameterId ProgramBuilder::key_value_matrix(const std::string& name,
                                             const std::vector<PartShape>& parts,
                                             bool accumulates) {
  const Spread spread{0, kKeyValueCopyAxis, false, {kKeyValueAxis}};
  return matrix(name, parts, spread, true, accumulates, {});
}

ParameterId ProgramBuilder::square_matrix(const std::string& name,
                                          const std::vector<PartShape>& parts,
                                          const std::string& partial_over) {
  const Spread spread{0, partial_over, false, {kTensorColumnAxis}, {kTensorRowAxis}};
  return matrix(name, parts, spread, true, false, {});
}

ParameterId ProgramBuilder::key_value_vector(const std::string& name,
                                             const std::vector<PartShape>& parts,
                                             InitialValue initial) {
  const Spread spread{0, kKeyValueCopyAxis, false, {kKeyValueAxis}};
  return vector(name, parts, spread, true, initial);
}

ParameterId ProgramBuilder::vector(const std::string& name, const std::vector<PartShape>& parts,
                                   const Spread& spread, bool per_layer, InitialValue initial) {
  BufferFamily family;
  family.name = name;
  family.type = shape_.storage;
  family.per_layer = per_layer;
  family.initial = initial;
  return parameter(std::move(family), parts, spread);
}

int ProgramBuilder::add_template(Template list) {
  program_.templates.push_back(std::move(list));
  return static_cast<int>(program_.templates.size()) - 1;
}

std::vector<int> ProgramBuilder::add_parts(OperationList& list) {
  std::vector<int> begins = list.cuts();
  if (begins.empty()) return {add_template(list)};
  begins.insert(begins.begin(), 0);
  const Template whole = list.take();
  std::vector<Template> parts(begins.size());
  const auto part_of = [&](int operation) {
    const auto behind = std::upper_bound(begins.begin(), begins.end(), operation);
    return static_cast<std::size_t>(behind - begins.begin()) - 1;
  };
  const int count = static_cast<int>(whole.operations.size());
  for (int i = 0; i < count; ++i) {
    const std::size_t own = part_of(i);
    TemplateOperation operation = whole.operations[static_cast<std::size_t>(i)];
    const std::vector<int> after = std::exchange(operation.after, {});
    for (const int other : after) {
      if (part_of(other) == own) {
        operation.after.push_back(other - begins[own]);
        continue;
      }
      const std::string& name = whole.operations[static_cast<std::size_t>(other)].name;
      const PortRef done{port({whole.name + "." + name, true, true})};
      const std::size_t there = part_of(other);
      auto& releases =
          parts[there].operations[static_cast<std::size_t>(other - begins[there])].releases;
      if (std::find(releases.begin(), releases.end(), done) == releases.end()) {
        releases.push_back(done);
      }
      operation.awaits.push_back(done);
    }
    parts[own].operations.push_back(std::move(operation));
  }
  std::vector<int> indices;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    parts[p].name = whole.name + "." + std::to_string(p);
    indices.push_back(add_template(std::move(parts[p])));
  }
  return indices;
}

int ProgramBuilder::with_entry(int template_index, const std::vector<int>& joins,
                               const std::vector<PortRef>& awaits) {
  if (joins.empty() && awaits.empty()) return template_index;
  Entry entry{template_index, joins, {}};
  for (const PortRef& port : awaits) entry.awaits.emplace_back(port.family, port.layer);
  const auto [found, fresh] = entries_.try_emplace(std::move(entry), -1);
  if (fresh) {
    Template variant = list(template_index);
    TemplateOperation& first = variant.operations.front();
    first.joins.insert(first.joins.end(), joins.begin(), joins.end());
    first.awaits.insert(first.awaits.end(), awaits.begin(), awaits.end());
    variant.name += ".entry" + std::to_string(entries_.size());
    found->second = add_template(std::move(variant));
  }
  return found->second;
}

}  // namespace headway
