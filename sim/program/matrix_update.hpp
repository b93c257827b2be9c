// Optimizers that look at whole matrices. Muon (Jordan et al. 2024; Liu et al., arXiv 2502.16982):
// the momentum of a layer's matrix is made nearly orthogonal by five Newton-Schulz iterations,
// matrix products in the parameters' type, and is the direction of its step; all other tensors take
// AdamW's. Adafactor (Shazeer and Stern, arXiv 1804.04235): the second moments of a matrix are the
// product of one moment a row and one a column. A matrix that is split over tensor-parallel ranks
// is gathered before, on each of them, and each takes its part of the direction. Each matrix has a
// template of its own, applied to every layer.
//
// Limitations: both hold the whole state on every data-parallel rank. A rank's packed matrices
// (query, key and value; gate and up) are one matrix each, as in Megatron-LM without
// --muon-split-qkv.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/program/bucket.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

// Whether the plan's optimizer updates this parameter as a matrix, alone.
bool updated_as_matrix(const ProgramBuilder& builder, ParameterId parameter);

class MatrixUpdate {
 public:
  // `tensors`: those of one pipeline rank that are updated as matrices; its name, for templates.
  MatrixUpdate(ProgramBuilder& builder, const std::string& rank, std::vector<Tensor> tensors);

  std::vector<BufferRef> gradients() const;
  std::int64_t elements() const;
  // Masters and moments, which live throughout.
  const std::vector<BufferRef>& persistent() const { return persistent_; }
  // The update of every tensor, behind the whole norm and its clipping.
  std::vector<Step> steps();

 private:
  // Families and shape of one parameter's update, the same for all its layers.
  struct State {
    ParameterId parameter = kNoParameter;
    std::string name;
    int master = -1;                            // the parameter itself where it is its own master
    int momentum = -1;                          // Muon
    int row_moments = -1, column_moments = -1;  // Adafactor
    std::int64_t rows = 0, columns = 0;  // of the whole matrix, on a rank: of all its experts
    std::int64_t blocks = 1;             // experts
    int dimension = -1;                  // along which ranks split it; -1: they do not
  };
  std::size_t place_of(ParameterId parameter) const;
  State make_state(ParameterId id);
  int family(const State& state, const char* name, DataType type, std::int64_t rows,
             std::int64_t columns, BufferCategory category, InitialValue initial);
  int scratch(const State& state, const char* name, std::int64_t rows, std::int64_t columns);
  int own_part(const State& state, const char* name, DataType type);
  int make_template(const State& state);
  // Return the family that holds this rank's part of the direction.
  int muon_direction(OperationList& list, const State& state);
  int adafactor_direction(OperationList& list, const State& state);
  // Returns the family that holds the result: `matrix`.
  int orthogonal(OperationList& list, const State& state, int matrix);
  Kernel kernel(KernelKind kind, std::int64_t rows, std::int64_t columns, DataType type,
                DataType output) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  std::string rank_;
  std::vector<Tensor> tensors_;
  std::vector<State> states_;
  std::vector<BufferRef> persistent_;
};

}  // namespace headway
