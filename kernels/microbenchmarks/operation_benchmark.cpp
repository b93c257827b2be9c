#include "kernels/microbenchmarks/operation_benchmark.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/microbenchmarks/sampling.hpp"
#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

constexpr std::int64_t kRotatedBytes = 96 << 20;  // three times a core complex's last-level cache
constexpr int kMostCopies = 64;
// What is shorter than this is run several times for one sample.
constexpr double kShortestSample_s = 20e-6;

std::int64_t bytes_of(const OperandShape& shape) {
  return shape.rows * shape.columns * static_cast<std::int64_t>(held_size(shape.type));
}

// The operands of one call.
class OperandSet {
 public:
  OperandSet(const OperationBenchmark& of, std::uint64_t seed) {
    for (const OperandShape& shape : of.reads) reads.push_back(make(shape, of, seed));
    for (const OperandShape& shape : of.writes) writes.push_back(make(shape, of, seed));
  }

  std::vector<Operand> reads, writes;

 private:
  Operand make(const OperandShape& shape, const OperationBenchmark& of, std::uint64_t seed) {
    if (shape.same_as >= 0) {
      const auto which = static_cast<std::size_t>(shape.same_as);
      return which < reads.size() ? reads[which] : writes[which - reads.size()];
    }
    const auto words = static_cast<std::size_t>((bytes_of(shape) + 7) / 8);
    Operand operand{shape.type, shape.rows, shape.columns,
                    memory_.emplace_back(std::make_unique<std::uint64_t[]>(words)).get()};
    if (shape.type == DataType::kInt64) {
      fill_tokens(operand, of.placement.vocabulary);
    } else if (shape.type != DataType::kBool) {
      fill_normal(operand, seed);
    }
    return operand;
  }

  static void fill_tokens(const Operand& operand, std::int64_t vocabulary) {
    auto* tokens = static_cast<std::int64_t*>(operand.data);
    constexpr std::int64_t kStride = 7919;  // a prime: neighbours look up distant rows
    for (std::int64_t i = 0; i < operand.elements(); ++i) {
      tokens[i] = i * kStride % std::max<std::int64_t>(vocabulary, 1);
    }
  }
  static void fill_normal(const Operand& operand, std::uint64_t seed) {
    const CounterRandom random(seed, "operand");
    constexpr std::int64_t kDrawn = 4096;  // then again from the first
    std::vector<double> drawn(static_cast<std::size_t>(std::min(kDrawn, operand.elements())));
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = 0.1 * random.normal(i) + 0.5;
    for (std::int64_t first = 0; first < operand.elements(); first += kDrawn) {
      store(operand, first, std::min(kDrawn, operand.elements() - first), drawn.data());
    }
  }

  std::vector<std::unique_ptr<std::uint64_t[]>> memory_;
};

void measure(benchmark::State& state, const OperationBenchmark& of) {
  std::int64_t bytes = 1;
  for (const auto* list : {&of.reads, &of.writes}) {
    for (const OperandShape& shape : *list) bytes += shape.same_as < 0 ? bytes_of(shape) : 0;
  }
  const auto copies =
      static_cast<int>(std::clamp<std::int64_t>(kRotatedBytes / bytes, 2, kMostCopies));
  std::vector<OperandSet> sets;
  for (int copy = 0; copy < copies; ++copy) {
    sets.emplace_back(of, static_cast<std::uint64_t>(copy));
  }
  std::size_t next = 0;
  const auto call = [&] {
    const OperandSet& set = sets[next++ % sets.size()];
    compute(of.operation, set.reads, set.writes, of.placement);
  };
  const double first = timed(call);
  const int calls = std::max(1, static_cast<int>(kShortestSample_s / std::max(first, 1e-9)));
  report_samples(state, [&] {
    return timed([&] {
             for (int i = 0; i < calls; ++i) call();
           }) /
           calls;
  });
}

}  // namespace

void add(OperationBenchmark of) {
  const std::string name = of.name;
  benchmark::RegisterBenchmark(
      name.c_str(), [made = std::move(of)](benchmark::State& state) { measure(state, made); })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace headway
