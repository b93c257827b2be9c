// Row-major matrix products through BLAS, in float or double, each call on the calling thread
// alone: a rank is one thread, so the library must not start its own.
#pragma once

#include <cstdint>

namespace headway {

enum class Transposed : bool { kNo, kYes };

// c[m,n] = alpha op(a)[m,k] op(b)[k,n] + beta c, with row strides; c is not read where beta is 0.
void multiply(Transposed transpose_a, Transposed transpose_b, std::int64_t m, std::int64_t n,
              std::int64_t k, float alpha, const float* a, std::int64_t stride_a, const float* b,
              std::int64_t stride_b, float beta, float* c, std::int64_t stride_c);
void multiply(Transposed transpose_a, Transposed transpose_b, std::int64_t m, std::int64_t n,
              std::int64_t k, double alpha, const double* a, std::int64_t stride_a, const double* b,
              std::int64_t stride_b, double beta, double* c, std::int64_t stride_c);

}  // namespace headway
