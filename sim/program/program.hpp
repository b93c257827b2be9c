// The Program: for each kind of rank, which operations run, on which in-order stream, after which
// others, reading and writing which buffers. It is lowered once from a job and read three ways:
// priced without a clock, simulated, and executed on real hardware. It is self-contained: an
// executor needs nothing else.
//
// Levels. A *template* is the list of operations of, say, one layer's forward pass, the same for
// every layer and micro-batch. A *pass* is a sequence of templates, each applied to a layer: what a
// schedule calls an action ("2F0": stage 2, forward, micro-batch 0) or a communication between
// actions. A rank kind's *order* issues passes, each for a micro-batch; this issue order is what
// the host does.
//
// Names. Buffers and ports are families: a buffer is (family, layer, micro-batch), a port likewise;
// a template names them relative to the layer it is applied to, so that templates are shared.
//
// Order. Operations on one stream of a rank run in issue order. Besides, an operation waits for
//   - `after`:     operations of its own template (smaller index, other streams);
//   - `joins`:     streams: everything issued on them by this rank before this operation (what
//   CUDA's
//                  event record + stream wait does at that point of the issue);
//   - `awaits`:    ports, each released by exactly one operation of this rank;
//   - collectives: all members of the group start together, when the last one is ready, and end
//                  together; a send and its receive likewise.
// The host issues operations in issue order and runs ahead; it stops where an operation says
// `host_waits` until that operation has ended.
//
// Lifetimes. A buffer that a rank kind lists as persistent lives throughout. Any other lives, in
// issue order, from the operation that writes it without reading it to its last use before the next
// such write. So the memory peak needs no clock (sim/price/memory), and an executor allocates the
// same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/model/operation.hpp"
#include "sim/plan/rank_grid.hpp"
#include "sim/program/sequence/token_layout.hpp"

namespace headway {

// What a buffer is for: a line of the memory breakdown.
enum class BufferCategory : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizer,
  kActivation,
  kCommunication,
  kInput
};
std::string_view name(BufferCategory category);

// A named global tensor of the model, or one that is summed with others into a local one. Its local
// shard is an equal share of the rows or columns over the ranks of `group`.
struct TensorPart {
  std::string name;  // without the layer: "attention.query"; global name "layers.7.attention.query"
  std::int64_t rows = 0, columns = 0;  // global
  int sharded_dimension = -1;          // 0 rows, 1 columns, -1 replicated
  int group = -1;                      // Program::groups, where sharded
  int cross_group = -1;                // over which the other dimension is shared out, if it is
  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

enum class InitialValue : std::uint8_t {
  kUndefined,  // must be written before it is read
  kZero,
  kOne,
  kNormal,   // standard deviation `initial_scale`; a counter keyed by the part's name, layer and
             // global element index, so every sharding starts from the same model
  kMirror,   // the values of `mirrors`, converted
  kTokens,   // the tokens of the micro-batch's sequences, from the data set
  kTargets,  // the tokens one position later
};

struct BufferRef {
  int family = 0;
  int layer = 0;  // in a template: relative to the layer it is applied to; else absolute
  friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

struct BufferFamily {
  std::string name;  // unique: "attention.qkv_weight"
  BufferCategory category = BufferCategory::kActivation;
  DataType type = DataType::kBf16;
  std::int64_t rows = 0, columns = 0;  // local shape
  // Where the rows depend on the routing of tokens: `rows` are those expected, this many may come,
  // and whoever executes the Program makes room for them. 0: exactly `rows`.
  std::int64_t most_rows = 0;
  bool per_layer = false;
  bool per_micro_batch = false;
  bool on_host = false;  // in the host's memory (pinned), not the device's
  InitialValue initial = InitialValue::kUndefined;
  double initial_scale = 0;
  std::int64_t ahead = 0;  // kTokens, kTargets: so many positions later still
  // Parameters and their gradients: the global tensors, concatenated along the rows in this order.
  // With blocks (experts), each tensor is as many equal blocks of rows; the rank holds an equal
  // run of them over `block_group` (-1: all), of each its shard, block after block, every one with
  // its rows of all parts.
  std::vector<TensorPart> parts;
  std::int64_t blocks = 1;
  int block_group = -1;
  // Optimizer state of a flat group of tensors: their concatenation, padded with zeros to a
  // multiple of the size of `row_group` and sharded over it (-1: whole). Layers are absolute here,
  // or, in a family that is per layer, relative to the buffer's own.
  std::vector<BufferRef> mirrors;
  // Activations whose rows (tokens) or columns are one rank's equal share over a group (-1: whole);
  // what dropout needs to know the global index of an element.
  int row_group = -1;
  int column_group = -1;

