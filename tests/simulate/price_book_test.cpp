#include "sim/simulate/price_book.hpp"

#include <gtest/gtest.h>

#include "sim/cost/profile.hpp"

namespace headway {
namespace {

TEST(PriceBook, SaysWhatTheCostModelSaysEveryTime) {
  const Profile profile = read_profile("a100-sxm-80gb");
  const ComputeCost cost(profile);
  const PriceBook book(profile);
  Gemm gemm{.m = 4096, .n = 4096, .k = 1024};
  Gemm same_but_output = gemm;
  same_but_output.output = DataType::kFp32;
  const Kernel kernel{.kind = KernelKind::kRmsNormForward, .rows = 4096, .columns = 4096};
  for (int times = 0; times < 2; ++times) {
    for (const Operation& operation :
         {Operation(gemm), Operation(same_but_output), Operation(kernel)}) {
      const PriceBook::Entry entry = book.price(operation);
      EXPECT_EQ(entry.price.time, cost.price(operation).time);
      EXPECT_EQ(entry.price.grade, cost.price(operation).grade);
      EXPECT_EQ(entry.launches, cost.launches(operation));
    }
  }
}

TEST(PriceBook, StandsUnderACorrection) {
  const Profile profile = read_profile("a100-sxm-80gb");
  Correction correction;
  correction.factor(Cause::kCompute) = 1.25;
  const PriceBook book(profile, correction);
  const Price price{Time::from_microseconds(80), Grade::kMeasured, 0.1};
  EXPECT_EQ(book.corrected(price, Cause::kCompute).time, Time::from_microseconds(100));
  EXPECT_EQ(book.corrected(price, Cause::kCompute).grade, Grade::kAnchored);
  EXPECT_EQ(book.corrected(price, Cause::kOptimizer).time, price.time);
  EXPECT_EQ(book.corrected(price, Cause::kOptimizer).grade, Grade::kMeasured);
}

// What the profile lacks is said each time, never remembered as free.
TEST(PriceBook, SaysWhatIsMissingEveryTime) {
  const Profile profile = read_profile("a100-sxm-80gb");
  const PriceBook book(profile);
  const Gemm gemm{.m = 64, .n = 64, .k = 64, .type = DataType::kFp8};
  for (int times = 0; times < 2; ++times) EXPECT_THROW(book.price(gemm), InvalidInput);
}

}  // namespace
}  // namespace headway
