// Makespans and in-flight counts of the played schedules: facts 3.3 and 2.3. The closed forms of
// the bubble are tests of the played-out result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pipeline/replay.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

struct Case {
  int ranks, micro_batches;
  double makespan;
};

double makespan(const char* name, const ScheduleShape& shape, const Durations& durations) {
  const Replay played = replay(*find_schedule(name), shape, durations);
  EXPECT_TRUE(played.finished) << played.stuck;
  return played.makespan;
}

std::vector<int> in_flight(const char* name, const ScheduleShape& shape) {
  return replay(*find_schedule(name), shape, {}).in_flight;
}

// (m + p - 1)(F + B)
TEST(Makespan, OfGpipeAndOneFOneBIsTheSame) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (const Case& c : {Case{2, 4, 15}, {4, 4, 21}, {4, 8, 33}, {4, 12, 45}, {8, 16, 69}}) {
      EXPECT_EQ(makespan(name, {c.ranks, 1, c.micro_batches}, {.forward = 1, .backward = 2}),
                c.makespan);
    }
    for (const Case& c : {Case{2, 4, 45}, {4, 4, 63}, {4, 8, 99}, {4, 12, 135}, {8, 16, 207}}) {
      EXPECT_EQ(makespan(name, {c.ranks, 1, c.micro_batches}, {.forward = 3, .backward = 6}),
                c.makespan);
    }
    for (const Case& c : {Case{2, 4, 30}, {4, 8, 66}, {8, 16, 138}}) {
      EXPECT_EQ(makespan(name, {c.ranks, 1, c.micro_batches}, {.forward = 2, .backward = 4}),
                c.makespan);
    }
  }
}

// m (F + B) + (p - 1)(F + B) / v, with F = 1 and B = 2 for all chunks of a rank together.
TEST(Makespan, OfInterleavedShrinksTheBubbleByTheChunks) {
  struct Looped {
    int ranks, micro_batches, chunks, group;
    double makespan;
  };
  for (const Looped& c : {Looped{2, 4, 2, 0, 13.5},
                          {4, 4, 2, 0, 16.5},
                          {4, 8, 2, 0, 28.5},
                          {4, 8, 3, 0, 27.0},
                          {4, 8, 4, 0, 26.25},
                          {4, 12, 2, 0, 40.5},
                          {4, 16, 4, 0, 50.25},
                          {8, 16, 2, 0, 58.5},
                          {2, 5, 2, 3, 16.5},
                          {4, 10, 2, 5, 34.5}}) {
    const Durations durations = {.forward = 1.0 / c.chunks, .backward = 2.0 / c.chunks};
    EXPECT_NEAR(makespan("interleaved", {c.ranks, c.chunks, c.micro_batches, c.group}, durations),
                c.makespan, 1e-9)
        << "p" << c.ranks << " m" << c.micro_batches << " v" << c.chunks;
  }
}

// Looped BFS has the makespan of interleaving.
TEST(Makespan, OfLoopedBfsIsThatOfInterleaved) {
  for (const auto& [chunks, expected] : {std::pair(2, 28.5), {3, 27.0}, {4, 26.25}}) {
    const Durations durations = {.forward = 1.0 / chunks, .backward = 2.0 / chunks};
    EXPECT_NEAR(makespan("looped-bfs", {4, chunks, 8}, durations), expected, 1e-9);
  }
}

struct Split {
  double forward, input, weight;
};
Durations with(const Split& split, double pair = 0, double latency = 0) {
  return {.forward = split.forward,
          .backward = split.input + split.weight,
          .backward_input = split.input,
          .backward_weight = split.weight,
          .pair = pair,
          .latency = latency};
}
constexpr Split kEven = {1, 1, 1};
constexpr Split kUneven = {3, 4, 2};
constexpr Split kShortWeight = {2, 3, 1};

