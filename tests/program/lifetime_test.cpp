#include "sim/program/lifetime.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/program/tiny_program.hpp"

namespace headway {
namespace {

// "hidden1.0": layer 1, micro-batch 0.
std::string text(const Program& program, const BufferInstance& buffer) {
  const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
  std::string result = family.name;
  if (family.per_layer) result += std::to_string(buffer.layer);
  if (family.per_micro_batch) result += "." + std::to_string(buffer.micro_batch);
  return result;
}

// One line per operation that allocates or frees: "2/0/0 +gradient.0 -hidden2.0".
std::string text(const Program& program, const Lifetimes& lifetimes) {
  std::map<IssuePosition, std::string> lines;
  for (const auto& [at, buffer] : lifetimes.allocations) lines[at] += " +" + text(program, buffer);
  for (const auto& [at, buffer] : lifetimes.frees) lines[at] += " -" + text(program, buffer);
  std::ostringstream out;
  for (const auto& [at, line] : lines) {
    out << at.issue << '/' << at.step << '/' << at.operation << line << '\n';
  }
  return out.str();
}

TEST(Lifetimes, OfTwoLayersAreThoseOneReadsOffTheProgram) {
  const Program program = tiny::two_layers_on_one_rank();
  const Lifetimes result = lifetimes(program, program.kinds[0]);
  EXPECT_EQ(text(program, result),
            "0/0/0 +hidden0.0\n"
            "0/1/0 +scratch\n"
            "0/1/1 +hidden1.0 -scratch\n"
            "0/2/0 +scratch\n"
            "0/2/1 +hidden2.0 -scratch\n"
            "1/0/0 +hidden0.1\n"
            "1/1/0 +scratch\n"
            "1/1/1 +hidden1.1 -scratch\n"
            "1/2/0 +scratch\n"
            "1/2/1 +hidden2.1 -scratch\n"
            "2/0/0 +gradient.0 -hidden2.0\n"
            "2/1/0 -hidden1.0\n"
            "2/2/0 -hidden0.0 -gradient.0\n"
            "3/0/0 +gradient.1 -hidden2.1\n"
            "3/1/0 -hidden1.1\n"
            "3/2/0 -hidden0.1 -gradient.1\n");
  ASSERT_EQ(result.persistent.size(), 2U);
  EXPECT_EQ(text(program, result.persistent[1]), "weight1");
}

TEST(MemoryUse, OfTwoLayersPeaksWhereTheFirstGradientJoinsAllActivations) {
  // Weights 2 x 100; after the second forward 6 hidden of 10; the loss adds a gradient of 7.
  const Program program = tiny::two_layers_on_one_rank();
  const MemoryUse use = memory_use(program, program.kinds[0], true);
  EXPECT_EQ(use.peak.count, 267);
  EXPECT_EQ(use.peak_at, (IssuePosition{2, 0, 0}));
  EXPECT_EQ(use.at_peak[static_cast<std::size_t>(BufferCategory::kParameter)].count, 200);
  EXPECT_EQ(use.at_peak[static_cast<std::size_t>(BufferCategory::kActivation)].count, 67);
  EXPECT_EQ(total(use.persistent).count, 200);
  EXPECT_EQ(use.during_issue, (std::vector<Bytes>{{233}, {263}, {267}, {237}}));
  EXPECT_EQ(use.after_issue, (std::vector<Bytes>{{230}, {260}, {230}, {200}}));
  EXPECT_EQ(use.rounded_peak.count, (2 + 7) * 512);
}

TEST(MemoryUse, OfAKindWithoutIssuesIsWhatPersists) {
  Program program = tiny::two_layers_on_one_rank();
  program.kinds[0].order.clear();
  const MemoryUse use = memory_use(program, program.kinds[0]);
  EXPECT_EQ(use.peak.count, 200);
  EXPECT_EQ(use.peak_at.issue, -1);
}

TEST(Lifetimes, ABufferWithAnInitialValueLivesFromItsFirstUse) {
  Program program = tiny::two_layers_on_one_rank();
  program.buffers[tiny::kHidden].initial = InitialValue::kZero;
  program.kinds[0].passes[0].steps = {{tiny::kLayer, 0}};
  program.kinds[0].passes[1].steps = {{tiny::kLoss, 1}};
  program.kinds[0].order = {{0, 0}, {1, 0}};
  check(program, "program");
  EXPECT_EQ(text(program, lifetimes(program, program.kinds[0])),
            "0/0/0 +hidden0.0 +scratch -hidden0.0\n"
            "0/0/1 +hidden1.0 -scratch\n"
            "1/0/0 +gradient.0 -hidden1.0 -gradient.0\n");
}

// What lifetimes() adds up to, operation by operation.
struct Sums {
  std::int64_t peak = 0, rounded_peak = 0;
  IssuePosition peak_at;
  BytesByCategory at_peak{};
  std::vector<Bytes> during_issue, after_issue;
};

Sums add_up(const Program& program, const RankKind& kind) {
  const Lifetimes events = lifetimes(program, kind);
  Sums sums;
  BytesByCategory live{};
  std::int64_t rounded = 0;
  const auto add = [&](const BufferInstance& buffer, int sign) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(buffer.family)];
    live[static_cast<std::size_t>(family.category)] += sign * family.size();
    rounded += sign * rounded_block(family.size()).count;
  };
  for (const BufferInstance& buffer : events.persistent) add(buffer, 1);
  sums.peak = total(live).count;
  sums.at_peak = live;
  sums.rounded_peak = rounded;
  auto allocation = events.allocations.begin();
  auto free = events.frees.begin();
  for (int i = 0; i < static_cast<int>(kind.order.size()); ++i) {
    Bytes during;
    const Pass& pass =
        kind.passes[static_cast<std::size_t>(kind.order[static_cast<std::size_t>(i)].pass)];
    for (int s = 0; s < static_cast<int>(pass.steps.size()); ++s) {
      const auto list =
          static_cast<std::size_t>(pass.steps[static_cast<std::size_t>(s)].template_index);
      for (int o = 0; o < static_cast<int>(program.templates[list].operations.size()); ++o) {
        const IssuePosition here{i, s, o};
        for (; allocation != events.allocations.end() && allocation->at == here; ++allocation) {
          add(allocation->buffer, 1);
        }
        during = std::max(during, total(live));
        if (total(live).count > sums.peak || sums.peak_at.issue < 0) {
          sums.peak = total(live).count;
          sums.peak_at = here;
          sums.at_peak = live;
        }
        sums.rounded_peak = std::max(sums.rounded_peak, rounded);
        for (; free != events.frees.end() && free->at == here; ++free) add(free->buffer, -1);
      }
    }
    sums.during_issue.push_back(during);
    sums.after_issue.push_back(total(live));
  }
  EXPECT_TRUE(allocation == events.allocations.end());
  EXPECT_TRUE(free == events.frees.end());
  return sums;
}

