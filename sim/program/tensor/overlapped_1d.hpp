// Tensor-parallel matrices that exchange while they multiply: Transformer Engine's user buffers
// (ring_exchange; base.py) and PyTorch's async tensor parallelism (all_gather_matmul,
// matmul_reduce_scatter). The gather before a matrix and the reduce-scatter behind one become hops
// round the ring of ranks; each hop runs beside the GEMM of the tokens at hand. The same bytes move
// as without, tokens in 8 bits where a recipe converts them; what is exposed is what a hop takes
// longer than a GEMM.
//
// Of a column-parallel matrix the forward GEMM is cut (its backward exchanges already run beside
// whole GEMMs); of a row-parallel one the forward GEMM and the input gradient's.
//
// Limitations: a hop takes one channel from the GEMM beside it, as NCCL would (user buffers move by
// copy engine, by default); runs on their way take two buffers in turn, where user buffers hold
// all; the pieces of Transformer Engine's "pipeline" method are hops here too; partial sums are
// always in 16 bits.
#pragma once

#include <vector>

#include "sim/program/tensor/megatron_1d.hpp"

namespace headway::overlapped_1d {

// The families that a matrix exchanges through, where they are made; REQUIRES sequence parallelism.
void make_buffers(ProgramBuilder& builder, megatron_1d::ColumnParallel& linear);
// `gradients`: how many copies there are of the gathered output gradient that the weight's is made
// from.
void make_buffers(ProgramBuilder& builder, megatron_1d::RowParallel& linear, Copies gradients);

// `input`, `output_gradient` and `weight`: as the products read them.
void forward(ProgramBuilder& builder, OperationList& list,
             const megatron_1d::ColumnParallel& linear, BufferRef input,
             const std::vector<BufferRef>& weight);
void forward(ProgramBuilder& builder, OperationList& list, const megatron_1d::RowParallel& linear,
             BufferRef input, const std::vector<BufferRef>& weight);
void backward_input(ProgramBuilder& builder, OperationList& list,
                    const megatron_1d::RowParallel& linear, BufferRef output_gradient,
                    const std::vector<BufferRef>& weight);
// The output gradient of all tokens, as the weight gradient reads it: this rank's run, then those
// of the ranks before, one by one; or one buffer.
std::vector<BufferRef> gathered_gradient(const megatron_1d::RowParallel& linear);

}  // namespace headway::overlapped_1d
