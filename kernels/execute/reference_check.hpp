// Whether an execution computed what one rank alone computes: losses, every gradient, every updated
// parameter, put together from all ranks' shards and compared by name. Limits are relative to the
// tensor's norm, and to a millionth of the whole gradient's for tensors that hardly matter; one
// unit of roundoff of its layer's gradient is no error of any tensor.
#pragma once

#include <string>
#include <vector>

#include "kernels/execute/executor.hpp"

namespace headway {

struct CheckReport {
  bool passed = false;
  std::string precision;  // "fp64": what the limit is for
  double limit = 0;
  int steps = 0;
  double loss_error = 0;        // the largest relative difference of a step's loss
  double gradient_error = 0;    // the worst tensor's error
  std::string gradient_tensor;  // and which it is, with its step: "layers.0.mlp.up_weight"
  double parameter_error = 0;   // likewise of the parameters after the last step
  std::string parameter_tensor;
  // Orders the Program demands, those that the measured times break, and pairs of operations on the
  // same memory that nothing orders.
  std::int64_t order_demands = 0;
  std::int64_t order_violations = 0;
  std::vector<std::string> problems;  // what did not hold, in words
};

// The limit for a Program that stores its parameters in `type`: 1e-9, 1e-5, 2e-2 for fp64, fp32 and
// 16-bit types. For fp8 1e-5: all else is held in 64 bits then, but a shard's own scale differs
// from the whole tensor's for numbers that vanish beside its largest.
double check_limit(DataType type);
// The type of a Program's parameters; fp8 where its products read 8 or 4 bits.
DataType parameter_type(const Program& program);

// Both numbers and order. REQUIRES: both finished, with equally many steps.
CheckReport check_execution(const Program& program, const ExecutionResult& executed,
                            const ExecutionResult& reference);

// The numbers alone.
CheckReport check_against(const ExecutionResult& executed, const ExecutionResult& reference,
                          DataType type);

}  // namespace headway
