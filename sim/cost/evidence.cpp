#include "sim/cost/evidence.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace headway {

namespace {

constexpr std::array<std::string_view, kGrades> kGradeNames = {"measured", "fitted", "extrapolated",
                                                               "anchored"};

}  // namespace

std::string_view name(Grade grade) { return kGradeNames[static_cast<std::size_t>(grade)]; }

std::optional<Grade> grade_named(std::string_view name) {
  for (std::size_t i = 0; i < kGradeNames.size(); ++i) {
    if (kGradeNames[i] == name) return static_cast<Grade>(i);
  }
  return std::nullopt;
}

Price operator+(const Price& a, const Price& b) {
  const double total = a.time.seconds() + b.time.seconds();
  if (total <= 0) return {a.time + b.time, std::max(a.grade, b.grade), std::max(a.band, b.band)};
  const double band = (a.time.seconds() * a.band + b.time.seconds() * b.band) / total;
  // A part that takes no time does not make the sum less sure.
  if (a.time == Time::zero()) return {b.time, b.grade, band};
  if (b.time == Time::zero()) return {a.time, a.grade, band};
  return {a.time + b.time, std::max(a.grade, b.grade), band};
}

void Evidence::add(const Price& price, WorkKind kind, std::int64_t times) {
  const double seconds = price.time.seconds() * static_cast<double>(times);
  seconds_[static_cast<std::size_t>(price.grade)] += seconds;
  error_[static_cast<std::size_t>(kind)] += seconds * price.band;
}

void Evidence::add(const Evidence& other, std::int64_t times) {
  const auto factor = static_cast<double>(times);
  for (std::size_t grade = 0; grade < kGrades; ++grade) {
    seconds_[grade] += factor * other.seconds_[grade];
  }
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind) error_[kind] += factor * other.error_[kind];
}

Time Evidence::total() const {
  double seconds = 0;
  for (const double part : seconds_) seconds += part;
  return Time::from_seconds(seconds);
}

double Evidence::share(Grade grade) const {
  double seconds = 0;
  for (const double part : seconds_) seconds += part;
  return seconds > 0 ? seconds_[static_cast<std::size_t>(grade)] / seconds : 0;
}

double Evidence::band() const {
  double seconds = 0;
  double variance = 0;
  for (const double part : seconds_) seconds += part;
  for (const double error : error_) variance += error * error;
  return seconds > 0 ? std::sqrt(variance) / seconds : 0;
}

}  // namespace headway
