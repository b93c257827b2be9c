// Matrix multiplications by cuBLASLt. The library is column-major: a row-major matrix is its own
// transpose there, so y[m,n] = x[m,k] w[n,k]^T becomes y^T = w x^T with w transposed ("TN"), the
// input's gradient "NN" and the weight's "NT". Sums are in fp32, of fp64 inputs in fp64, of tf32
// with inputs cut by the tensor cores.
#include <cstring>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_call.hpp"
#include "kernels/cuda/device_operators.hpp"

namespace headway {
namespace {

cudaDataType_t library_type(DataType type, const OperandsOf& operands) {
  switch (type) {
    case DataType::kFp64:
      return CUDA_R_64F;
    case DataType::kFp32:
    case DataType::kTf32:
      return CUDA_R_32F;
    case DataType::kFp16:
      return CUDA_R_16F;
    case DataType::kBf16:
      return CUDA_R_16BF;
    case DataType::kFp8:
      return CUDA_R_8F_E4M3;
    case DataType::kFp8E5M2:
      return CUDA_R_8F_E5M2;
    default:
      operands.refuse(std::string("cuBLASLt multiplies no matrices of ") + std::string(name(type)));
  }
}

// d[rows, columns] = op(a) op(b) + beta d, all column-major.
struct ColumnMajor {
  bool transpose_a = false, transpose_b = false;
  std::int64_t rows = 0, columns = 0, depth = 0;
  cudaDataType_t a_type, b_type, d_type;
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;  // of `rows`, of d's type
  bool accumulate = false;
  bool tf32 = false;
};

// Objects of the library, freed with this.
class Descriptors {
 public:
  explicit Descriptors(const ColumnMajor& of) {
    const bool in_double = of.d_type == CUDA_R_64F;
    const cublasComputeType_t compute = in_double ? CUBLAS_COMPUTE_64F
                                        : of.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    checked(
        cublasLtMatmulDescCreate(&multiplication, compute, in_double ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (of.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, of.bias);
    }
    a = layout(of.a_type, of.transpose_a, of.rows, of.depth);
    b = layout(of.b_type, of.transpose_b, of.depth, of.columns);
    d = layout(of.d_type, false, of.rows, of.columns);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    static_cast<void>(cublasLtMatmulDescDestroy(multiplication));
    for (cublasLtMatrixLayout_t each : {a, b, d}) {
      if (each != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(each));
    }
  }

  cublasLtMatmulDesc_t multiplication = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t what, Value value) {
    checked(cublasLtMatmulDescSetAttribute(multiplication, what, &value, sizeof value));
  }
  // Of op(x)[rows, columns], without gaps.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, bool transposed, std::int64_t rows,
                                       std::int64_t columns) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    checked(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), rows));
    return made;
  }
};

// What the library may use: memory, and the alignment of all matrices.
cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, std::uint32_t alignment) {
  const std::size_t workspace = DeviceStream::kWorkspaceBytes;
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  for (const auto of :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = cublasLtMatmulPreferenceSetAttribute(preference, of, &alignment, sizeof alignment);
  }
  return status;
}

cublasLtMatmulAlgo_t first_choice(DeviceStream& stream, const Descriptors& of,
                                  std::uint32_t alignment, const OperandsOf& operands) {
  cublasLtMatmulPreference_t preference = nullptr;
  checked(cublasLtMatmulPreferenceCreate(&preference));
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  cublasStatus_t status = set_preference(preference, alignment);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmulAlgoGetHeuristic(stream.library().handle(), of.multiplication, of.a,
                                            of.b, of.d, of.d, preference, 1, &result, &count);
  }
  checked(cublasLtMatmulPreferenceDestroy(preference));
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    operands.refuse("cuBLASLt has no algorithm for these types and shapes (status " +
                    std::to_string(static_cast<int>(status)) + ")");
  }
  return result.algo;
}

// The largest power of two, up to the library's own wish, that all addresses divide by.
std::uint32_t alignment_of(const ColumnMajor& of) {
  constexpr std::uintptr_t kWished = 256;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*'s default
  std::uintptr_t alignment = kWished;
  for (const void* each : {of.a, of.b, static_cast<const void*>(of.d)}) {
    while (reinterpret_cast<std::uintptr_t>(each) % alignment != 0) alignment /= 2;
  }
  return static_cast<std::uint32_t>(alignment);
}

void multiply(const ColumnMajor& of, const OperandsOf& operands, DeviceStream& stream) {
  if (of.rows == 0 || of.columns == 0) return;
  const Descriptors descriptors(of);
  const int variant = (of.transpose_a ? 1 : 0) + (of.transpose_b ? 2 : 0) +
                      (of.bias != nullptr ? 4 : 0) + (of.tf32 ? 8 : 0);
  const std::uint32_t alignment = alignment_of(of);
  const cublasLtMatmulAlgo_t& algorithm = stream.library().algorithm(
      {static_cast<int>(of.a_type), static_cast<int>(of.b_type), static_cast<int>(of.d_type),
       variant, of.accumulate ? 1 : 0, of.rows, of.columns, of.depth, static_cast<int>(alignment)},
      [&] { return first_choice(stream, descriptors, alignment, operands); });
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  const bool in_double = of.d_type == CUDA_R_64F;
  const void* alpha = in_double ? static_cast<const void*>(&one) : &one_f;
  const void* nothing = in_double ? static_cast<const void*>(&zero) : &zero_f;
  checked(cublasLtMatmul(stream.library().handle(), descriptors.multiplication, alpha, of.a,
                         descriptors.a, of.b, descriptors.b, of.accumulate ? alpha : nothing, of.d,
                         descriptors.d, of.d, descriptors.d, &algorithm, stream.workspace(),
                         DeviceStream::kWorkspaceBytes, stream.get()));
}

