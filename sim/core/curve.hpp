// A function known at points, e.g. bus bandwidth by message size. Between points it is linear in the
// logarithms of both axes; beyond them it goes on with the slope of the last two points in log-log
// where asked to, else it stays. At a point it is exact.
#pragma once

#include <vector>

namespace headway {

struct CurvePoint {
  double x;  // > 0
  double y;  // > 0
};

class Curve {
 public:
  Curve() = default;
  // Sorts by x and merges equal x by the geometric mean. REQUIRES: all x, y > 0.
  explicit Curve(std::vector<CurvePoint> points);

  bool empty() const { return points_.empty(); }
  double min_x() const { return points_.front().x; }
  double max_x() const { return points_.back().x; }
  bool covers(double x) const { return !empty() && x >= min_x() && x <= max_x(); }
  const std::vector<CurvePoint>& points() const { return points_; }

  // REQUIRES: not empty, x > 0. Outside the points the end value is held.
  double at(double x) const;
  // As at(), but continued with the end slope.
  double continued_at(double x) const;

 private:
  std::vector<CurvePoint> points_;
};

}  // namespace headway
