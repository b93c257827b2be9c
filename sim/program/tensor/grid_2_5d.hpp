// Matrices shared as a stack of d squares of q x q ranks (Solomonik and Demmel 2011; Wang et al.,
// Tesseract, arXiv 2105.14500, as ColossalAI's 2.5D tensor parallelism): each square multiplies as
// grid_2d does, with its own d-th of the tokens, against its own copy of the matrix. A rank holds
// 1/q^2 of a matrix and 1/(d q^2) of an activation, and moves 3 (q - 1) / q of a matrix and
// 3 (q - 1) / (d q) of an activation (ColossalAI, docs/features/2p5D_tensor_parallel.md). What the
// squares' tokens contribute to the copies' gradients is summed over the stack once per step.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway::grid_2_5d {

// A matrix of `parts`, a block on each rank of a square, a copy on each square.
ParameterId matrix(ProgramBuilder& builder, const std::string& name,
                   const std::vector<ProgramBuilder::PartShape>& parts);

}  // namespace headway::grid_2_5d
