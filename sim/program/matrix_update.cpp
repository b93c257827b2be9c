#include "sim/program/matrix_update.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace headway {

namespace {

// Jordan et al. 2024, zeropower_via_newtonschulz5: X becomes a X + (b A + c A A) X, with A = X X^T.
constexpr int kIterations = 5;
constexpr std::array<double, 3> kCoefficients = {3.4445, -4.7750, 2.0315};
// arXiv 2502.16982, section 2.2: so the root mean square of an update is about that of AdamW's.
constexpr double kUpdateSize = 0.2;

}  // namespace

bool updated_as_matrix(const ProgramBuilder& builder, ParameterId parameter) {
  const std::string& optimizer = builder.job().plan.optimizer;
  if (optimizer != "muon") return optimizer == "adafactor";
  const Parameter& one = builder.parameter(parameter);
  const std::string& name = builder.family(one.family).name;
  return one.columns > 1 && !name.starts_with("embedding") && !name.starts_with("head");
}

MatrixUpdate::MatrixUpdate(ProgramBuilder& builder, const std::string& rank,
                           std::vector<Tensor> tensors)
    : builder_(builder), shape_(builder.shape()), rank_(rank), tensors_(std::move(tensors)) {
  for (const Tensor& tensor : tensors_) {
    if (place_of(tensor.parameter) == states_.size())
      states_.push_back(make_state(tensor.parameter));
    const State& state = states_[place_of(tensor.parameter)];
    for (const int family :
         {state.master, state.momentum, state.row_moments, state.column_moments}) {
      if (family >= 0) persistent_.push_back({family, tensor.layer});
    }
  }
}

// Among the states; their number where it has none yet.
std::size_t MatrixUpdate::place_of(ParameterId parameter) const {
  const auto found = std::find_if(states_.begin(), states_.end(),
                                  [&](const State& state) { return state.parameter == parameter; });
  return static_cast<std::size_t>(found - states_.begin());
}

std::vector<BufferRef> MatrixUpdate::gradients() const { return gradients_of(builder_, tensors_); }

std::int64_t MatrixUpdate::elements() const {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors_) sum += builder_.parameter(tensor.parameter).elements();
  return sum;
}

// -- Buffers
// ----------------------------------------------------------------------------------------

// Of a parameter, the same for every pipeline rank.
int MatrixUpdate::family(const State& state, const char* name, DataType type, std::int64_t rows,
                         std::int64_t columns, BufferCategory category, InitialValue initial) {
  const BufferFamily& parameter = builder_.family(builder_.parameter(state.parameter).family);
  BufferFamily made;
  made.name = std::string(name) + "." + parameter.name;
  made.category = category;
  made.type = type;
  made.rows = rows;
  made.columns = columns;
  made.initial = initial;
  made.per_layer = parameter.per_layer && category == BufferCategory::kOptimizer;
  if (initial == InitialValue::kMirror) {
    made.mirrors = {{builder_.parameter(state.parameter).family}};
  }
  return builder_.named_buffer(made);
}

int MatrixUpdate::scratch(const State& state, const char* name, std::int64_t rows,
                          std::int64_t columns) {
  return family(state, name, shape_.storage, rows, columns, BufferCategory::kCommunication,
                InitialValue::kUndefined);
}

// This rank's rows or columns of a matrix.
int MatrixUpdate::own_part(const State& state, const char* name, DataType type) {
  const Parameter& parameter = builder_.parameter(state.parameter);
  const int made = family(state, name, type, parameter.rows, parameter.columns,
                          BufferCategory::kCommunication, InitialValue::kUndefined);
  BufferFamily& part = builder_.program().buffers[static_cast<std::size_t>(made)];
  if (state.dimension == 0) part.row_group = builder_.tensor_group();
  if (state.dimension == 1) part.column_group = builder_.tensor_group();
  return made;
}

