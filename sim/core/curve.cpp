#include "sim/core/curve.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <utility>

namespace headway {

namespace {

// On the line through a and b in log-log, exact at both. REQUIRES: a.x < b.x.
double between(const CurvePoint& a, const CurvePoint& b, double x) {
  if (x == a.x) return a.y;
  if (x == b.x) return b.y;
  const double share = std::log(x / a.x) / std::log(b.x / a.x);
  return a.y * std::exp(share * std::log(b.y / a.y));
}

}  // namespace

Curve::Curve(std::vector<CurvePoint> points) {
  // By y too, so that the order given makes no difference to the last bit of a mean.
  std::sort(points.begin(), points.end(), [](const CurvePoint& a, const CurvePoint& b) {
    return a.x != b.x ? a.x < b.x : a.y < b.y;
  });
  for (std::size_t first = 0; first < points.size();) {
    assert(points[first].x > 0 && points[first].y > 0);
    std::size_t last = first;
    double logarithms = 0;
    while (last < points.size() && points[last].x == points[first].x) {
      logarithms += std::log(points[last].y / points[first].y);
      ++last;
    }
    const double mean = std::exp(logarithms / static_cast<double>(last - first));
    points_.push_back({points[first].x, points[first].y * mean});
    first = last;
  }
}

double Curve::at(double x) const {
  assert(!empty() && x > 0);
  if (x <= min_x()) return points_.front().y;
  if (x >= max_x()) return points_.back().y;
  return continued_at(x);
}

double Curve::continued_at(double x) const {
  assert(!empty() && x > 0);
  if (points_.size() == 1) return points_.front().y;
  const auto above =
      std::lower_bound(points_.begin() + 1, points_.end() - 1, x,
                       [](const CurvePoint& point, double at) { return point.x < at; });
  return between(*(above - 1), *above, x);
}

}  // namespace headway
