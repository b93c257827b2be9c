#include "sim/model/precision.hpp"

#include <gtest/gtest.h>

#include <set>

namespace headway {
namespace {

TEST(DataType, HasItsSizeInMemory) {
  EXPECT_EQ(size_of(DataType::kFp64, 3).count, 24);
  EXPECT_EQ(size_of(DataType::kTf32, 3).count, 12);
  EXPECT_EQ(size_of(DataType::kBf16, 3).count, 6);
  EXPECT_EQ(size_of(DataType::kFp8, 3).count, 3);
  EXPECT_EQ(size_of(DataType::kFp4, 3).count, 2);  // two in a byte, rounded up
  EXPECT_EQ(size_of(DataType::kFp4, 4).count, 2);
  EXPECT_EQ(size_of(DataType::kInt64, 3).count, 24);
  EXPECT_EQ(size_of(DataType::kBool, 3).count, 3);
  EXPECT_EQ(size_of(DataType::kBf16, 0).count, 0);
}

TEST(DataType, IsFoundByItsName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DataType::kBool); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(data_type_named(name(type)), type);
    names.insert(name(type));
  }
  EXPECT_EQ(names.size(), 13U);
  EXPECT_EQ(name(DataType::kBf16), "bf16");
  EXPECT_EQ(name(DataType::kInt64), "int64");
  EXPECT_EQ(data_type_named("bf17"), std::nullopt);
}

TEST(Precision, IsFoundByTheNamesOfAJob) {
  const std::vector<std::string> expected = {"fp64",  "fp32",        "tf32",        "fp16",
                                             "bf16",  "fp8-delayed", "fp8-current", "fp8-block",
                                             "mxfp8", "nvfp4"};
  EXPECT_EQ(precision_names(), expected);
  for (const std::string& word : expected) EXPECT_EQ(name(*precision_named(word)), word);
  EXPECT_EQ(precision_named("fp8"), std::nullopt);
}

TEST(Precision, OfFewBitsSaysWhatSharesAScale) {
  // Transformer Engine, common/recipe/__init__.py: hybrid formats where a tensor has one scale.
  for (const Precision precision : {Precision::kFp8Delayed, Precision::kFp8Current}) {
    ASSERT_NE(quantisation(precision), nullptr);
    EXPECT_EQ(quantisation(precision)->block, 0);
    EXPECT_EQ(quantisation(precision)->forward, DataType::kFp8);
    EXPECT_EQ(quantisation(precision)->gradient, DataType::kFp8E5M2);
  }
  EXPECT_EQ(quantisation(Precision::kFp8Block)->weight_block, 128);
  EXPECT_EQ(quantisation(Precision::kMxFp8)->block, 32);
  EXPECT_EQ(quantisation(Precision::kNvFp4)->block, 16);
  EXPECT_EQ(quantisation(Precision::kBf16), nullptr);
  for (const Scaling scaling :
       {Scaling::kNone, Scaling::kDelayed, Scaling::kCurrent, Scaling::kBlock}) {
    EXPECT_EQ(scaling_named(name(scaling)), scaling);
  }
  EXPECT_EQ(scaling_named("late"), std::nullopt);
}

TEST(Precision, KeepsSixteenBitsInMemoryWhereItComputesInLess) {
  EXPECT_EQ(storage_type(Precision::kFp8Block), DataType::kBf16);
  EXPECT_EQ(compute_type(Precision::kFp8Block), DataType::kFp8);
  EXPECT_EQ(storage_type(Precision::kNvFp4), DataType::kBf16);
  EXPECT_EQ(compute_type(Precision::kNvFp4), DataType::kFp4);
  EXPECT_EQ(storage_type(Precision::kTf32), DataType::kFp32);
  EXPECT_EQ(compute_type(Precision::kTf32), DataType::kTf32);
  EXPECT_EQ(compute_type(Precision::kFp16), DataType::kFp16);
}

}  // namespace
}  // namespace headway
