// A Program under construction: what every lowering rule adds to. Streams, groups, buffer families
// and ports get their index when first asked for; parameters come with their gradient and are
// remembered, so that the optimizer step finds them all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_shape.hpp"

namespace headway {

// A trained tensor (or several, concatenated) and how its gradient becomes the whole one.
struct Parameter {
  int family = -1;
  int gradient = -1;
  int scratch = -1;  // a micro-batch's gradient before it is accumulated; -1: added at once
  std::int64_t rows = 0, columns = 0;  // local
  int copies = 1;  // ranks of its tensor-parallel group that hold the same of it
  // The axis over which its gradient is summed once per step, where each rank's covers only its own
  // tokens, or its own queries; empty: none.
  std::string partial_over;
  bool expert = false;  // of the rank's own experts: its gradient is reduced over their copies
  std::int64_t elements() const { return rows * columns; }
};
using ParameterId = int;  // index of ProgramBuilder::parameters()
inline constexpr ParameterId kNoParameter = -1;

// How many instances of a buffer there are.
enum class Copies : std::uint8_t {
  kScratch,  // one of a rank, used again and again
  kPerMicroBatch,
  kPerLayerAndMicroBatch,
};

// The operations of a template under construction, in issue order.
class OperationList {
 public:
  explicit OperationList(std::string name) { template_.name = std::move(name); }

  // Adds an operation of the compute stream and returns its index, for `after`.
  int add(std::string name, Operation operation, std::vector<BufferRef> reads,
          std::vector<BufferRef> writes, Cause cause = Cause::kCompute);
  // The operation at `index`, to give it a stream, a group, dependencies. Valid until the next
  // add().
  TemplateOperation& at(int index) { return template_.operations[static_cast<std::size_t>(index)]; }
  TemplateOperation& last() { return template_.operations.back(); }
  int size() const { return static_cast<int>(template_.operations.size()); }
  bool empty() const { return template_.operations.empty(); }
  // What is added from here on may be issued apart from what stands there (add_parts).
  void cut() { cuts_.push_back(size()); }
  const std::vector<int>& cuts() const { return cuts_; }
  // What was added from the operation `first` on is part of the captured graph of that number.
  void capture(int first, int graph) {
    for (int i = first; i < size(); ++i) at(i).graph = graph;
  }
  Template take() { return std::move(template_); }

 private:
  Template template_;
  std::vector<int> cuts_;
};

class ProgramBuilder {
 public:
  explicit ProgramBuilder(const Job& job);

