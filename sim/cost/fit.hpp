// Makes profiles from measured points. The shipped ones have a recipe each, which states which
// sources are used and at which level and what is transferred from a neighbour by named ratios; a
// profile of other points keeps what they do not tell. Both say how wrong they are on shapes they
// did not see.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/cost/points.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

// Names of the profiles that fit_profile makes, in order.
std::vector<std::string> fitted_profiles();

// Throws InvalidInput where the name is unknown or the points lack what its recipe needs.
Profile fit_profile(const std::string& name, const PointSet& points);

// Errors on points that a fit did not use.
struct LeftOut {
  std::string what;  // "gemm bf16", "attention FA2", "rms_norm[liger] forward", "all_reduce of 8"
  std::string regime;
  FitError errors;
};
struct PointsFit {
  Profile profile;
  std::vector<LeftOut> left_out;
  int used = 0;                        // points
  std::map<std::string, int> ignored;  // why -> how many
};
// `base` with everything fitted anew that the points of its device tell: multiplications by type,
// attention by kernel, memory-bound kernels, collectives inside a node, messages. What training
// saw (in-framework) counts as sustained. Five folds over whole shapes give the errors. Throws
// InvalidInput where no point is of its device.
PointsFit fit_points(const PointSet& points, const Profile& base);
// A table of the errors, for people.
std::string left_out_text(const std::vector<LeftOut>& left_out);

}  // namespace headway
