// From a rank's buffers to the model's tensors and back: which elements of which global tensor a
// local buffer holds, and the tensors put together again from all ranks' shards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/program/lifetime.hpp"
#include "sim/program/program.hpp"

namespace headway {

// A run of elements of one global tensor inside a local buffer, in row-major order on both sides.
struct Fragment {
  std::string tensor;                  // "layers.7.attention.query"
  std::int64_t rows = 0, columns = 0;  // of the global tensor
  std::int64_t local = 0, global = 0;  // first elements
  std::int64_t count = 0;
};

// The fragments of a buffer with parts or mirrors on `rank`, by local position. What lies between
// them is padding. Empty for other buffers.
std::vector<Fragment> fragments(const Program& program, int rank, const BufferInstance& buffer);

struct GlobalTensor {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;
  std::vector<bool> known;
  double disagreement = 0;  // the largest difference between two ranks' copies of an element
};

// The tensors of a model (or their gradients) as assembled from ranks, by name.
class GlobalTensors {
 public:
  void add(const std::vector<Fragment>& held, const std::vector<double>& values);
  const std::map<std::string, GlobalTensor>& tensors() const { return tensors_; }
  // Root of the sum of all squares.
  double norm() const;

 private:
  std::map<std::string, GlobalTensor> tensors_;
};

}  // namespace headway
