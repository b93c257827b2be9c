// Reverse-mode differentiation of scalar programs: numbers that remember how they came to be. Slow
// and plain on purpose: it judges kernels and lowering, with which it shares nothing.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace headway {

class Tape {
 public:
  struct Node {
    std::size_t left = 0, right = 0;
    double left_slope = 0, right_slope = 0;
  };

  std::size_t add(Node node) {
    nodes_.push_back(node);
    return nodes_.size() - 1;
  }

  // The derivative of the number `of` in every number so far.
  std::vector<double> gradients(std::size_t of) const {
    std::vector<double> slopes(nodes_.size());
    slopes[of] = 1;
    for (std::size_t i = of + 1; i-- > 0;) {
      slopes[nodes_[i].left] += i == nodes_[i].left ? 0 : slopes[i] * nodes_[i].left_slope;
      slopes[nodes_[i].right] += i == nodes_[i].right ? 0 : slopes[i] * nodes_[i].right_slope;
    }
    return slopes;
  }
  std::size_t size() const { return nodes_.size(); }

 private:
  std::vector<Node> nodes_;
};

// A number on a tape.
class Taped {
 public:
  Taped(Tape& tape, double value) : tape_(&tape), value_(value), index_(tape.size()) {
    tape.add({index_, index_, 0, 0});
  }

  double value() const { return value_; }
  std::size_t index() const { return index_; }

  friend Taped operator+(Taped a, Taped b) { return made(a, b, a.value_ + b.value_, 1, 1); }
  friend Taped operator-(Taped a, Taped b) { return made(a, b, a.value_ - b.value_, 1, -1); }
  friend Taped operator*(Taped a, Taped b) {
    return made(a, b, a.value_ * b.value_, b.value_, a.value_);
  }
  friend Taped operator/(Taped a, Taped b) {
    return made(a, b, a.value_ / b.value_, 1 / b.value_, -a.value_ / (b.value_ * b.value_));
  }
  friend Taped operator*(Taped a, double b) { return made(a, a, a.value_ * b, b, 0); }
  friend Taped operator+(Taped a, double b) { return made(a, a, a.value_ + b, 1, 0); }
  friend Taped exp(Taped a) {
    const double value = std::exp(a.value_);
    return made(a, a, value, value, 0);
  }
  friend Taped log(Taped a) { return made(a, a, std::log(a.value_), 1 / a.value_, 0); }
  friend Taped sqrt(Taped a) {
    const double value = std::sqrt(a.value_);
    return made(a, a, value, 0.5 / value, 0);
  }
  friend Taped tanh(Taped a) {
    const double value = std::tanh(a.value_);
    return made(a, a, value, 1 - value * value, 0);
  }

 private:
  Taped(Tape* tape, double value, std::size_t index) : tape_(tape), value_(value), index_(index) {}

  static Taped made(Taped a, Taped b, double value, double left_slope, double right_slope) {
    return {a.tape_, value, a.tape_->add({a.index_, b.index_, left_slope, right_slope})};
  }

  Tape* tape_;
  double value_;
  std::size_t index_;
};

}  // namespace headway
