// Fits memory-bound kernels: each implementation's time is a constant plus a rate per element,
// which the published points follow over three decades of size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/points.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

// Elements that a row's kernel works on, from the source's own words for its shape ("4096x8192",
// "H=2048 M=2048", "V=16384 B=8 T=2048", ...); nothing where they are not understood.
std::optional<double> elements_of(const ElementwiseRow& row);

// "forward", "backward" or "full", in whatever words the row says so; its own words otherwise.
std::string pass_of(const ElementwiseRow& row);

// One entry for each operation, pass and element type of `gpu` with at least three sizes. Flagged
// rows (tensors that stayed in the L2 cache) are left out.
std::vector<MeasuredKernel> fit_kernels(const std::vector<ElementwiseRow>& rows,
                                        const std::string& gpu);

}  // namespace headway
