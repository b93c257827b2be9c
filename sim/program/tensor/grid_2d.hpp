// Matrices shared as squares of q x q ranks: SUMMA (van de Geijn and Watts 1997), as ColossalAI's
// 2D tensor parallelism has it (Xu et al., arXiv 2104.05343). Rank (i, j) of the square holds
// columns j of the tokens i of an activation, and outputs j of inputs i of a matrix: 1/q^2 of
// either. Forward takes q steps: in step l the ranks of column l broadcast their block of the input
// along their row, those of row l their block of the matrix along their column, and the products of
// what has arrived add up. The input's gradient takes a broadcast of the matrix, a product and a
// reduction a step, the weight's a broadcast of the input, a product and a reduction: six transfers
// of a block to q - 1 others in each of q steps, 6 (q - 1) / q of an activation and a matrix
// together (ColossalAI, docs/features/2D_tensor_parallel.md). A broadcast runs beside the product
// of the step before.
//
// Limitations: between the matrices' pairs tokens are shared out over all q^2 ranks and whole, as
// with Megatron's sequence parallelism, so that norms need no sums over ranks as ColossalAI's do:
// an exchange of columns for tokens among q ranks, 1/q^2 of an activation, stands before and behind
// each pair, and that before a weight gradient is made again. Embedding, head and loss are those of
// one dimension. Reductions are not overlapped.
#pragma once

#include "sim/program/tensor/megatron_1d.hpp"

namespace headway::grid_2d {

// The families that a matrix needs beside its operands; REQUIRES tp_kind 2d or 2.5d.
void make_buffers(ProgramBuilder& builder, megatron_1d::ColumnParallel& linear);
void make_buffers(ProgramBuilder& builder, megatron_1d::RowParallel& linear);

// "Column-parallel": from this rank's tokens to blocks; "row-parallel": from blocks to its tokens.
void forward(ProgramBuilder& builder, OperationList& list,
             const megatron_1d::ColumnParallel& linear);
void backward(ProgramBuilder& builder, OperationList& list,
              const megatron_1d::ColumnParallel& linear);
void forward(ProgramBuilder& builder, OperationList& list, const megatron_1d::RowParallel& linear);
void backward(ProgramBuilder& builder, OperationList& list, const megatron_1d::RowParallel& linear);

}  // namespace headway::grid_2d