  std::int64_t elements() const { return rows * columns; }
  Bytes size() const { return size_of(type, elements()); }
  friend bool operator==(const BufferFamily&, const BufferFamily&) = default;
};

// A point inside a template where work of other templates starts or is awaited.
struct PortFamily {
  std::string name;
  bool per_layer = false;
  bool per_micro_batch = false;
  friend bool operator==(const PortFamily&, const PortFamily&) = default;
};
struct PortRef {
  int family = 0;
  int layer = 0;  // relative to the layer the template is applied to
  friend bool operator==(const PortRef&, const PortRef&) = default;
};

// What time spent in an operation, or waiting for it, is booked as in a result's `breakdown_s`.
enum class Cause : std::uint8_t {
  kCompute,
  kTensorParallel,
  kContextParallel,
  kExpertParallel,
  kPipelineParallel,
  kDataParallel,
  kOptimizer,
  kHost,
  kOther
};
std::string_view name(Cause cause);  // "compute", "tp", "cp", "ep", "pp", "dp", "optimizer", ...

struct TemplateOperation {
  std::string name;  // "attention.qkv", unique in its template
  Operation operation;
  Cause cause = Cause::kCompute;
  int stream = 0;       // Program::streams
  int group = -1;       // collectives, and GEMMs of runs: Program::groups
  int peer_offset = 0;  // send, receive: the peer's coordinate along `peer_axis`, relative, cyclic
  std::string peer_axis;  // "pp"
  std::vector<BufferRef> reads;
  std::vector<BufferRef> writes;
  std::vector<int> after;
  std::vector<int> joins;
  std::vector<PortRef> awaits;
  std::vector<PortRef> releases;
  bool host_waits = false;
  // Of a captured graph: the host launches the operations of a template that have the same number
  // here together, with the first of them. -1: each is launched alone.
  int graph = -1;
  // Its rows are those that come to the rank's experts: as many as stand there with even routing,
  // times the rank's expert load.
  bool by_load = false;
  friend bool operator==(const TemplateOperation&, const TemplateOperation&) = default;
};

// Messages are matched by what they carry: a send of buffer (family, layer, micro-batch) from rank
// a to rank b by the receive of the same buffer.
struct Template {
  std::string name;  // "layer.forward"
  std::vector<TemplateOperation> operations;
  friend bool operator==(const Template&, const Template&) = default;
};

struct Step {
  int template_index = 0;
  int layer = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

struct Pass {
  std::string name;  // "2F" (stage, kind: the text form of a schedule), "2SEND_F", "optimizer"
  int stage = -1;    // virtual stage; -1 for what belongs to the whole rank
  std::vector<Step> steps;
  friend bool operator==(const Pass&, const Pass&) = default;
};

struct Issue {
  int pass = 0;
  int micro_batch = -1;  // -1: once per step
  friend bool operator==(const Issue&, const Issue&) = default;
};

// Ranks with the same program: all ranks whose coordinate along the pipeline axis is in `stages`.
struct RankKind {
  std::string name;         // "pipeline rank 0"
  std::vector<int> stages;  // coordinates along "pp"
  std::vector<BufferRef> persistent;
  std::vector<Pass> passes;
  std::vector<Issue> order;
  friend bool operator==(const RankKind&, const RankKind&) = default;
};

struct Program {
  RankGrid grid;
  std::vector<std::string> streams;  // "compute" is 0
  std::vector<GroupFamily> groups;
  std::vector<BufferFamily> buffers;
  std::vector<PortFamily> ports;
  std::vector<Template> templates;
  std::vector<RankKind> kinds;

  // What the numbers mean, for readers and executors.
  std::int64_t micro_batches = 1;  // per rank and step
  std::int64_t sequences_per_micro_batch = 1;
  std::int64_t sequence_length = 0;
  // Packed sequences: the documents of sequence s of the data set are packs[s mod size], by length.
  std::vector<std::vector<std::int64_t>> packs;
  std::int64_t vocab_size = 0;   // of the data set; the padded table may be larger
  std::string data_axis = "dp";  // micro-batch j of coordinate d is global j * size + d
  TokenLayout layout;            // who holds which tokens of a sequence
  double dropout = 0;            // probability, of every dropout operation
  double learning_rate = 0;
  double clip_norm = 0;  // 0: no clipping
  // Whether a rank begins its next step when its own part of this one has ended, whatever the
  // others do: then the time of a step is that between two of its repeats.
  bool steps_overlap = false;
  // Whether every micro-batch is a mini-batch with an update of its own (PipeDream).
  bool updates_every_micro_batch = false;
  // Share of the choices that each expert takes, over an even one, by layer (or one row for all);
  // empty: even.
  std::vector<std::vector<double>> expert_loads;

  // The kind of a rank. REQUIRES: every pipeline coordinate stands in exactly one kind.
  int kind_of(int rank) const;
  // Choices that come to a rank's experts in a layer, over those of even routing.
  double expert_load(int rank, int layer) const;
};

// Throws InvalidInput with every fault: an index out of range, a dependency on a later operation, a
// buffer read before any write, a port released twice or never, a send without its receive, a rank
// in no kind or in two.
void check(const Program& program, const std::string& file);

}  // namespace headway