MatrixUpdate::State MatrixUpdate::make_state(ParameterId id) {
  const Parameter& parameter = builder_.parameter(id);
  const BufferFamily& held = builder_.family(parameter.family);
  State state;
  state.parameter = id;
  state.name = held.name;
  state.rows = parameter.rows;
  state.columns = parameter.columns;
  if (parameter.expert) {
    state.blocks = shape_.experts;
  } else if (held.parts.front().sharded_dimension >= 0) {
    state.dimension = held.parts.front().sharded_dimension;
    (state.dimension == 0 ? state.rows : state.columns) *= shape_.tp;
  }
  const auto keep = [&](const char* name, DataType type, std::int64_t rows, std::int64_t columns,
                        InitialValue initial) {
    return family(state, name, type, rows, columns, BufferCategory::kOptimizer, initial);
  };
  if (shape_.masters) {
    state.master =
        keep("master", DataType::kFp32, parameter.rows, parameter.columns, InitialValue::kMirror);
  }
  if (builder_.job().plan.optimizer == "muon") {
    state.momentum =
        keep("momentum", shape_.moment, parameter.rows, parameter.columns, InitialValue::kZero);
    return state;
  }
  state.row_moments = keep("row_moments", shape_.moment, state.rows, 1, InitialValue::kZero);
  if (state.columns > 1) {
    state.column_moments =
        keep("column_moments", shape_.moment, state.blocks, state.columns, InitialValue::kZero);
  }
  return state;
}

// -- Operations
// -------------------------------------------------------------------------------------

Kernel MatrixUpdate::kernel(KernelKind kind, std::int64_t rows, std::int64_t columns, DataType type,
                            DataType output) const {
  Kernel result;
  result.kind = kind;
  result.rows = rows;
  result.columns = columns;
  result.type = type;
  result.output = output;
  return result;
}

std::vector<Step> MatrixUpdate::steps() {
  std::vector<int> templates;
  for (const State& state : states_) templates.push_back(make_template(state));
  std::vector<Step> result;
  for (const Tensor& tensor : tensors_) {
    result.push_back({templates[place_of(tensor.parameter)], tensor.layer});
  }
  return result;
}

int MatrixUpdate::make_template(const State& state) {
  const Parameter& parameter = builder_.parameter(state.parameter);
  const DataType type = shape_.masters ? DataType::kFp32 : shape_.storage;
  OperationList list("update." + rank_ + "." + state.name);
  const bool muon = builder_.job().plan.optimizer == "muon";
  const int direction = muon ? muon_direction(list, state) : adafactor_direction(list, state);
  Kernel step = kernel(KernelKind::kDecayedStep, parameter.rows, parameter.columns, type, type);
  if (muon) {
    const std::int64_t longest = std::max(state.rows / state.blocks, state.columns);
    step.scale = kUpdateSize * std::sqrt(static_cast<double>(longest));
  }
  const BufferRef master{state.master >= 0 ? state.master : parameter.family};
  list.add("step", step, {master, {direction}}, {master}, Cause::kOptimizer);
  if (state.master >= 0) {
    list.add("cast",
             kernel(KernelKind::kCastParameters, parameter.rows, parameter.columns, DataType::kFp32,
                    builder_.parameter_type(state.parameter)),
             {master}, {{parameter.family}}, Cause::kOptimizer);
  }
  return builder_.add_template(list);
}

int MatrixUpdate::adafactor_direction(OperationList& list, const State& state) {
  const Parameter& parameter = builder_.parameter(state.parameter);
  const int direction = own_part(state, "direction", shape_.moment);
  std::vector<BufferRef> moments = {{state.row_moments}};
  if (state.column_moments >= 0) moments.push_back({state.column_moments});
  std::vector<BufferRef> reads = {{parameter.gradient}};
  reads.insert(reads.end(), moments.begin(), moments.end());
  moments.push_back({direction});
  list.add("direction",
           kernel(KernelKind::kFactoredDirection, parameter.rows, parameter.columns,
                  shape_.gradient, shape_.moment),
           std::move(reads), std::move(moments), Cause::kOptimizer);
  return direction;
}