TEST(MemoryUse, EqualsTheSumOfAllLifetimesOnRandomPrograms) {
  int peaks_beyond_the_first_issue = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Program program = tiny::RandomProgram(seed).make();
    check(program, "random");
    const RankKind& kind = program.kinds[0];
    const Sums sums = add_up(program, kind);
    const MemoryUse use = memory_use(program, kind, true);
    ASSERT_EQ(use.peak.count, sums.peak) << "seed " << seed;
    ASSERT_EQ(use.peak_at, sums.peak_at) << "seed " << seed;
    ASSERT_EQ(use.at_peak, sums.at_peak) << "seed " << seed;
    ASSERT_EQ(use.rounded_peak.count, sums.rounded_peak) << "seed " << seed;
    ASSERT_EQ(use.during_issue, sums.during_issue) << "seed " << seed;
    ASSERT_EQ(use.after_issue, sums.after_issue) << "seed " << seed;
    peaks_beyond_the_first_issue += use.peak_at.issue > 0 ? 1 : 0;
  }
  EXPECT_GT(peaks_beyond_the_first_issue, 200);  // the programs are not all trivial
}

TEST(Replay, GivesTheEventsOfLifetimesOperationByOperation) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Program program = tiny::RandomProgram(seed).make();
    const RankKind& kind = program.kinds[0];
    const Lifetimes events = lifetimes(program, kind);
    std::multiset<std::pair<BufferInstance, bool>> expected, found;
    for (const auto& event : events.allocations) expected.insert({event.buffer, true});
    for (const auto& event : events.frees) expected.insert({event.buffer, false});
    std::set<BufferInstance> live;
    replay(program, kind, static_cast<int>(kind.order.size()),
           [&](const BufferInstance& buffer, bool allocated) {
             found.insert({buffer, allocated});
             if (allocated) {
               ASSERT_TRUE(live.insert(buffer).second) << "seed " << seed;
             } else {
               ASSERT_EQ(live.erase(buffer), 1U) << "seed " << seed;
             }
           });
    ASSERT_EQ(found, expected) << "seed " << seed;
    ASSERT_TRUE(live.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace headway
