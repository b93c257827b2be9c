// cublasLtMatmul as far as this project calls it, on the host: column-major, with transposition,
// leading dimensions, beta and the bias epilogue read from the descriptors, so that a wrong one
// gives wrong numbers here as it would on a device. Sums are in double; the result is rounded to
// its type.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <map>
#include <vector>

#include "kernels/cuda/emulation/blocks.hpp"

namespace {

struct Description {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t scale = CUDA_R_32F;
};
struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
};

double load(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
    case CUDA_R_16F:
      return static_cast<double>(__half2float(static_cast<const __half*>(data)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}
void store(void* data, cudaDataType_t type, std::int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = value;
      return;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(static_cast<float>(value));
      return;
    case CUDA_R_16F:
      static_cast<__half*>(data)[i] = __float2half_rn(static_cast<float>(value));
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

template <typename T, typename Handle>
T& held(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <typename T>
T& held_const(const void* handle) {
  return *reinterpret_cast<T*>(const_cast<void*>(handle));
}

// op(x)[row, column] of a column-major matrix.
double element(const void* data, const Layout& layout, cublasOperation_t operation,
               std::int64_t row, std::int64_t column) {
  if (operation == CUBLAS_OP_T) std::swap(row, column);
  return load(data, layout.type, column * layout.leading + row);
}

double scalar(const void* value, cudaDataType_t type) { return load(value, type, 0); }

}  // namespace

extern "C" {

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  static int one;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made,
                                                     cublasComputeType_t, cudaDataType_t scale) {
  auto* description = new Description;
  description->scale = scale;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete reinterpret_cast<Description*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                           cublasLtMatmulDescAttributes_t what,
                                                           const void* value, std::size_t bytes) {
  auto& description = held<Description>(handle);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      std::memcpy(&description.transpose_a, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      std::memcpy(&description.transpose_b, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      std::memcpy(&description.epilogue, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      std::memcpy(&description.bias, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made,
                                                       cudaDataType type, std::uint64_t rows,
                                                       std::uint64_t columns,
                                                       std::int64_t leading) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete reinterpret_cast<Layout*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  static int one;
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[], int* count) {
  // The shapes must fit, as the library demands.
  const auto& of = held<Description>(description);
  const auto &la = held<Layout>(a), &lb = held<Layout>(b), &ld = held<Layout>(d);
  const std::uint64_t m = of.transpose_a == CUBLAS_OP_N ? la.rows : la.columns;
  const std::uint64_t k = of.transpose_a == CUBLAS_OP_N ? la.columns : la.rows;
  const std::uint64_t k_b = of.transpose_b == CUBLAS_OP_N ? lb.rows : lb.columns;
  const std::uint64_t n = of.transpose_b == CUBLAS_OP_N ? lb.columns : lb.rows;
  if (m != ld.rows || n != ld.columns || k != k_b) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                           const void* alpha, const void* a,
                                           cublasLtMatrixLayout_t layout_a, const void* b,
                                           cublasLtMatrixLayout_t layout_b, const void* beta,
                                           const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                                           cublasLtMatrixLayout_t layout_d,
                                           const cublasLtMatmulAlgo_t*, void*, std::size_t,
                                           cudaStream_t stream) {
  const Description of = held_const<Description>(description);
  const Layout la = held<Layout>(layout_a), lb = held<Layout>(layout_b),
               lc = held<Layout>(layout_c), ld = held<Layout>(layout_d);
  const double by = scalar(alpha, of.scale), kept = scalar(beta, of.scale);
  headway::emulation::enqueue(stream, [=] {
    const auto depth =
        static_cast<std::int64_t>(of.transpose_a == CUBLAS_OP_N ? la.columns : la.rows);
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(ld.rows); ++row) {
      for (std::int64_t column = 0; column < static_cast<std::int64_t>(ld.columns); ++column) {
        double sum = 0;
        for (std::int64_t i = 0; i < depth; ++i) {
          sum += element(a, la, of.transpose_a, row, i) * element(b, lb, of.transpose_b, i, column);
        }
        sum *= by;
        if (kept != 0) sum += kept * load(c, lc.type, column * lc.leading + row);
        if (of.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += load(of.bias, ld.type, row);
        store(d, ld.type, column * ld.leading + row, sum);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
