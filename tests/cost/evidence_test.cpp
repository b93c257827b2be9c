#include "sim/cost/evidence.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace headway {
namespace {

Price price(double seconds, Grade grade, double band) {
  return {Time::from_seconds(seconds), grade, band};
}

constexpr WorkKind kWork = WorkKind::kMultiplication;

TEST(Evidence, IsNothingBeforeAnythingIsAdded) {
  const Evidence evidence;
  EXPECT_EQ(evidence.total(), Time::zero());
  EXPECT_EQ(evidence.share(Grade::kMeasured), 0);
  EXPECT_EQ(evidence.band(), 0);
}

TEST(Evidence, SharesAreOfTheWholeTime) {
  Evidence evidence;
  evidence.add(price(3, Grade::kMeasured, 0.1), kWork);
  evidence.add(price(1, Grade::kFitted, 0.2), kWork, 5);
  EXPECT_EQ(evidence.total(), Time::from_seconds(8));
  EXPECT_DOUBLE_EQ(evidence.share(Grade::kMeasured), 3.0 / 8);
  EXPECT_DOUBLE_EQ(evidence.share(Grade::kFitted), 5.0 / 8);
  EXPECT_EQ(evidence.share(Grade::kAnchored), 0);
}

TEST(Evidence, ErrorsOfAKindOfWorkDoNotAverageOut) {
  Evidence evidence;
  evidence.add(price(1, Grade::kMeasured, 0.1), kWork);
  evidence.add(price(3, Grade::kFitted, 0.2), kWork);
  EXPECT_DOUBLE_EQ(evidence.band(), (0.1 + 0.6) / 4);
}

TEST(Evidence, RepetitionsOfOneOperationErrAlike) {
  Evidence evidence;
  evidence.add(price(1, Grade::kFitted, 0.2), kWork, 10);
  EXPECT_DOUBLE_EQ(evidence.band(), 0.2);
}

TEST(Evidence, ErrorsOfDifferentKindsOfWorkAreIndependent) {
  Evidence evidence;
  evidence.add(price(3, Grade::kMeasured, 0.1), WorkKind::kMultiplication);
  evidence.add(price(4, Grade::kMeasured, 0.1), WorkKind::kCommunication);
  // sqrt(0.3^2 + 0.4^2) / 7
  EXPECT_DOUBLE_EQ(evidence.band(), 0.5 / 7);
}

TEST(Evidence, AWholeCanBeAddedManyTimes) {
  Evidence layer;
  layer.add(price(1, Grade::kMeasured, 0.1), kWork);
  layer.add(price(2, Grade::kFitted, 0.2), kWork, 3);
  Evidence model;
  model.add(layer, 24);
  EXPECT_EQ(model.total(), Time::from_seconds(24 * 7));
  EXPECT_DOUBLE_EQ(model.share(Grade::kFitted), 6.0 / 7);
  EXPECT_DOUBLE_EQ(model.band(), layer.band());
}

TEST(Price, SumTakesTheLessSureGradeAndWeighsBandsByTime) {
  const Price sum = price(3, Grade::kMeasured, 0.1) + price(1, Grade::kExtrapolated, 0.5);
  EXPECT_EQ(sum.time, Time::from_seconds(4));
  EXPECT_EQ(sum.grade, Grade::kExtrapolated);
  EXPECT_DOUBLE_EQ(sum.band, 0.2);
}

TEST(Price, APartThatTakesNoTimeMakesNothingLessSure) {
  const Price sum = price(3, Grade::kMeasured, 0.1) + price(0, Grade::kExtrapolated, 0.5);
  EXPECT_EQ(sum.grade, Grade::kMeasured);
  EXPECT_DOUBLE_EQ(sum.band, 0.1);
}

TEST(Grade, HasANameEachWayRound) {
  for (int i = 0; i < kGrades; ++i) {
    const auto grade = static_cast<Grade>(i);
    EXPECT_EQ(grade_named(name(grade)), grade);
  }
  EXPECT_EQ(grade_named("guessed"), std::nullopt);
}

}  // namespace
}  // namespace headway
