// Element types, and the named mixed-precision recipes a job may ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

enum class DataType : std::uint8_t { kFp64, kFp32, kTf32, kFp16, kBf16, kFp8, kFp4, kInt64, kInt32, kBool };

// Bytes of n elements in memory, rounded up (fp4 packs two in a byte; tf32 is stored in 4 bytes).
Bytes size_of(DataType type, std::int64_t elements);

std::string_view name(DataType type);                        // "bf16"
std::optional<DataType> data_type_named(std::string_view);   // nothing where unknown

// What the matrix multiplications of a training step compute in, and what the optimizer keeps.
enum class Precision : std::uint8_t {
  kFp64, kFp32, kTf32, kFp16, kBf16, kFp8Delayed, kFp8Current, kFp8Block, kMxFp8, kNvFp4
};

std::string_view name(Precision precision);                  // "fp8-delayed"
std::optional<Precision> precision_named(std::string_view);
std::vector<std::string> precision_names();

// The type of weights and activations in memory: fp8 and fp4 recipes keep bf16 there.
DataType storage_type(Precision precision);
// The type of the GEMM inputs.
DataType compute_type(Precision precision);

}  // namespace headway
