// Correction of a model by the measured points nearest to a query: inverse-distance weighting
// (Shepard 1968) of the residuals log(measured / model), with one vote for the model itself. At a
// measured point it is exact; far from all points it vanishes.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace headway {

class Neighbours {
 public:
  static constexpr std::size_t kAxes = 4;
  using Place = std::array<float, kAxes>;  // logarithms to base 2 of dimensions; unused axes 0
  struct Sample {
    Place place;
    double residual;  // log(measured / model)
  };
  struct Correction {
    double residual = 0;    // to add to the model's logarithm
    double distance = 1e9;  // to the nearest sample
  };

  Neighbours() = default;
  // Samples at equal places are merged by their mean. A neighbour at distance d weighs
  // (d / reach)^-power.
  Neighbours(std::vector<Sample> samples, double reach, double power);

  bool empty() const { return samples_.empty(); }
  Correction at(const Place& place) const;

 private:
  std::vector<Sample> samples_;  // by place
  double reach_ = 1;
  double power_ = 2;
};

}  // namespace headway
