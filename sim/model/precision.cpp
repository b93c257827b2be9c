#include "sim/model/precision.hpp"

#include <array>
#include <cassert>

namespace headway {

namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 10> kDataTypes = {"fp64", "fp32", "tf32",  "fp16",  "bf16",
                                                         "fp8",  "fp4",  "int64", "int32", "bool"};
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
    case DataType::kBool:
      return {elements};
    case DataType::kFp4:
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

}  // namespace headway
