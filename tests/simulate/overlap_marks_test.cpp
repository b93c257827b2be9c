#include "sim/simulate/overlap_marks.hpp"

#include <gtest/gtest.h>

namespace headway {
namespace {

using Kind = OverlapMarks::Kind;
constexpr int kCollectives = 1;  // the stream of collectives that slow

const OverlapMarks::Events kCompute = {};
const OverlapMarks::Events kGather = {{Kind::kIssues, kCollectives, 0},
                                      {Kind::kReleases, kCollectives, 0}};
const OverlapMarks::Events kUse = {{Kind::kAwaits, 0, 0}};
const OverlapMarks::Events kJoin = {{Kind::kJoins, kCollectives, 0}};

// A device whose passes await and release one port each.
class OneDevice {
 public:
  OneDevice() { marks_.begin_device(); }
  bool issue(const OverlapMarks::Events& events, int port = 0) {
    return marks_.issue(events, &port, &port);
  }

 private:
  OverlapMarks marks_{2};
};

TEST(OverlapMarks, NothingIsMarkedBeforeACollectiveIsIssued) {
  OneDevice device;
  EXPECT_FALSE(device.issue(kCompute));
  EXPECT_TRUE(device.issue(kGather));
  EXPECT_TRUE(device.issue(kCompute));
}

TEST(OverlapMarks, TheComputeStreamThatJoinsEndsTheOverlapBehindItsPass) {
  OneDevice device;
  device.issue(kGather);
  EXPECT_TRUE(device.issue(kJoin));
  EXPECT_FALSE(device.issue(kCompute));
}

TEST(OverlapMarks, AwaitingTheLastOfSeveralGathersKnowsAllOfThem) {
  OneDevice device;
  device.issue(kGather, 1);
  device.issue(kGather, 2);
  EXPECT_TRUE(device.issue(kUse, 2));
  EXPECT_FALSE(device.issue(kCompute));
}

TEST(OverlapMarks, AwaitingTheFirstOfSeveralLeavesTheOthersRunning) {
  OneDevice device;
  device.issue(kGather, 1);
  device.issue(kGather, 2);
  device.issue(kUse, 1);
  EXPECT_TRUE(device.issue(kCompute));
}

TEST(OverlapMarks, APortThatNoCollectiveReleasedTellsNothing) {
  OneDevice device;
  device.issue(kGather, 1);
  device.issue(kUse, 7);
  EXPECT_TRUE(device.issue(kCompute));
}

TEST(OverlapMarks, AnotherDeviceBeginsWithNothingRunning) {
  OverlapMarks marks(2);
  const int port = 1;
  marks.begin_device();
  marks.issue(kGather, &port, &port);
  marks.begin_device();
  EXPECT_FALSE(marks.issue(kCompute, &port, &port));
}

}  // namespace
}  // namespace headway
