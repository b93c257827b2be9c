// Megatron's tensor parallelism (Shoeybi et al., arXiv 1909.08053, section 3): a matrix is split by
// its outputs (column-parallel) or its inputs (row-parallel), a pair of them needs one all-reduce
// forward (operator g, after the row-parallel one) and one backward (f, of the column-parallel
// one's input gradient). With sequence parallelism the two become an all-gather and a
// reduce-scatter, and backward gathers the column-parallel input once more for its weight gradient,
// beside the input gradient's GEMM (Megatron-LM, tensor_parallel/layers.py).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"
#include "sim/program/quantised_linear.hpp"

namespace headway::megatron_1d {

// What a matrix needs beside its operands where it is shared as squares of ranks (grid_2d): tokens
// on their way between whole rows and blocks, such a block and its gradient; copies of others'
// blocks, two in turn; products that are to be reduced. Families.
struct SquareBuffers {
  int pieces = -1, block = -1, block_gradient = -1;
  std::vector<int> tokens = {}, weight = {};
  int partial = -1, partial_weight = -1;
};

// y = x . W^T where each rank holds some rows of W, and so computes some columns of y. Buffers are
// families; the `whole` ones, of all tokens, are used (and needed) with sequence parallelism only.
struct ColumnParallel {
  std::string name;  // "attention.qkv"
  ParameterId weight = kNoParameter;
  DataType compute = DataType::kBf16;
  int input = -1;  // this rank's tokens
  int input_whole = -1;
  int output = -1;  // all tokens, local columns
  int output_gradient = -1;
  int input_gradient_whole = -1;  // partial sums over the group
  int input_gradient = -1;
  std::optional<QuantisedLinear> quantised = {};  // where its products read 8 or 4 bits
  std::int64_t width = 0;                // columns of the input; 0: those of the residual stream
  ParameterId more_rows = kNoParameter;  // of a second matrix, beneath those of the first
  std::vector<int> ring = {};            // overlapped_1d: runs of tokens on their way, two in turn
  std::optional<SquareBuffers> square = {};
  bool adds = false;  // to the weight's gradient, which another operation has begun
};
void forward(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear);
// Returns the operations of other streams that a reader of the input gradient must come after.
std::vector<int> backward(ProgramBuilder& builder, OperationList& list,
                          const ColumnParallel& linear);

// The same in halves: the input gradient alone, and later, from the saved output gradient, the
// weight gradient alone. With sequence parallelism the second needs the input gathered again: its
// gather runs beside whatever is computed between the two calls (-1 where there is none).
void backward_input(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear);
int gather_again(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear);
void backward_weight(ProgramBuilder& builder, OperationList& list, const ColumnParallel& linear,
                     int gathered);

// y = x . W^T where each rank holds some columns of W, and so needs only its columns of x.
struct RowParallel {
  std::string name;
  ParameterId weight = kNoParameter;
  DataType compute = DataType::kBf16;
  int input = -1;             // all tokens, local columns
  int output_whole = -1;      // partial sums over the group
  int output = -1;            // this rank's tokens
  BufferRef output_gradient;  // likewise
  int output_gradient_whole = -1;
  int input_gradient = -1;
  std::optional<QuantisedLinear> quantised = {};
  // overlapped_1d, else empty: partial sums on their way, two in turn, and one being made; the
  // output gradients of the other ranks' tokens, and of all runs the copies by columns.
  std::vector<int> ring = {};
  int product = -1;
  std::vector<int> gradient_ring = {}, gradient_columns = {};
  std::optional<SquareBuffers> square = {};
};
void forward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear);
void backward(ProgramBuilder& builder, OperationList& list, const RowParallel& linear);
// In halves; the gathered output gradient must live until the second.
void backward_input(ProgramBuilder& builder, OperationList& list, const RowParallel& linear);
void backward_weight(ProgramBuilder& builder, OperationList& list, const RowParallel& linear);

// Reduces the buffers over the group in place, as one message; nothing where there is no group.
void all_reduce(ProgramBuilder& builder, OperationList& list, const std::string& name,
                std::vector<BufferRef> buffers, std::int64_t elements, DataType type,
                ReduceOperator reduce = ReduceOperator::kSum);

// The GEMM of a weight gradient and its way into the main gradient: in its epilogue, or through a
// gradient of this micro-batch that is then added. The output gradient may come in runs of tokens
// (Gemm::runs), the weight's rows may stand in several matrices. Returns the GEMM's index.
int weight_gradient(ProgramBuilder& builder, OperationList& list, const std::string& name,
                    const std::vector<ParameterId>& weights, DataType compute,
                    std::vector<BufferRef> output_gradient, BufferRef input,
                    bool always_adds = false);
// Adds a micro-batch's gradient to the main one, or, where every micro-batch begins a new one,
// becomes it; unless `always_adds`: another operation has begun it.
void accumulate(ProgramBuilder& builder, OperationList& list, const std::string& name,
                const Parameter& parameter, bool always_adds = false);

}  // namespace headway::megatron_1d
