// Traces of the PyTorch profiler (torch.profiler, Kineto's Chrome format) as measured points: what
// each matrix multiplication and each collective of a training step took. Recorded with
// record_shapes=True; shapes belong to operators, times to the kernels they launched, and
// "External id" ties the two.
#pragma once

#include <string>
#include <string_view>

#include "sim/core/error.hpp"
#include "sim/cost/points.hpp"

namespace headway {

// Whether a text is such a trace.
bool is_pytorch_trace(std::string_view text);

struct PyTorchTracePoints {
  int multiplications = 0, collectives = 0;  // rows added
  int without_shape = 0;  // kernels of multiplications whose shapes are not there
};
// Adds the median time of each shape seen, in-framework. The layout, and so the direction, follows
// from the operands' strides (a transposed second operand is a forward multiplication, a
// transposed first one a weight gradient); without strides it is forward. Collectives are those of
// kernels that state their group; a group inside one server of 8 has the network "none(intra)".
PyTorchTracePoints read_pytorch_trace(std::string_view text, const std::string& file, PointSet& set,
                                      Problems& problems);

}  // namespace headway
