// A picture of a validation: predicted over measured step time, a panel for each source, both axes
// logarithmic, as an SVG that a browser or a repository's page shows.
#pragma once

#include <string>
#include <vector>

#include "sim/validate/error_table.hpp"

namespace headway {

// Runs without a measured time are left out, and those of low reliability unless `low`; hollow are
// the runs set aside for fitting. The band is 10 % either way.
std::string scatter_svg(const std::vector<PredictedRun>& runs, bool low);

}  // namespace headway