  const Job& job() const { return job_; }
  const StepShape& shape() const { return shape_; }
  Program& program() { return program_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& parameter(ParameterId id) const {
    return parameters_[static_cast<std::size_t>(id)];
  }
  const BufferFamily& family(int index) const {
    return program_.buffers[static_cast<std::size_t>(index)];
  }
  DataType parameter_type(ParameterId id) const {
    return program_.buffers[static_cast<std::size_t>(parameter(id).family)].type;
  }
  bool per_layer(int family) const {
    return program_.buffers[static_cast<std::size_t>(family)].per_layer;
  }
  const Template& list(int index) const {
    return program_.templates[static_cast<std::size_t>(index)];
  }

  int stream(const std::string& name);
  // A group along the axes, named after them: "tp", "tp-pp". -1 where it has a single member.
  int group(const std::vector<std::string>& axes);
  int add_group(const GroupFamily& family);
  int tensor_group() { return group({"tp"}); }
  // The ranks that hold the same parameters (StepShape::data_ranks).
  int data_group() { return group({"dp", "cp"}); }
  // Of them those that share out the state, and those that have the same share; all, and none,
  // where every rank has a share of its own.
  int shard_group() { return shape_.replicas > 1 ? group({kShardAxis}) : data_group(); }
  int replica_group() { return shape_.replicas > 1 ? group({kReplicaAxis}) : -1; }
  // Those that a sequence is spread over: the ring, and the ranks that exchange heads for tokens.
  int ring_group() { return group({ring_axis()}); }
  int heads_group() { return group({heads_axis()}); }
  // Both are "cp" where there is only one of them.
  std::string ring_axis() const;
  std::string heads_axis() const;
  // The ranks whose gradients are summed: of experts, or of all else.
  int reducing_group(bool expert) { return expert ? group({"edp"}) : data_group(); }
  // Ranks that share out a parameter's state: of experts, or of all else.
  int sharing_group(bool expert) { return expert ? reducing_group(true) : shard_group(); }
  int port(const PortFamily& family);

  int buffer(BufferFamily family);
  // `split`: whether its rows or columns are this rank's share over tp.
  // `kBlock`: its columns are a share over the ranks that share heads, its rows over the others.
  enum class Split : std::uint8_t { kNone, kRows, kColumns, kBlock };
  int activation(const std::string& name, DataType type, std::int64_t rows, std::int64_t columns,
                 Copies copies, Split split = Split::kNone,
                 BufferCategory category = BufferCategory::kActivation);
  // A number of a rank in fp64, used again and again; the same family for the same name.
  int scalar(const std::string& name);
  // The family of that name; added where there is none yet.
  int named_buffer(const BufferFamily& family);
  // The residual stream: `rows` are the whole micro-batch's or, with sequence parallelism, a share.
  int residual_stream(const std::string& name, DataType type, Copies copies);

  // A weight matrix of `parts`, which share their columns; sharded along `dimension` (0 rows, 1
  // columns, -1 replicated) over tp. With `accumulates` a micro-batch's gradient is added by what
  // computes it. Stored in `type`, as all parameters where that is not given.
  // `axes`: over which it is sharded instead.
  struct PartShape {
    std::string name;
    std::int64_t rows = 0, columns = 0;  // global
  };
  ParameterId matrix(const std::string& name, const std::vector<PartShape>& parts, int dimension,
                     bool per_layer, bool accumulates, std::optional<DataType> type = {},
                     const std::vector<std::string>& axes = {"tp"});
  // A matrix that every rank holds and applies to its own tokens: its gradient is partial.
  ParameterId own_tokens_matrix(const std::string& name, const std::vector<PartShape>& parts,
                                bool per_layer, bool accumulates,
                                std::optional<DataType> type = {});
  // A matrix for each expert, one behind the other: `parts` of all experts, spread over the expert
  // group, and of each sharded along `dimension` over etp.
  ParameterId expert_matrix(const std::string& name, const std::vector<PartShape>& parts,
                            int dimension, bool accumulates, std::optional<DataType> type = {});
  // A vector (bias, norm): one column. `partial`: with sequence parallelism its gradient covers
  // this rank's tokens alone.
  ParameterId vector(const std::string& name, const std::vector<PartShape>& parts, bool sharded,
                     bool per_layer, bool partial, InitialValue initial);
  // Rows that belong to key-value heads where there are fewer heads than tensor-parallel ranks:
  // each rank holds those of one head, with others, and a part of their gradient.
  ParameterId key_value_matrix(const std::string& name, const std::vector<PartShape>& parts,
                               bool accumulates);
  // A matrix that the ranks of a square hold a block each of: rows over one row of ranks, columns
  // over one column. `partial_over` as in Parameter.
  ParameterId square_matrix(const std::string& name, const std::vector<PartShape>& parts,
                            const std::string& partial_over);
  ParameterId key_value_vector(const std::string& name, const std::vector<PartShape>& parts,
                               InitialValue initial);

  int add_template(Template list);
  int add_template(OperationList& list) { return add_template(list.take()); }
  // A template for each part between the cuts, in their order. Where an operation waits for one of
  // an earlier part, that one releases a port, of the layer and micro-batch.
  std::vector<int> add_parts(OperationList& list);
  // The template whose first operation also joins these streams and awaits these ports.
  int with_entry(int template_index, const std::vector<int>& joins,
                 const std::vector<PortRef>& awaits);

 private:
  // How a parameter is spread.
  struct Spread {
    int dimension = -1;
    std::string partial_over = {};
    bool expert = false;
    std::vector<std::string> axes = {"tp"};    // over which it is sharded; experts over etp
    std::vector<std::string> cross_axes = {};  // and its columns, where `dimension` is 0
  };
  ParameterId parameter(BufferFamily family, const std::vector<PartShape>& parts,
                        const Spread& spread);
  ParameterId matrix(const std::string& name, const std::vector<PartShape>& parts,
                     const Spread& spread, bool per_layer, bool accumulates,
                     std::optional<DataType> type);
  ParameterId vector(const std::string& name, const std::vector<PartShape>& parts,
                     const Spread& spread, bool per_layer, InitialValue initial);
  std::string own_tokens_axis() const { return shape_.sequence_parallel ? "tp" : ""; }

  const Job& job_;
  StepShape shape_;
  Program program_;
  std::vector<Parameter> parameters_;
  struct Entry {
    int template_index = 0;
    std::vector<int> joins;
    std::vector<std::pair<int, int>> awaits;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  std::map<Entry, int> entries_;
};

}  // namespace headway