int MatrixUpdate::muon_direction(OperationList& list, const State& state) {
  const Parameter& parameter = builder_.parameter(state.parameter);
  const int own = own_part(state, "direction", shape_.storage);
  list.add("momentum",
           kernel(KernelKind::kMomentum, parameter.rows, parameter.columns, shape_.gradient,
                  shape_.storage),
           {{parameter.gradient}, {state.momentum}}, {{state.momentum}, {own}}, Cause::kOptimizer);
  if (state.dimension < 0) return orthogonal(list, state, own);
  const int whole = scratch(state, "whole_direction", state.rows, state.columns);
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = state.rows * state.columns;
  gather.type = shape_.storage;
  list.add("gather", gather, {{own}}, {{whole}}, Cause::kOptimizer);
  list.last().group = builder_.tensor_group();
  const int orthogonalised = orthogonal(list, state, whole);
  list.add("take_own",
           kernel(KernelKind::kSplitSequence, parameter.rows, parameter.columns, shape_.storage,
                  shape_.storage),
           {{orthogonalised}}, {{own}}, Cause::kOptimizer);
  return own;
}

// Of each of the blocks. The smaller of the two square products; a wide X is multiplied from the
// left, a tall one from the right. Two buffers are written in turn.
int MatrixUpdate::orthogonal(OperationList& list, const State& state, int matrix) {
  const std::int64_t rows = state.rows / state.blocks, columns = state.columns;
  const bool wide = rows <= columns;
  const std::int64_t side = std::min(rows, columns);
  const DataType wide_type = DataType::kFp64;
  const int total = family(state, "squared_norms", wide_type, state.blocks, 1,
                           BufferCategory::kCommunication, InitialValue::kUndefined);
  const int square = scratch(state, "square", state.blocks * side, side);
  const int fourth = scratch(state, "fourth", state.blocks * side, side);
  const int moved = scratch(state, "moved", state.rows, columns);
  const auto elementwise = [&](const char* name, int number, KernelKind kind, std::int64_t of_rows,
                               std::int64_t of_columns, std::vector<BufferRef> reads,
                               std::vector<BufferRef> writes, double scale, double other) {
    Kernel one = kernel(kind, of_rows, of_columns, shape_.storage, shape_.storage);
    one.scale = scale;
    one.other_scale = other;
    list.add(name + std::to_string(number), one, std::move(reads), std::move(writes),
             Cause::kOptimizer);
  };
  const auto multiply = [&](const char* name, int number, GemmRole role, std::int64_t m,
                            std::int64_t n, std::int64_t k, int a, int b, int result) {
    Gemm gemm;
    gemm.role = role;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.batch = state.blocks;
    gemm.type = gemm.output = shape_.storage;
    list.add(name + std::to_string(number), gemm, {{a}, {b}}, {{result}}, Cause::kOptimizer);
  };
  list.add("norm.zero", kernel(KernelKind::kZero, state.blocks, 1, wide_type, wide_type), {},
           {{total}}, Cause::kOptimizer);
  list.add("norm", kernel(KernelKind::kSquaredNorm, state.rows, columns, shape_.storage, wide_type),
           {{matrix}, {total}}, {{total}}, Cause::kOptimizer);
  list.add("normalise",
           kernel(KernelKind::kNormalise, state.rows, columns, shape_.storage, shape_.storage),
           {{matrix}, {total}}, {{matrix}}, Cause::kOptimizer);
  for (int i = 0; i < kIterations; ++i) {
    if (wide) {
      multiply("square", i, GemmRole::kForward, rows, rows, columns, matrix, matrix, square);
    } else {
      multiply("square", i, GemmRole::kWeightGradient, rows, columns, columns, matrix, matrix,
               square);
    }
    multiply("fourth", i, GemmRole::kForward, side, side, side, square, square, fourth);
    elementwise("polynomial", i, KernelKind::kWeightedSum, state.blocks * side, side,
                {{square}, {fourth}}, {{fourth}}, kCoefficients[1], kCoefficients[2]);
    if (wide) {
      multiply("move", i, GemmRole::kInputGradient, rows, rows, columns, fourth, matrix, moved);
    } else {
      multiply("move", i, GemmRole::kForward, rows, columns, columns, matrix, fourth, moved);
    }
    elementwise("sum", i, KernelKind::kWeightedSum, state.rows, columns, {{matrix}, {moved}},
                {{matrix}}, kCoefficients[0], 1);
  }
  return matrix;
}

}  // namespace headway
