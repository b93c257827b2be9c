// One operation of a Program, alone on one core, as the CPU executor runs it. Its operands rotate
// through more memory than the caches hold, because in a step everything else has passed since
// they were last used.
#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/operators.hpp"

namespace headway {

// An operand to be made: a number in `same_as` stands for an earlier one, of the reads and then the
// writes, that it shares its memory with (updated in place); -1: its own.
struct OperandShape {
  DataType type = DataType::kFp32;
  std::int64_t rows = 0, columns = 0;
  int same_as = -1;
};

struct OperationBenchmark {
  std::string name;  // "gemm/forward/fp32/128/256/256"
  Operation operation;
  std::vector<OperandShape> reads, writes;
  Placement placement;
};

// Registers it with Google Benchmark.
void add(OperationBenchmark benchmark);

}  // namespace headway