// 1F1B's bubble less (p - 1) W.
TEST(Makespan, OfZbH1) {
  for (const Case& c : {Case{2, 4, 13}, {4, 4, 15}, {4, 8, 27}, {4, 12, 39}, {8, 16, 55}}) {
    EXPECT_EQ(makespan("zb-h1", {c.ranks, 1, c.micro_batches}, with(kEven)), c.makespan);
  }
  for (const Case& c : {Case{2, 4, 41}, {4, 4, 51}, {4, 8, 87}, {4, 12, 123}, {8, 16, 179}}) {
    EXPECT_EQ(makespan("zb-h1", {c.ranks, 1, c.micro_batches}, with(kUneven)), c.makespan);
  }
  for (const Case& c : {Case{2, 4, 28}, {4, 8, 60}, {8, 16, 124}}) {
    EXPECT_EQ(makespan("zb-h1", {c.ranks, 1, c.micro_batches}, with(kShortWeight)), c.makespan);
  }
  EXPECT_EQ(makespan("zb-h1", {4, 1, 8}, with(kEven, 0, 0.5)), 33);
  EXPECT_EQ(makespan("zb-h1", {4, 1, 8}, with(kEven, 0, 1)), 41);
}

struct Stages {
  int ranks, micro_batches;
  double makespan, longest_stage;
};

TEST(Makespan, OfZbH2) {
  for (const Stages& c : {Stages{2, 4, 13, 12}, {4, 8, 27, 24}, {4, 12, 39, 36}, {8, 16, 55, 48}}) {
    const Replay played =
        replay(*find_schedule("zb-h2"), {c.ranks, 1, c.micro_batches}, with(kEven));
    EXPECT_EQ(played.makespan, c.makespan);
    EXPECT_EQ(played.longest_stage, c.longest_stage);
  }
  for (const Case& c : {Case{2, 4, 39}, {4, 8, 81}, {4, 12, 117}, {8, 16, 165}}) {
    EXPECT_EQ(makespan("zb-h2", {c.ranks, 1, c.micro_batches}, with(kUneven)), c.makespan);
  }
  for (const Case& c : {Case{2, 4, 27}, {4, 8, 57}, {8, 16, 117}}) {
    EXPECT_EQ(makespan("zb-h2", {c.ranks, 1, c.micro_batches}, with(kShortWeight)), c.makespan);
  }
}

TEST(Makespan, OfZbV) {
  for (const Stages& c :
       {Stages{2, 4, 25, 24}, {4, 8, 51, 48}, {4, 12, 75, 72}, {8, 16, 103, 96}}) {
    const Replay played =
        replay(*find_schedule("zb-v"), {c.ranks, 2, c.micro_batches}, with(kEven));
    EXPECT_EQ(played.makespan, c.makespan);
    EXPECT_EQ(played.longest_stage, c.longest_stage);
  }
  for (const Case& c : {Case{2, 4, 76}, {4, 8, 156}, {4, 12, 228}, {8, 16, 316}}) {
    EXPECT_EQ(makespan("zb-v", {c.ranks, 2, c.micro_batches}, with(kUneven)), c.makespan);
  }
}

struct Pairs {
  int ranks, micro_batches;
  double whole, overlapped;  // with F&B as long as F + B, and shorter
};

TEST(Makespan, OfDualpipeV) {
  for (const Pairs& c :
       {Pairs{2, 4, 26, 24}, {2, 8, 50, 44}, {4, 8, 54, 49}, {4, 10, 66, 59}, {4, 16, 102, 89}}) {
    EXPECT_EQ(makespan("dualpipe-v", {c.ranks, 2, c.micro_batches}, with(kEven, 3)), c.whole);
    EXPECT_EQ(makespan("dualpipe-v", {c.ranks, 2, c.micro_batches}, with(kEven, 2.5)),
              c.overlapped);
  }
  for (const Pairs& c : {Pairs{2, 4, 80, 72},
                         {2, 8, 152, 128},
                         {4, 8, 168, 148},
                         {4, 10, 204, 176},
                         {4, 16, 312, 260}}) {
    EXPECT_EQ(makespan("dualpipe-v", {c.ranks, 2, c.micro_batches}, with(kUneven, 9)), c.whole);
    EXPECT_EQ(makespan("dualpipe-v", {c.ranks, 2, c.micro_batches}, with(kUneven, 7)),
              c.overlapped);
  }
}

