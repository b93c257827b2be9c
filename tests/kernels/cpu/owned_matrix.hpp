// A small matrix that owns its memory, for tests of operators; and the finite-difference judge of a
// backward pass.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/operators.hpp"

namespace headway {

class OwnedMatrix {
 public:
  OwnedMatrix(std::int64_t rows, std::int64_t columns, DataType type = DataType::kFp64)
      : type_(type),
        rows_(rows),
        columns_(columns),
        memory_((static_cast<std::size_t>(rows * columns) * held_size(type) + 7) / 8) {}

  static OwnedMatrix random(std::int64_t rows, std::int64_t columns, std::mt19937_64& engine,
                            double deviation = 1.0, DataType type = DataType::kFp64) {
    OwnedMatrix tensor(rows, columns, type);
    std::normal_distribution<double> normal(0.0, deviation);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, normal(engine));
    return tensor;
  }
  static OwnedMatrix tokens(std::int64_t rows, std::int64_t vocabulary, std::mt19937_64& engine) {
    OwnedMatrix tensor(rows, 1, DataType::kInt64);
    for (std::int64_t i = 0; i < rows; ++i) {
      tensor.set(i, static_cast<double>(engine() % static_cast<std::uint64_t>(vocabulary)));
    }
    return tensor;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t elements() const { return rows_ * columns_; }
  Operand operand() const { return {type_, rows_, columns_, const_cast<double*>(memory_.data())}; }
  double at(std::int64_t i) const {
    double value = 0;
    load(operand(), i, 1, &value);
    return value;
  }
  double at(std::int64_t row, std::int64_t column) const { return at(row * columns_ + column); }
  void set(std::int64_t i, double value) { store(operand(), i, 1, &value); }
  void fill(double value) {
    for (std::int64_t i = 0; i < elements(); ++i) set(i, value);
  }

 private:
  DataType type_;
  std::int64_t rows_, columns_;
  std::vector<double> memory_;
};

inline void run(const Operation& operation, const std::vector<const OwnedMatrix*>& reads,
                const std::vector<const OwnedMatrix*>& writes, const Placement& placement = {}) {
  std::vector<Operand> inputs, outputs;
  for (const OwnedMatrix* tensor : reads) inputs.push_back(tensor->operand());
  for (const OwnedMatrix* tensor : writes) outputs.push_back(tensor->operand());
  compute(operation, inputs, outputs, placement);
}

// The largest difference between `gradient` and the central difference of `loss` in `x`, over the
// largest difference quotient. `loss` reads x.
inline double gradient_error(OwnedMatrix& x, const OwnedMatrix& gradient,
                             const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  double worst = 0, largest = 1e-12;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double value = x.at(i);
    x.set(i, value + kStep);
    const double above = loss();
    x.set(i, value - kStep);
    const double below = loss();
    x.set(i, value);
    const double quotient = (above - below) / (2 * kStep);
    worst = std::max(worst, std::fabs(quotient - gradient.at(i)));
    largest = std::max(largest, std::fabs(quotient));
  }
  return worst / largest;
}

inline double dot(const OwnedMatrix& a, const OwnedMatrix& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}

}  // namespace headway
