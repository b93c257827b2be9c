// The copies in 8 or 4 bits that the three products of a linear layer read, as Transformer Engine
// makes them. The forward product takes input and weight as they stand, the input gradient's takes
// the output's gradient as it stands and the weight transposed, the weight gradient's takes both
// its operands transposed. Hopper multiplies 8 bits in one layout only, and blocks of scales run
// along a product's depth: so a tensor has a copy by rows and one by columns. The attention core,
// norms, embedding, head and loss stay in 16 bits.
//
// Weights are converted once per step, before the first forward pass, and both copies stay
// (is_first_microbatch); where parameters live in shares they are converted for each use. Between
// the ranks of sequence parallelism the converted tokens travel. What delayed scaling has seen is
// reduced once per step (TrainingStep).
//
// Limitations: Transformer Engine reduces it after every pass; the scales themselves (4 bytes for
// 128 elements, 1 for 32, 1 for 16) take no memory and no time here; nvfp4's random Hadamard
// transform and stochastic rounding are left out; GPUs after Hopper need no transposed copy of
// tensors with one scale, and make one here.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway {

class QuantisedLinear {
 public:
  // Which side of the layer holds a share of the tokens under sequence parallelism: the input of a
  // column-parallel matrix, the output's gradient of a row-parallel one.
  enum class Shared : std::uint8_t { kInput, kGradient, kNeither };
  // What the products work on, where it is not the micro-batch's tokens.
  struct Operands {
    std::int64_t rows = 0;       // expected
    std::int64_t most_rows = 0;  // BufferFamily::most_rows
    bool by_load = false;        // they are those that come to the rank's experts
    std::int64_t groups = 1;     // experts, whose matrices stand one below the other
    // Copies by rows that are there already, of the input and of the output's gradient (-1: none).
    int input_rows = -1, gradient_rows = -1;
    // Another matrix that reads the same input: its copies serve here too. Not kept.
    const QuantisedLinear* same_input = nullptr;
  };

  // REQUIRES: the recipe has 8 or 4 bits (StepShape::quantisation). `builder` outlives this.
  QuantisedLinear(ProgramBuilder& builder, std::string name, ParameterId weight, Shared shared);
  QuantisedLinear(ProgramBuilder& builder, std::string name, ParameterId weight,
                  const Operands& operands);

  // Adds the conversion of this rank's tokens; returns the copy by rows.
  BufferRef quantise_input(OperationList& list, BufferRef input) const;
  BufferRef quantise_gradient(OperationList& list, BufferRef output_gradient) const;

  // Where the tokens are shared out, an all-gather moves a copy of this rank's tokens to one of all
  // tokens: by rows before the product that reads it so, and, where it cannot be made from that one
  // by transposing, by columns.
  struct Gather {
    BufferRef part, whole;
    DataType type = DataType::kFp8;
  };
  Gather gather_rows() const;
  Gather gather_columns() const;
  bool one_scale() const { return scales_.block == 0; }
  // Makes the whole copy by columns from that by rows, when operation `after` has ended (-1: none).
  void transpose_whole(OperationList& list, int after = -1) const;
  // The same of `rows` tokens of it.
  void transpose(OperationList& list, const std::string& run, std::int64_t rows, BufferRef by_rows,
                 BufferRef by_columns) const;

  // What the weight gradient's product reads, once all that is gathered is there.
  BufferRef input_by_columns() const;
  BufferRef gradient_by_columns() const;

  // The weight as the forward product and the input gradient's read it; converted here where that
  // is done for each use.
  BufferRef forward_weight(OperationList& list) const;
  BufferRef backward_weight(OperationList& list) const;
  // Both copies, once per step; nothing where they are made for each use.
  void quantise_weight(OperationList& list) const;

  // Families, per layer, that live from step to step; and those of delayed scaling among them.
  std::vector<int> kept() const;
  std::vector<int> histories() const;

 private:
  struct Tensor {
    std::string name;  // "attention.qkv.input"
    DataType type = DataType::kFp8;
    std::int64_t rows = 0, columns = 0;              // local shape
    std::int64_t block_rows = 0, block_columns = 0;  // of the copy by rows
    int by_rows = -1, by_columns = -1;
    int amax = -1, history = -1;  // current, delayed scaling
    bool reduced = false;         // its amax is that of all ranks of the tensor-parallel group
    bool by_load = false;
    bool has_rows = false;  // the copy by rows is made elsewhere
    bool made = true;       // else another matrix makes all of it
  };

  Tensor tensor(const char* what, DataType type, std::int64_t rows, std::int64_t columns,
                std::int64_t block_rows);
  void make_input(const Operands& operands);
  void make_gradient(const Operands& operands);
  void make_weight();
  int copy(const std::string& name, DataType type, std::int64_t rows, std::int64_t columns,
           Copies copies, BufferCategory category = BufferCategory::kActivation) const;
  int copy(const Tensor& tensor, const char* how, Copies copies) const;
  int layer_buffer(const std::string& name, DataType type, std::int64_t rows,
                   std::int64_t columns) const;
  bool shares(Shared side) const;
  std::int64_t tokens(Shared side) const;
  // By rows, by columns or both: those that exist and are asked for.
  enum class Which : std::uint8_t { kRows, kColumns, kBoth };
  void quantise(OperationList& list, const Tensor& tensor, BufferRef source, Which which) const;
  BufferRef quantise(OperationList& list, const Tensor& tensor, BufferRef source) const;
  void transpose_parameter(OperationList& list) const;

  ProgramBuilder* builder_;
  Quantisation scales_;
  std::string name_;
  ParameterId weight_id_;
  Shared shared_;
  std::int64_t most_rows_ = 0;
  Tensor input_, gradient_, weight_;
  int whole_rows_ = -1, whole_columns_ = -1;
  bool for_each_use_ = false;         // parameters live in shares
  bool weight_is_parameter_ = false;  // which has 8 bits itself: `weight_.by_rows`
};

}  // namespace headway
