// How an operator takes its operands: by position, with their shapes checked, so that a Program
// that names the wrong buffer is refused by name instead of corrupting memory.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "kernels/cpu/operand.hpp"

namespace headway {

class OperandsOf {
 public:
  OperandsOf(std::string operation, std::span<const Operand> reads, std::span<const Operand> writes)
      : operation_(std::move(operation)), reads_(reads), writes_(writes) {}

  std::size_t reads() const { return reads_.size(); }
  std::size_t writes() const { return writes_.size(); }

  // The i-th operand. Throws where there are fewer, or where it does not have `elements` elements.
  const Operand& read(std::size_t i, std::int64_t elements) const {
    return checked(reads_, i, elements, "reads");
  }
  const Operand& write(std::size_t i, std::int64_t elements) const {
    return checked(writes_, i, elements, "writes");
  }
  const Operand& read(std::size_t i) const { return at(reads_, i, "reads"); }
  const Operand& write(std::size_t i) const { return at(writes_, i, "writes"); }

  // Buffers [first, first + count) of the reads or the writes, which stand for one flat operand.
  std::span<const Operand> read_group(std::size_t first, std::size_t count) const {
    if (first + count > reads_.size()) refuse("reads too few buffers");
    return reads_.subspan(first, count);
  }
  std::span<const Operand> write_group(std::size_t first, std::size_t count) const {
    if (first + count > writes_.size()) refuse("writes too few buffers");
    return writes_.subspan(first, count);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(operation_ + ": " + why);
  }

 private:
  const Operand& at(std::span<const Operand> list, std::size_t i, const char* kind) const {
    if (i >= list.size()) {
      refuse(std::string(kind) + " " + std::to_string(list.size()) + " buffers; operand " +
             std::to_string(i) + " is missing");
    }
    return list[i];
  }
  const Operand& checked(std::span<const Operand> list, std::size_t i, std::int64_t elements,
                         const char* kind) const {
    const Operand& operand = at(list, i, kind);
    if (operand.elements() != elements) {
      refuse(std::string("operand ") + std::to_string(i) + " it " + kind + " has " +
             std::to_string(operand.rows) + " x " + std::to_string(operand.columns) +
             " elements; expected " + std::to_string(elements));
    }
    return operand;
  }

  std::string operation_;
  std::span<const Operand> reads_, writes_;
};

}  // namespace headway
