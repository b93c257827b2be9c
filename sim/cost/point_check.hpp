// How far the shipped profiles are from measured points: each point is predicted for its device in
// the regime of its source, and error = predicted / measured - 1. What no profile can speak of is
// skipped with its reason, never predicted anyhow.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/points.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

struct PointFigures {
  FitError errors;
  int skipped = 0;
};

struct PointCheck {
  PointFigures all;
  // Operation ("gemm", "attention", "elementwise", "all_reduce", ..., "send", "expert") -> device,
  // as its profile is named, or the points' own name where there is none.
  std::map<std::string, std::map<std::string, PointFigures>> by;
  // The same, by regime too: a device is measured in several.
  std::map<std::string, std::map<std::string, std::map<std::string, FitError>>> by_regime;
  std::map<std::string, int> skipped;  // why -> how many
};

// `profile`: a shipped name or a path, asked in place of the shipped ones; points of other devices
// are skipped. Throws InvalidInput where it cannot be read.
PointCheck check_points(const PointSet& points, const std::optional<std::string>& profile);

// For people, and for scripts.
std::string check_text(const PointCheck& check);
std::string check_json(const PointCheck& check);

}  // namespace headway
