#include <gmock/gmock.h>

#include "kernels/cpu/operators.hpp"
#include "tests/kernels/cpu/owned_matrix.hpp"

namespace headway {
namespace {

// Grids: OCP 8-bit Floating Point 1.0 (e4m3 to 448, e5m2 to 57344), OCP Microscaling 1.0 (e2m1:
// 0, 0.5, 1, 1.5, 2, 3, 4, 6).
class Quantise : public testing::Test {
 protected:
  static OwnedMatrix row(const std::vector<double>& values) {
    return matrix(1, static_cast<std::int64_t>(values.size()), values);
  }
  static OwnedMatrix matrix(std::int64_t rows, std::int64_t columns,
                            const std::vector<double>& values) {
    OwnedMatrix made(rows, columns);
    for (std::size_t i = 0; i < values.size(); ++i) {
      made.set(static_cast<std::int64_t>(i), values[i]);
    }
    return made;
  }
  static Kernel quantise(const OwnedMatrix& x, DataType type, Scaling scaling) {
    Kernel kernel;
    kernel.kind = KernelKind::kQuantise;
    kernel.rows = x.rows();
    kernel.columns = x.columns();
    kernel.type = DataType::kFp64;
    kernel.output = type;
    kernel.scaling = scaling;
    return kernel;
  }
  static std::vector<double> values(const OwnedMatrix& x) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < x.elements(); ++i) all.push_back(x.at(i));
    return all;
  }
  static std::vector<double> by_current(const std::vector<double>& x, double amax, DataType type) {
    const OwnedMatrix in = row(x), largest = row({amax});
    OwnedMatrix y(1, in.columns(), type);
    run(quantise(in, type, Scaling::kCurrent), {&in, &largest}, {&y});
    return values(y);
  }
};

TEST_F(Quantise, OfE4M3KeepsFourBitsTiesToEvenAndSaturates) {
  EXPECT_THAT(by_current({1.0625, 17, 19, -0.001, 460, 0}, 448, DataType::kFp8),
              testing::ElementsAre(1, 16, 20, -0x1p-9, 448, 0));
}

TEST_F(Quantise, ScalesByThePowerOfTwoThatBringsTheLargestIntoRange) {
  // 448 / 0.5 = 896: scale 512, whose smallest step is 2^-9 / 512.
  EXPECT_THAT(by_current({0.5, 0x1.2p-18}, 0.5, DataType::kFp8),
              testing::ElementsAre(0.5, 0x1p-18));
  // 57344 / 1: scale 32768.
  EXPECT_THAT(by_current({1, 1.1, 0x1p-31}, 1, DataType::kFp8E5M2),
              testing::ElementsAre(1, 1, 0x1p-31));
}

TEST_F(Quantise, OfATensorOfZerosIsZero) {
  EXPECT_THAT(by_current({0, 0}, 0, DataType::kFp8), testing::ElementsAre(0, 0));
}

TEST_F(Quantise, DelayedScalesByTheStepBefore) {
  const OwnedMatrix x = row({600, 1});
  OwnedMatrix history = matrix(2, 1, {0, 0}), y(1, 2, DataType::kFp8);
  const auto convert = [&] {
    run(quantise(x, DataType::kFp8, Scaling::kDelayed), {&x, &history}, {&y, &history});
    return values(y);
  };
  EXPECT_THAT(convert(), testing::ElementsAre(448, 1));  // scale 1
  EXPECT_THAT(values(history), testing::ElementsAre(600, 0));
  Kernel roll;
  roll.kind = KernelKind::kRollAmax;
  run(roll, {&history}, {&history});
  EXPECT_THAT(values(history), testing::ElementsAre(0, 600));
  EXPECT_THAT(convert(), testing::ElementsAre(576, 1));  // scale 1/2: 288 x 2
}

TEST_F(Quantise, DelayedTakesAFirstGradientsLargestAsOne) {
  const OwnedMatrix x = row({1e-4});
  OwnedMatrix history = matrix(2, 1, {0, 0}), y(1, 1, DataType::kFp8E5M2);
  run(quantise(x, DataType::kFp8E5M2, Scaling::kDelayed), {&x, &history}, {&y, &history});
  EXPECT_NEAR(y.at(0), 1e-4, 1e-4 / 8);
}

TEST_F(Quantise, BlocksRunAlongRowsInOneCopyAndAlongColumnsInTheOther) {
  // Beside 448 x 2^10 the number 1 vanishes; beside itself it does not.
  const double large = 448.0 * 1024;
  const OwnedMatrix x = matrix(2, 2, {large, 1, large, large});
  OwnedMatrix y(2, 2, DataType::kFp8), other(2, 2, DataType::kFp8);
  Kernel kernel = quantise(x, DataType::kFp8, Scaling::kBlock);
  kernel.block_rows = 1;
  kernel.block_columns = 2;
  kernel.transposed = true;
  run(kernel, {&x}, {&y, &other});
  EXPECT_THAT(values(y), testing::ElementsAre(large, 0, large, large));
  EXPECT_THAT(values(other), testing::ElementsAre(large, 0, large, large));
  const OwnedMatrix apart = matrix(2, 2, {large, 1, large, 3});
  run(kernel, {&apart}, {&y, &other});
  EXPECT_THAT(values(y), testing::ElementsAre(large, 0, large, 4));  // steps of 2, ties to even
  EXPECT_THAT(values(other), testing::ElementsAre(large, 1, large, 3));
}

TEST_F(Quantise, OfFourBitsHasScalesOfEightBitsInUnitsOfTheTensors) {
  // Tensor: 6 x 448 / 2688 = 1. Blocks: 6 / 6 = 1 and 2688 / 6 = 448, both e4m3 numbers.
  const OwnedMatrix x = matrix(2, 2, {6, 2.4, 2688, 500}), amax = row({2688});
  OwnedMatrix y(2, 2, DataType::kFp4);
  Kernel kernel = quantise(x, DataType::kFp4, Scaling::kCurrent);
  kernel.block_rows = 1;
  kernel.block_columns = 2;
  run(kernel, {&x, &amax}, {&y});
  EXPECT_THAT(values(y), testing::ElementsAre(6, 2, 2688, 448));
}

TEST_F(Quantise, AmaxIsTheLargestMagnitude) {
  const OwnedMatrix x = row({1, -3, 2});
  OwnedMatrix amax(1, 1);
  Kernel kernel;
  kernel.kind = KernelKind::kAmax;
  run(kernel, {&x}, {&amax});
  EXPECT_EQ(amax.at(0), 3);
}

}  // namespace
}  // namespace headway
