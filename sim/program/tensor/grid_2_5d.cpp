#include "sim/program/tensor/grid_2_5d.hpp"

namespace headway::grid_2_5d {

ParameterId matrix(ProgramBuilder& builder, const std::string& name,
                   const std::vector<ProgramBuilder::PartShape>& parts) {
  return builder.square_matrix(name, parts, kTensorDepthAxis);
}

}  // namespace headway::grid_2_5d
