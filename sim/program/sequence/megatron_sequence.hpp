// Megatron's sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2): between
// the split matrices the tokens are shared out over the tensor-parallel group, so that norms,
// dropout and residuals work on, and keep, 1/t of them. An all-gather of the tokens stands before a
// column-parallel matrix, a reduce-scatter after a row-parallel one; together they move what one
// all-reduce moves.
#pragma once

#include <string>

#include "sim/program/program_builder.hpp"

namespace headway::megatron_sequence {

// This rank's tokens of a buffer of `columns` -> all of them. Returns the operation's index.
int gather(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef part,
           BufferRef whole, std::int64_t columns);
int gather(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef part,
           BufferRef whole, std::int64_t columns, DataType type);
// Partial sums over all tokens -> this rank's tokens of the sum.
int scatter(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef whole,
            BufferRef part, std::int64_t columns);

}  // namespace headway::megatron_sequence
