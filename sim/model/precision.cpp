#include "sim/model/precision.hpp"

#include <array>
#include <cassert>

namespace headway {

namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 13> kDataTypes = {
    "fp64", "fp32", "tf32", "fp16",  "bf16",  "fp8", "fp8-e5m2",
    "fp4",  "int8", "int4", "int64", "int32", "bool"};
static_assert(kDataTypes.size() == static_cast<std::size_t>(DataType::kBool) + 1);

struct Recipe {
  std::string_view name;
  DataType storage;
  DataType compute;
};
// In the order of the enumerators.
constexpr std::array<Recipe, 10> kRecipes = {{
    {"fp64", DataType::kFp64, DataType::kFp64},
    {"fp32", DataType::kFp32, DataType::kFp32},
    {"tf32", DataType::kFp32, DataType::kTf32},
    {"fp16", DataType::kFp16, DataType::kFp16},
    {"bf16", DataType::kBf16, DataType::kBf16},
    {"fp8-delayed", DataType::kBf16, DataType::kFp8},
    {"fp8-current", DataType::kBf16, DataType::kFp8},
    {"fp8-block", DataType::kBf16, DataType::kFp8},
    {"mxfp8", DataType::kBf16, DataType::kFp8},
    {"nvfp4", DataType::kBf16, DataType::kFp4},
}};
static_assert(kRecipes.size() == static_cast<std::size_t>(Precision::kNvFp4) + 1);

constexpr std::array<std::string_view, 4> kScalings = {"none", "delayed", "current", "block"};
static_assert(kScalings.size() == static_cast<std::size_t>(Scaling::kBlock) + 1);

// Transformer Engine, common/recipe/__init__.py: hybrid formats (e5m2 gradients) where a tensor has
// one scale, e4m3 throughout where blocks have theirs. Blocks: 128 and 128 x 128 (DeepSeek-V3,
// arXiv 2412.19437, section 3.3.2), 32 (OCP Microscaling 1.0), 16 and 16 x 16 (NVIDIA, arXiv
// 2509.25149). Sizes: what cuBLASLt and the quantisers assert.
constexpr Quantisation kDelayedScaling = {
    Scaling::kDelayed, DataType::kFp8, DataType::kFp8E5M2, 0, 0, 16, 89};
constexpr Quantisation kCurrentScaling = {
    Scaling::kCurrent, DataType::kFp8, DataType::kFp8E5M2, 0, 0, 16, 89};
constexpr Quantisation kBlockScaling = {
    Scaling::kBlock, DataType::kFp8, DataType::kFp8, 128, 128, 128, 90};
constexpr Quantisation kMicroScaling = {
    Scaling::kBlock, DataType::kFp8, DataType::kFp8, 32, 1, 32, 100};
constexpr Quantisation kNvFp4Scaling = {
    Scaling::kCurrent, DataType::kFp4, DataType::kFp4, 16, 16, 16, 100};

const Recipe& recipe(Precision precision) {
  return kRecipes.at(static_cast<std::size_t>(precision));
}

}  // namespace

Bytes size_of(DataType type, std::int64_t elements) {
  assert(elements >= 0);
  switch (type) {
    case DataType::kFp64:
    case DataType::kInt64:
      return {8 * elements};
    case DataType::kFp32:
    case DataType::kTf32:
    case DataType::kInt32:
      return {4 * elements};
    case DataType::kFp16:
    case DataType::kBf16:
      return {2 * elements};
    case DataType::kFp8:
    case DataType::kFp8E5M2:
    case DataType::kInt8:
    case DataType::kBool:
      return {elements};
    case DataType::kFp4:
    case DataType::kInt4:
      return {elements / 2 + elements % 2};
  }
  assert(false);
  return {};
}

std::string_view name(DataType type) { return kDataTypes.at(static_cast<std::size_t>(type)); }

std::optional<DataType> data_type_named(std::string_view word) {
  for (std::size_t i = 0; i < kDataTypes.size(); ++i) {
    if (kDataTypes.at(i) == word) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::string_view name(Precision precision) { return recipe(precision).name; }

std::optional<Precision> precision_named(std::string_view word) {
  for (std::size_t i = 0; i < kRecipes.size(); ++i) {
    if (kRecipes.at(i).name == word) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Recipe& entry : kRecipes) names.emplace_back(entry.name);
  return names;
}

DataType storage_type(Precision precision) { return recipe(precision).storage; }
DataType compute_type(Precision precision) { return recipe(precision).compute; }

std::string_view name(Scaling scaling) { return kScalings.at(static_cast<std::size_t>(scaling)); }

std::optional<Scaling> scaling_named(std::string_view word) {
  for (std::size_t i = 0; i < kScalings.size(); ++i) {
    if (kScalings.at(i) == word) return static_cast<Scaling>(i);
  }
  return std::nullopt;
}

const Quantisation* quantisation(Precision precision) {
  switch (precision) {
    case Precision::kFp8Delayed:
      return &kDelayedScaling;
    case Precision::kFp8Current:
      return &kCurrentScaling;
    case Precision::kFp8Block:
      return &kBlockScaling;
    case Precision::kMxFp8:
      return &kMicroScaling;
    case Precision::kNvFp4:
      return &kNvFp4Scaling;
    default:
      return nullptr;
  }
}

}  // namespace headway
