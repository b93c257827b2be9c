#include "kernels/cpu/matrix.hpp"

#include <cblas.h>

#include <mutex>

namespace headway {
namespace {

CBLAS_TRANSPOSE operand(Transposed transposed) {
  return transposed == Transposed::kYes ? CblasTrans : CblasNoTrans;
}

void keep_to_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

blasint narrow(std::int64_t n) { return static_cast<blasint>(n); }

}  // namespace

void multiply(Transposed transpose_a, Transposed transpose_b, std::int64_t m, std::int64_t n,
              std::int64_t k, float alpha, const float* a, std::int64_t stride_a, const float* b,
              std::int64_t stride_b, float beta, float* c, std::int64_t stride_c) {
  keep_to_one_thread();
  cblas_sgemm(CblasRowMajor, operand(transpose_a), operand(transpose_b), narrow(m), narrow(n),
              narrow(k), alpha, a, narrow(stride_a), b, narrow(stride_b), beta, c,
              narrow(stride_c));
}

void multiply(Transposed transpose_a, Transposed transpose_b, std::int64_t m, std::int64_t n,
              std::int64_t k, double alpha, const double* a, std::int64_t stride_a, const double* b,
              std::int64_t stride_b, double beta, double* c, std::int64_t stride_c) {
  keep_to_one_thread();
  cblas_dgemm(CblasRowMajor, operand(transpose_a), operand(transpose_b), narrow(m), narrow(n),
              narrow(k), alpha, a, narrow(stride_a), b, narrow(stride_b), beta, c,
              narrow(stride_c));
}

}  // namespace headway
