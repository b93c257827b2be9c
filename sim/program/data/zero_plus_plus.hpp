// ZeRO++ (Wang et al., arXiv 2306.10209): stage 3 of ZeRO with less to send between nodes.
// Parameters are gathered for the forward pass as 8-bit integers (qwZ); each node keeps them shared
// out among its own ranks for the backward pass, which gathers there (hpZ); gradients travel as
// 4-bit integers, first among the ranks of a node, then, summed, among nodes (qgZ). A scale belongs
// to a block of the flat unit, and shares are whole blocks, so a reference run on one rank can
// round the same numbers the same way.
//
// Limitations: the scales, a 32-bit number for each block, ride along uncounted (0.2 % of what
// travels in 8 bits, 0.4 % in 4).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/data/rule.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

// DeepSpeed looks for groups below 8,000 elements and names 4 thousand as the best
// (partition_parameters.py, CUDAQuantizer); its kernels halve them where a share is short.
inline constexpr std::int64_t kRoundingBlock = 2048;

// The flat unit that the operations work on.
struct RoundedUnit {
  std::string name;
  bool per_layer = false;
  std::vector<BufferRef> parameters, gradients;  // relative to the layer
  DataType type = DataType::kBf16;               // of the parameters
  std::int64_t share = 0;                        // elements, whole blocks
  int parameter = -1;                            // the share
};

class ZeroPlusPlus {
 public:
  explicit ZeroPlusPlus(ProgramBuilder& builder);

  // Whether this is the reference run of such a plan, on one rank.
  bool is_reference() const { return builder_.job().plan.rounded_ranks > 0; }

  // Adds the gather of the parameters for a forward pass, and, but for a reference run, of a
  // backward pass, which needs the one before it.
  void gather_forward(OperationList& list, const RoundedUnit& unit);
  void gather_backward(OperationList& list, const RoundedUnit& unit);

  // Adds the reduction of a micro-batch's gradients into `target`. The first operation waits for
  // them.
  void reduce(OperationList& list, const RoundedUnit& unit, BufferRef target);
  // Of a reference run: adds what the micro-batch of the rank at `position` brings; `target` is
  // complete behind that of the last one.
  void add_up(OperationList& list, const RoundedUnit& unit, BufferRef target,
              std::int64_t position);

 private:
  // A family of the unit, found again by its name.
  BufferRef buffer(const std::string& what, const RoundedUnit& unit, DataType type,
                   std::int64_t rows, std::int64_t columns, int row_group = -1);
  void kernel(OperationList& list, const std::string& what, const RoundedUnit& unit,
              KernelKind kind, std::int64_t rows, std::int64_t columns, DataType type,
              DataType output, std::vector<BufferRef> from, std::vector<BufferRef> to);
  void collective(OperationList& list, const std::string& what, const RoundedUnit& unit,
                  CollectiveKind kind, std::int64_t elements, DataType type, int group,
                  std::vector<BufferRef> from, std::vector<BufferRef> to);
  int stream();
  int node_group();

  ProgramBuilder& builder_;
  std::int64_t ranks_ = 1, neighbours_ = 1, nodes_ = 1;
};

}  // namespace headway