TEST(Makespan, OfDualpipe) {
  for (const Pairs& c : {Pairs{4, 8, 26, 24}, {4, 12, 38, 34}, {8, 16, 54, 49}, {8, 20, 66, 59}}) {
    EXPECT_EQ(makespan("dualpipe", {c.ranks, 2, c.micro_batches}, with(kEven, 3)), c.whole);
    EXPECT_EQ(makespan("dualpipe", {c.ranks, 2, c.micro_batches}, with(kEven, 2.5)), c.overlapped);
  }
  for (const Pairs& c :
       {Pairs{4, 8, 80, 72}, {4, 12, 116, 100}, {8, 16, 168, 148}, {8, 20, 204, 176}}) {
    EXPECT_EQ(makespan("dualpipe", {c.ranks, 2, c.micro_batches}, with(kUneven, 9)), c.whole);
    EXPECT_EQ(makespan("dualpipe", {c.ranks, 2, c.micro_batches}, with(kUneven, 7)), c.overlapped);
  }
}

// Two opposite pipelines of p micro-batches fill each other's bubbles but for p - 2 slots: with F =
// B the bubble is (p - 2) / (2 m + p - 2) of the step (arXiv 2107.06925, table 2).
TEST(Makespan, OfChimeraLeavesTheBubbleOfHalfThePipeline) {
  for (const Case& c : {Case{2, 2, 4}, {4, 4, 10}, {4, 8, 18}, {8, 8, 22}, {8, 32, 70}}) {
    EXPECT_EQ(makespan("chimera", {c.ranks, 2, c.micro_batches}, {.forward = 1, .backward = 1}),
              c.makespan);
  }
}

// The building blocks have no free slot between micro-batches: with F = I = W every one more takes
// the six slots that it needs (arXiv 2405.15362, section 4).
TEST(Makespan, OfVHalfAndVMinGrowsByTheWorkAlone) {
  for (const char* name : {"v-half", "v-min"}) {
    for (const int p : {2, 3, 4, 5, 6, 8, 9}) {
      const double fewer = makespan(name, {p, 2, 4 * p}, with(kEven));
      EXPECT_EQ(makespan(name, {p, 2, 4 * p + 1}, with(kEven)), fewer + 6) << name << " p" << p;
      EXPECT_LT(fewer, 6 * 4 * p + 6 * p) << name << " p" << p;
    }
  }
}

// p 4, m 8, F 1, B 2: GPipe pays the latency of a hop 2 (p - 1) times, 1F1B in its steady state.
TEST(Makespan, GrowsWithTheLatencyOfAHop) {
  const auto after = [](double latency, double scale = 1) {
    return Durations{.forward = scale, .backward = 2 * scale, .latency = latency};
  };
  EXPECT_EQ(makespan("gpipe", {4, 1, 8}, after(0.5)), 36);
  EXPECT_EQ(makespan("gpipe", {4, 1, 8}, after(1)), 39);
  EXPECT_EQ(makespan("1f1b", {4, 1, 8}, after(0.5)), 41);
  EXPECT_EQ(makespan("1f1b", {4, 1, 8}, after(1)), 49);
  EXPECT_NEAR(makespan("1f1b", {4, 1, 8}, after(0.1)), 34.6, 1e-9);
  EXPECT_NEAR(makespan("interleaved", {4, 2, 8}, after(0.1, 0.5)), 29.9, 1e-9);
  EXPECT_NEAR(makespan("interleaved", {4, 2, 8}, after(0.25, 0.5)), 32.0, 1e-9);
  EXPECT_EQ(makespan("interleaved", {4, 2, 8}, after(0.5, 0.5)), 35.5);
  EXPECT_EQ(makespan("interleaved", {4, 2, 8}, after(1, 0.5)), 46);
}

