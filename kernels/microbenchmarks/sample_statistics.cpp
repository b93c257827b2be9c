#include "kernels/microbenchmarks/sample_statistics.hpp"

#include <algorithm>
#include <cmath>

namespace headway {

double seconds_since(SampleClock::time_point start) {
  return std::chrono::duration<double>(SampleClock::now() - start).count();
}

double median_of(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

double spread_of(const std::vector<double>& samples, double median) {
  constexpr double kOfNormal = 1.4826;
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::fabs(sample - median));
  return kOfNormal * median_of(distances) / median;
}

}  // namespace headway
