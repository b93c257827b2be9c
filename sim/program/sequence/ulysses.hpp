// DeepSpeed's Ulysses (Jacobs et al., arXiv 2309.14509): between projections and attention core an
// all-to-all exchanges a share of the tokens with all heads for all tokens with a share of the
// heads; four of them forward (queries, keys, values, context), as many backward. Pieces for or
// from each rank stand one below the other, so that an exchange moves whole runs of rows.
#pragma once

#include <string>

#include "sim/program/program_builder.hpp"

namespace headway::ulysses {

// [ranks tokens, columns] of pieces for each rank -> pieces from each rank, of the same shape.
void exchange(ProgramBuilder& builder, OperationList& list, const std::string& name, int from,
              int to);

}  // namespace headway::ulysses
