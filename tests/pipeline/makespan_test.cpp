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

// p 4, m 8, F 1, B 2: GPipe pays the latency of a hop 2 (p - 1) times, 1F1B in its steady state.
TEST(Makespan, GrowsWithTheLatencyOfAHop) {
  const auto with = [](double latency, double scale = 1) {
    return Durations{.forward = scale, .backward = 2 * scale, .latency = latency};
  };
  EXPECT_EQ(makespan("gpipe", {4, 1, 8}, with(0.5)), 36);
  EXPECT_EQ(makespan("gpipe", {4, 1, 8}, with(1)), 39);
  EXPECT_EQ(makespan("1f1b", {4, 1, 8}, with(0.5)), 41);
  EXPECT_EQ(makespan("1f1b", {4, 1, 8}, with(1)), 49);
  EXPECT_NEAR(makespan("1f1b", {4, 1, 8}, with(0.1)), 34.6, 1e-9);
  EXPECT_NEAR(makespan("interleaved", {4, 2, 8}, with(0.1, 0.5)), 29.9, 1e-9);
  EXPECT_NEAR(makespan("interleaved", {4, 2, 8}, with(0.25, 0.5)), 32.0, 1e-9);
  EXPECT_EQ(makespan("interleaved", {4, 2, 8}, with(0.5, 0.5)), 35.5);
  EXPECT_EQ(makespan("interleaved", {4, 2, 8}, with(1, 0.5)), 46);
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

}  // namespace
}  // namespace headway