// Row-major products as column-major ones. `m`, `n`, `k` are of the forward product.
ColumnMajor as_column_major(GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k,
                            const Operand& first, const Operand& second, const Operand& result,
                            const OperandsOf& operands) {
  ColumnMajor of;
  of.a = second.data;
  of.b = first.data;
  of.d = result.data;
  of.a_type = library_type(second.type, operands);
  of.b_type = library_type(first.type, operands);
  of.d_type = library_type(result.type, operands);
  switch (role) {
    case GemmRole::kForward:  // y^T[n,m] = w[n,k] x^T[k,m]
      of.transpose_a = true;
      of.rows = n;
      of.columns = m;
      of.depth = k;
      break;
    case GemmRole::kInputGradient:  // dx^T[k,m] = w^T[k,n] dy^T[n,m]
      of.rows = k;
      of.columns = m;
      of.depth = n;
      break;
    case GemmRole::kWeightGradient:  // dw^T[k,n] = x^T[k,m] dy[m,n]
      of.transpose_b = true;
      of.rows = k;
      of.columns = n;
      of.depth = m;
      break;
  }
  return of;
}

void add_bias(const Operand& result, const Operand& bias, std::int64_t m, std::int64_t n,
              const DeviceCall& call) {
  Kernel add;
  add.kind = KernelKind::kBiasAdd;
  add.rows = m;
  add.columns = n;
  compute_on_device(add, std::vector{result, bias}, std::vector{result}, call.placement,
                    call.stream);
}

Operand block_of(const Operand& whole, std::int64_t first, std::int64_t rows,
                 std::int64_t columns) {
  return {whole.type, rows, columns, from(whole, first).data};
}

}  // namespace

void device_gemm(const Gemm& gemm, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  const std::int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  const bool weight = gemm.role == GemmRole::kWeightGradient;
  const bool forward = gemm.role == GemmRole::kForward;
  const Operand& first = operands.read(0, forward ? m * k : m * n);
  const Operand& second = operands.read(1, weight ? m * k : n * k);
  const Operand& result = operands.write(0, forward ? m * n : weight ? n * k : m * k);
  ColumnMajor of = as_column_major(gemm.role, m, n, k, first, second, result, operands);
  of.tf32 = gemm.type == DataType::kTf32;
  if (forward && gemm.bias) {
    const Operand& bias = operands.read(2, n);
    if (bias.type != result.type) operands.refuse("the bias must have the result's type");
    // The library adds no bias in fp64.
    if (bias.type == DataType::kFp64) {
      multiply(of, operands, call.stream);
      return add_bias(result, bias, m, n, call);
    }
    of.bias = bias.data;
  }
  if (weight && gemm.accumulate) {
    if (operands.read(2, n * k).data != result.data) operands.refuse("dw is added to in place");
    of.accumulate = true;
  }
  multiply(of, operands, call.stream);
}

// Rows of each expert come from the counts, which the host reads: it waits for them, as frameworks
// without a grouped kernel do.
void device_grouped_gemm(const GroupedGemm& gemm, const DeviceCall& call) {
  const OperandsOf& operands = call.operands;
  const std::int64_t n = gemm.n, k = gemm.k;
  const bool weight = gemm.role == GemmRole::kWeightGradient;
  const bool forward = gemm.role == GemmRole::kForward;
  const std::int64_t width = forward ? k : n, given = forward ? n : k;
  const Operand& first = operands.read(0);
  const Operand& counts = operands.read(2);
  const std::int64_t most = first.elements() / width;
  const Operand& second = operands.read(1, weight ? most * k : gemm.groups * n * k);
  const Operand& result = operands.write(0, weight ? gemm.groups * n * k : most * given);
  if (weight && gemm.accumulate && operands.read(3, gemm.groups * n * k).data != result.data) {
    operands.refuse("dw is added to in place");
  }
  std::vector<std::int64_t> rows(static_cast<std::size_t>(gemm.groups));
  std::int64_t sum = 0, entry = 0;
  for (const std::int32_t count : call.stream.download(counts.data, counts.elements())) {
    if (count < 0) operands.refuse("a count is negative");
    rows[static_cast<std::size_t>(entry++ % gemm.groups)] += count;
    sum += count;
  }
  if (sum > most) operands.refuse("the counts add up to more rows than its operands have");
  if (!(weight && gemm.accumulate)) {
    checked(cudaMemsetAsync(result.data, 0,
                            static_cast<std::size_t>(size_of(result.type, result.elements()).count),
                            call.stream.get()));
  }
  std::int64_t row = 0;
  for (std::int64_t g = 0; g < gemm.groups; ++g) {
    const std::int64_t m = rows[static_cast<std::size_t>(g)];
    if (m == 0) continue;
    const Operand x = block_of(first, row * width, m, width);
    const Operand w = weight ? block_of(second, row * k, m, k) : block_of(second, g * n * k, n, k);
    const Operand y =
        weight ? block_of(result, g * n * k, n, k) : block_of(result, row * given, m, given);
    ColumnMajor of = as_column_major(gemm.role, m, n, k, x, w, y, operands);
    of.accumulate = weight && gemm.accumulate;
    of.tf32 = gemm.type == DataType::kTf32;
    multiply(of, operands, call.stream);
    row += m;
  }
}

}  // namespace headway
