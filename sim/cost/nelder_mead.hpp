// Minimises a function of a few variables without derivatives (Nelder and Mead 1965, with
// restarts). Deterministic; used by the fitter only.
#pragma once

#include <functional>
#include <vector>

namespace headway {

// Starts from `start` with steps of `step` along each axis; at most `evaluations` calls of
// `function`.
std::vector<double> nelder_mead(const std::function<double(const std::vector<double>&)>& function,
                                std::vector<double> start, double step, int evaluations);

}  // namespace headway
