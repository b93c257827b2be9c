// Makes the shipped profiles from published points. For each device it states which sources are
// used and at which level, what has no points and is transferred from a neighbour by named ratios,
// and how wrong the result is on shapes it did not see.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/points.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

// Names of the profiles that fit_profile makes, in order.
std::vector<std::string> fitted_profiles();

// Throws InvalidInput where the name is unknown or the points lack what its recipe needs.
Profile fit_profile(const std::string& name, const PointSet& points);

}  // namespace headway
