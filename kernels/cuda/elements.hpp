// How kernels see a buffer: elements of whatever real type, read and written as T (float or double)
// with the roundings of kernels/cpu/operand. A type is a branch that all threads take together,
// paid once for four elements where they lie in one aligned word: so one kernel serves every
// mixture of types, at the memory's speed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cpu/operand.hpp"
#include "sim/model/precision.hpp"

namespace headway {

// Elements that a thread takes at a time where it can.
constexpr int kWide = 4;

struct Elements {
  void* data = nullptr;
  DataType type = DataType::kFp32;

  template <typename Held>
  __host__ __device__ Held* as() const {
    return static_cast<Held*>(data);
  }

  template <typename T>
  __host__ __device__ T load(std::int64_t i) const {
    switch (type) {
      case DataType::kFp64:
        return static_cast<T>(as<double>()[i]);
      case DataType::kBf16:
        return static_cast<T>(__bfloat162float(as<__nv_bfloat16>()[i]));
      case DataType::kFp16:
        return static_cast<T>(__half2float(as<__half>()[i]));
      case DataType::kBool:
        return static_cast<T>(as<std::uint8_t>()[i]);
      case DataType::kInt32:
        return static_cast<T>(as<std::int32_t>()[i]);
      case DataType::kInt64:
        return static_cast<T>(as<std::int64_t>()[i]);
      default:
        return static_cast<T>(as<float>()[i]);
    }
  }
  template <typename T>
  __host__ __device__ void store(std::int64_t i, T value) const {
    switch (type) {
      case DataType::kFp64:
        as<double>()[i] = static_cast<double>(value);
        return;
      case DataType::kBf16:
        as<__nv_bfloat16>()[i] = __float2bfloat16_rn(static_cast<float>(value));
        return;
      case DataType::kFp16:
        as<__half>()[i] = __float2half_rn(static_cast<float>(value));
        return;
      case DataType::kBool:
        as<std::uint8_t>()[i] = value != T{0} ? 1 : 0;
        return;
      case DataType::kInt32:
        as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        return;
      case DataType::kInt64:
        as<std::int64_t>()[i] = static_cast<std::int64_t>(value);
        return;
      default:
        as<float>()[i] = static_cast<float>(value);
    }
  }

  // W elements from i on. REQUIRES, for W = kWide: aligned(), and i is a multiple of W.
  template <int W, typename T>
  __host__ __device__ void load(std::int64_t i, T* values) const {
    if constexpr (W == 1) {
      values[0] = load<T>(i);
    } else {
      if (type == DataType::kBf16) {
        const uint2 word = as<uint2>()[i / W];
        unpack(word.x, values);
        unpack(word.y, values + 2);
      } else if (type == DataType::kFp32) {
        const float4 word = as<float4>()[i / W];
        values[0] = static_cast<T>(word.x);
        values[1] = static_cast<T>(word.y);
        values[2] = static_cast<T>(word.z);
        values[3] = static_cast<T>(word.w);
      } else {
        for (int w = 0; w < W; ++w) values[w] = load<T>(i + w);
      }
    }
  }
  template <int W, typename T>
  __host__ __device__ void store(std::int64_t i, const T* values) const {
    if constexpr (W == 1) {
      store(i, values[0]);
    } else {
      if (type == DataType::kBf16) {
        as<uint2>()[i / W] = uint2{packed(values), packed(values + 2)};
      } else if (type == DataType::kFp32) {
        as<float4>()[i / W] = float4{static_cast<float>(values[0]), static_cast<float>(values[1]),
                                     static_cast<float>(values[2]), static_cast<float>(values[3])};
      } else {
        for (int w = 0; w < W; ++w) store(i + w, values[w]);
      }
    }
  }

  // Whether words of kWide elements may be read.
  bool aligned() const {
    constexpr std::uintptr_t kWord = 16;
    return reinterpret_cast<std::uintptr_t>(data) % kWord == 0;
  }

 private:
  template <typename T>
  static __host__ __device__ void unpack(unsigned word, T* values) {
    // bf16 is the upper half of fp32; the first of a pair lies in the word's lower half.
    values[0] = static_cast<T>(__bfloat162float(from_bits(static_cast<unsigned short>(word))));
    values[1] =
        static_cast<T>(__bfloat162float(from_bits(static_cast<unsigned short>(word >> 16))));
  }
  template <typename T>
  static __host__ __device__ unsigned packed(const T* values) {
    return static_cast<unsigned>(to_bits(values[0])) |
           (static_cast<unsigned>(to_bits(values[1])) << 16);
  }
  static __host__ __device__ __nv_bfloat16 from_bits(unsigned short bits) {
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
  }
  template <typename T>
  static __host__ __device__ unsigned short to_bits(T value) {
    return __nv_bfloat16_raw(__float2bfloat16_rn(static_cast<float>(value))).x;
  }
};

inline Elements elements(const Operand& operand) { return {operand.data, operand.type}; }

}  // namespace headway
