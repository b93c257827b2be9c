// Element types, and the named mixed-precision recipes a job may ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"

namespace headway {

enum class DataType : std::uint8_t {
  kFp64,
  kFp32,
  kTf32,
  kFp16,
  kBf16,
  kFp8,      // e4m3
  kFp8E5M2,  // the wider range, for gradients
  kFp4,      // e2m1
  kInt8,     // -127 to 127, with a scale for each block of elements
  kInt4,     // -7 to 7, likewise
  kInt64,
  kInt32,
  kBool
};

// Bytes of n elements in memory, rounded up (fp4 packs two in a byte; tf32 is stored in 4 bytes).
Bytes size_of(DataType type, std::int64_t elements);

std::string_view name(DataType type);                       // "bf16"
std::optional<DataType> data_type_named(std::string_view);  // nothing where unknown

// What the matrix multiplications of a training step compute in, and what the optimizer keeps.
enum class Precision : std::uint8_t {
  kFp64,
  kFp32,
  kTf32,
  kFp16,
  kBf16,
  kFp8Delayed,
  kFp8Current,
  kFp8Block,
  kMxFp8,
  kNvFp4
};

std::string_view name(Precision precision);  // "fp8-delayed"
std::optional<Precision> precision_named(std::string_view);
std::vector<std::string> precision_names();

// The type of weights and activations in memory: fp8 and fp4 recipes keep bf16 there.
DataType storage_type(Precision precision);
// The type of the GEMM inputs.
DataType compute_type(Precision precision);

// How a recipe of 8 or 4 bits finds the scales of a tensor.
enum class Scaling : std::uint8_t {
  kNone,
  kDelayed,  // one for the tensor, from its largest magnitude in the step before
  kCurrent,  // one for the tensor, from its own largest magnitude, which is sought first
  kBlock     // one for each block, found where the tensor is converted
};
std::string_view name(Scaling scaling);  // "delayed"
std::optional<Scaling> scaling_named(std::string_view);

// What Transformer Engine's recipes convert the operands of a linear layer's products to. Where
// there are blocks, those of an input or a gradient are runs of `block` elements along the depth of
// the product that reads them, those of a weight squares of `weight_block` (1: runs as well); nvfp4
// has both blocks and a scale of the tensor.
struct Quantisation {
  Scaling scaling = Scaling::kNone;
  DataType forward = DataType::kFp8, gradient = DataType::kFp8;
  int block = 0;         // elements that share a scale; 0: all
  int weight_block = 0;  // rows of a weight that do
  int multiple = 16;     // what the sizes of an operand must divide by
  int capability = 89;   // compute capability of the first devices that have it
};
// nullptr for the recipes of 16 and more bits.
const Quantisation* quantisation(Precision precision);

}  // namespace headway
