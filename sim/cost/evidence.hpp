// How sure a price is. Every price carries its grade and a relative band; sums keep the share of
// each grade, so the final number says what it rests on.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "sim/core/units.hpp"

namespace headway {

// Ordered from surest to least sure; a price built of several takes the least sure one's grade.
enum class Grade : std::uint8_t { kMeasured, kFitted, kExtrapolated, kAnchored };
inline constexpr int kGrades = 4;
std::string_view name(Grade grade);  // "measured"
std::optional<Grade> grade_named(std::string_view name);

struct Price {
  Time time;
  Grade grade = Grade::kMeasured;
  double band = 0;  // relative half-width at 90 %: true time within time x (1 +- band)
};

// One after the other: times add, the grade is the less sure one's, the bands are weighted by time
// (errors of one operation's parts are common to it).
Price operator+(const Price& a, const Price& b);

// What a price is of. Prices of one kind come from one model and one regime of the device: they err
// alike, and many of them do not average out. Different kinds err independently.
enum class WorkKind : std::uint8_t { kMultiplication, kAttention, kMemoryBound, kCommunication };
inline constexpr int kWorkKinds = 4;

// Time by grade, and the band of the sum: bands of a kind of work add up in proportion to their
// times, those of different kinds as independent errors do.
class Evidence {
 public:
  void add(const Price& price, WorkKind kind, std::int64_t times = 1);
  void add(const Evidence& other, std::int64_t times = 1);
  Time total() const;
  double share(Grade grade) const;  // of total(); 0 where total is zero
  double band() const;              // relative half-width at 90 % of total()

 private:
  std::array<double, kGrades> seconds_{};
  std::array<double, kWorkKinds> error_{};  // sum of seconds x band
};

}  // namespace headway
