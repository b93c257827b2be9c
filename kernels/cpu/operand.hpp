// What an operator sees of a buffer: element type, shape and memory, and how values of each type
// are held on a CPU. Every real type is held in a native one (fp64 in double, all others in float);
// a narrower type is kept by rounding after each operation, to nearest even, as its hardware would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/precision.hpp"

namespace headway {

// A row-major matrix. The memory is owned by whoever made the operand.
struct Operand {
  DataType type = DataType::kFp32;
  std::int64_t rows = 0, columns = 0;
  void* data = nullptr;

  std::int64_t elements() const { return rows * columns; }
};

// Bytes of one element as held here, which is not what it occupies on an accelerator.
std::size_t held_size(DataType type);

// The nearest value of `type` (ties to even; fp16 overflows to infinity). fp64 and fp32 are
// returned as they are. Values of 8 and 4 bits are held with their scale: they are on the grid of
// their scale already (kQuantise); e4m3 is cut to its four significant bits, which is what a power
// of two as scale leaves of it.
float rounded(float value, DataType type);
double rounded(double value, DataType type);

// The values of an operand as T (float or double); those already held as T are not copied.
template <typename T>
class Input {
 public:
  explicit Input(const Operand& operand);
  const T* data() const { return data_; }
  const T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  std::vector<T> copy_;
  const T* data_;
};

// The memory of a result as T. store() rounds to the operand's type and writes copies back.
template <typename T>
class Output {
 public:
  // The old values are loaded only where `keep` is set.
  Output(const Operand& operand, bool keep);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { store(); }
  T* data() { return data_; }
  T& operator[](std::int64_t i) { return data_[i]; }

 private:
  void store();

  Operand operand_;
  std::vector<T> copy_;
  T* data_;
};

// Reads or writes element ranges of an operand of any type, converted through T.
template <typename T>
void load(const Operand& operand, std::int64_t first, std::int64_t count, T* target);
template <typename T>
void store(const Operand& operand, std::int64_t first, std::int64_t count, const T* source);

// Elements that pass through the caches at a time: buffers of a whole model are not copied.
inline constexpr std::int64_t kChunk = 16384;

// Calls visit(first, count) for the chunks of [from, to).
template <typename Visit>
void in_chunks(std::int64_t from, std::int64_t to, Visit visit) {
  for (; from < to; from += kChunk) visit(from, std::min(kChunk, to - from));
}

// Sets every element to a value, converted.
void fill(const Operand& operand, double value);

// Several buffers as one flat array: their concatenation, padded with zeros (to `size`). Storing
// drops what lies past the last buffer. REQUIRES: the buffers hold at most `size` elements.
std::int64_t elements_of(std::span<const Operand> group);
template <typename T>
void load_range(std::span<const Operand> group, std::int64_t first, std::int64_t count, T* target);
template <typename T>
void store_range(std::span<const Operand> group, std::int64_t first, std::int64_t count,
                 const T* source);
template <typename T>
std::vector<T> load_group(std::span<const Operand> group, std::int64_t size);
template <typename T>
void store_group(std::span<const Operand> group, const std::vector<T>& values);

}  // namespace headway
