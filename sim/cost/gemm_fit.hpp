// Fits a GemmTable to measured shapes: the tile model by least absolute logarithm, the factors of
// regimes and roles by medians, the reach of neighbours by cross-validation over whole (columns,
// depth) pairs, as a shape that was never measured is new in both.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/gemm_cost.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

struct GemmSample {
  GemmShape shape;
  GemmRole role = GemmRole::kForward;
  Regime regime = Regime::kBurst;
  double seconds = 0;
  std::string source;
};

// The tile model's parameters that fit burst forward samples best, from `start` and with its tile
// shapes (each given in the orientation with more rows; the other follows).
GemmModel fit_gemm_model(const std::vector<GemmSample>& samples, const GemmDevice& device,
                         const GemmModel& start, int evaluations);

// Scales the samples of every source to the level of `reference` by the median of its residuals
// (one stack's library is evenly faster than another's) and merges equal shapes by their geometric
// mean.
std::vector<GemmSample> level_sources(std::vector<GemmSample> samples, const GemmModel& model,
                                      const GemmDevice& device, const std::string& reference);

// Five folds over (columns, depth) pairs; the table's points are ignored, its reach and power used.
// `refit`: the model too is fitted anew to each fold's other four.
struct LeftOutErrors {
  FitError corrected, model_alone;
  std::vector<double> errors;  // predicted / measured - 1, corrected, in order of the samples
};
LeftOutErrors cross_validate(const std::vector<GemmSample>& samples, const GemmTable& table,
                             const GemmDevice& device, bool refit);

// The whole fit. Sets model, points, factors that the samples tell (others are kept from `start`),
// reach, power and errors.
GemmTable fit_gemm_table(const std::vector<GemmSample>& samples, const GemmDevice& device,
                         GemmTable start, const std::string& reference);

// Statistics of |error|.
FitError summarize(std::vector<double> errors);
double median(std::vector<double> values);  // 0 where empty

}  // namespace headway