TEST(InFlight, OfGpipeIsEveryMicroBatch) {
  EXPECT_THAT(in_flight("gpipe", {4, 1, 8}), ElementsAre(8, 8, 8, 8));
}

// min(m, p - r)
TEST(InFlight, OfOneFOneBIsTheDistanceToTheEnd) {
  EXPECT_THAT(in_flight("1f1b", {4, 1, 8}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(in_flight("1f1b", {4, 1, 2}), ElementsAre(2, 2, 2, 1));
}

// min(m v, (v - 1) p + 2 (p - 1 - r) + 1) chunks
TEST(InFlight, OfInterleavedCountsChunks) {
  EXPECT_THAT(in_flight("interleaved", {4, 2, 8}), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(in_flight("interleaved", {4, 3, 8}), ElementsAre(15, 13, 11, 9));
  EXPECT_THAT(in_flight("interleaved", {4, 4, 8}), ElementsAre(19, 17, 15, 13));
  EXPECT_THAT(in_flight("interleaved", {4, 2, 4}), ElementsAre(8, 8, 7, 5));
}

TEST(InFlight, OfLoopedBfsIsEveryChunkOfEveryMicroBatch) {
  EXPECT_THAT(in_flight("looped-bfs", {4, 2, 8}), ElementsAre(16, 16, 16, 16));
}

TEST(InFlight, OfZeroBubbleIsTheSameOnEveryRank) {
  EXPECT_THAT(in_flight("zb-h1", {4, 1, 8}), ElementsAre(4, 4, 4, 4));  // p
  EXPECT_THAT(in_flight("zb-h2", {4, 1, 8}), ElementsAre(7, 7, 7, 7));  // 2 p - 1
  EXPECT_THAT(in_flight("zb-v", {4, 2, 8}),
              ElementsAre(8, 8, 8, 8));  // 2 p chunks of half the size
}

// Half and a third of 1F1B's: at most (p + 2) / 2 and (p + 4) / 3 micro-batches, of two chunks each
// (the authors' demonstration; integer division).
TEST(InFlight, OfVHalfAndVMinIsAPartOfThePipeline) {
  for (const int p : {2, 3, 4, 5, 6, 8, 9, 16}) {
    for (const int chunks : in_flight("v-half", {p, 2, 4 * p}))
      EXPECT_LE(chunks, 2 * ((p + 2) / 2));
    for (const int chunks : in_flight("v-min", {p, 2, 4 * p})) EXPECT_LE(chunks, 2 * ((p + 4) / 3));
  }
  EXPECT_THAT(in_flight("v-half", {8, 2, 32}), testing::Each(testing::Ge(8)));
}

// Between p / 2 + 1 at the ends of the pipeline and p in its middle (arXiv 2107.06925, table 2).
TEST(InFlight, OfChimeraIsLargestInTheMiddle) {
  EXPECT_THAT(in_flight("chimera", {4, 2, 4}), ElementsAre(3, 4, 4, 3));
  EXPECT_THAT(in_flight("chimera", {8, 2, 32}), ElementsAre(5, 6, 7, 8, 8, 7, 6, 5));
}

TEST(InFlight, OfDualpipeIsOneMoreThanTheStages) {
  EXPECT_THAT(in_flight("dualpipe", {4, 2, 8}), ElementsAre(5, 5, 5, 5));    // p + 1
  EXPECT_THAT(in_flight("dualpipe-v", {4, 2, 8}), ElementsAre(9, 9, 9, 9));  // 2 p + 1
}

}  // namespace
}  // namespace headway
