#include "sim/cost/collective_cost.hpp"

#include <string>

#include <gtest/gtest.h>

#include "sim/core/json_reader.hpp"

namespace headway {
namespace {

Topology topology(const std::string& name, int gpus) {
  Problems problems;
  auto topology = read_topology(name, gpus, {}, JsonNode::parse_text("{}", "test"), problems);
  problems.throw_if_any();
  return *topology;
}

Collective of(CollectiveKind kind, std::int64_t bytes) {
  Collective collective;
  collective.kind = kind;
  collective.elements = bytes / 2;
  collective.type = DataType::kBf16;
  return collective;
}

GroupPlacement inside(int ranks) {
  GroupPlacement placement;
  placement.ranks = placement.ranks_per_node = ranks;
  return placement;
}
GroupPlacement across(int nodes, int per_node) {
  GroupPlacement placement;
  placement.ranks = nodes * per_node;
  placement.nodes = nodes;
  placement.ranks_per_node = per_node;
  return placement;
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
                                     CollectiveKind::kBroadcast, CollectiveKind::kReduce};
constexpr std::int64_t kMiB = 1 << 20;

class CollectiveCostOnDgxA100 : public ::testing::Test {
 protected:
  Profile profile_ = read_profile("a100-sxm-80gb");
  Topology topology_ = topology("dgx-a100", 1024);
  CollectiveCost cost_{profile_, topology_};
};

TEST_F(CollectiveCostOnDgxA100, AGroupOfOneRankMovesNothing) {
  for (const CollectiveKind kind : kKinds) {
    const CollectivePrice price = cost_.price(of(kind, kMiB), inside(1));
    EXPECT_EQ(price.alone.time, Time::zero());
    EXPECT_EQ(price.latency, Time::zero());
    EXPECT_EQ(price.wire_bytes, 0);
    EXPECT_EQ(price.algorithm, "none");
  }
}

TEST_F(CollectiveCostOnDgxA100, NoElementsTakeNoTime) {
  EXPECT_EQ(cost_.price(of(CollectiveKind::kAllReduce, 0), inside(8)).alone.time, Time::zero());
  EXPECT_EQ(cost_.send({0}, false).alone.time, Time::zero());
}

TEST_F(CollectiveCostOnDgxA100, IsExactOnAMeasuredCurve) {
  for (const CollectiveCurve& curve : profile_.collectives) {
    for (const CurvePoint& point : curve.time_us.points()) {
      const auto bytes = static_cast<std::int64_t>(point.x);
      const CollectivePrice price = cost_.price(of(curve.kind, bytes), inside(curve.ranks));
      EXPECT_NEAR(price.alone.time.microseconds(), point.y, 1e-5);
      EXPECT_EQ(price.alone.grade, Grade::kMeasured);
    }
  }
}

TEST_F(CollectiveCostOnDgxA100, TimesNeverFallAsMessagesGrow) {
  for (const CollectiveKind kind : kKinds) {
    for (const GroupPlacement& placement :
         {inside(2), inside(8), inside(5), across(2, 8), across(16, 8), across(16, 1)}) {
      Time before;
      for (std::int64_t bytes = 64 * kMiB; bytes <= 16384 * kMiB; bytes *= 2) {
        const CollectivePrice price = cost_.price(of(kind, bytes), placement);
        EXPECT_GT(price.alone.time, before) << name(kind) << bytes;
        EXPECT_LE(price.latency, price.alone.time);
        before = price.alone.time;
      }
    }
  }
}

TEST_F(CollectiveCostOnDgxA100, HugeMessagesReachTheBusBandwidth) {
  // Measured ring all-reduce of 8 A100: 230 GB/s and a little more.
  const std::int64_t bytes = 65536 * kMiB;
  const CollectivePrice inner = cost_.price(of(CollectiveKind::kAllReduce, bytes), inside(8));
  EXPECT_NEAR(static_cast<double>(inner.wire_bytes) / inner.alone.time.seconds(), 232e9, 15e9);
  // 8 channels of 24 GB/s over 8 NICs of 25: each carries an eighth of 2 x 15/16 of the array.
  const CollectivePrice outer = cost_.price(of(CollectiveKind::kAllReduce, bytes), across(2, 8));
  EXPECT_EQ(outer.wire_bytes, bytes * 2 * 15 / 16 / 8);
  EXPECT_NEAR(static_cast<double>(outer.wire_bytes) / outer.alone.time.seconds(), 24e9, 0.5e9);
}

TEST_F(CollectiveCostOnDgxA100, WireBytesAreTheVolumesOfTheField) {
  // facts 4.1: all-reduce 2 n (p - 1) / p, gather, scatter and all-to-all n (p - 1) / p.
  const auto wire = [&](CollectiveKind kind) {
    return cost_.price(of(kind, 80 * kMiB), inside(8)).wire_bytes;
  };
  EXPECT_EQ(wire(CollectiveKind::kAllReduce), 140 * kMiB);
  EXPECT_EQ(wire(CollectiveKind::kAllGather), 70 * kMiB);
  EXPECT_EQ(wire(CollectiveKind::kReduceScatter), 70 * kMiB);
  EXPECT_EQ(wire(CollectiveKind::kAllToAll), 70 * kMiB);
  EXPECT_EQ(wire(CollectiveKind::kBroadcast), 80 * kMiB);
}

TEST_F(CollectiveCostOnDgxA100, AnUnmeasuredGroupSizeMovesItsBytesAsFastAsItsNeighbour) {
  const CollectivePrice six = cost_.price(of(CollectiveKind::kAllReduce, 256 * kMiB), inside(6));
  const CollectivePrice eight = cost_.price(of(CollectiveKind::kAllReduce, 256 * kMiB), inside(8));
  EXPECT_LT(six.alone.time, eight.alone.time);
  EXPECT_EQ(six.alone.grade, Grade::kFitted);
  const double rate6 = static_cast<double>(six.wire_bytes) / six.alone.time.seconds();
  const double rate8 = static_cast<double>(eight.wire_bytes) / eight.alone.time.seconds();
  EXPECT_NEAR(rate6 / rate8, 1, 0.1);
}

// The curve was measured on the file's links: of twice their bandwidth, what is no latency takes
// half as long, and nobody measured that.
TEST_F(CollectiveCostOnDgxA100, ACurveFollowsOverriddenLinks) {
  Problems problems;
  const auto faster = read_topology(
      "dgx-a100", 1024,
      {{.kind = "nvlink", .bandwidth = Bandwidth{600e9}, .latency = {}, .pointer = ""}},
      JsonNode::parse_text("{}", "test"), problems);
  ASSERT_TRUE(faster);
  const CollectivePrice before = cost_.price(of(CollectiveKind::kAllReduce, 256 * kMiB), inside(8));
  const CollectivePrice after = CollectiveCost(profile_, *faster)
                                    .price(of(CollectiveKind::kAllReduce, 256 * kMiB), inside(8));
  EXPECT_EQ(after.latency, before.latency);
  const Time moving_before = before.alone.time - before.latency;
  const Time moving_after = after.alone.time - after.latency;
  EXPECT_NEAR(moving_after.seconds(), moving_before.seconds() / 2, 1e-9);
  EXPECT_EQ(after.alone.grade, Grade::kExtrapolated);
}

TEST_F(CollectiveCostOnDgxA100, SoftwareThatReachesHalfTheNicTakesTwiceTheTransfer) {
  const Collective large = of(CollectiveKind::kReduceScatter, 8192 * kMiB);
  const CollectivePrice full = cost_.price(large, across(16, 1));
  const CollectivePrice half = cost_.price(large, across(16, 1), 0.5);
  EXPECT_NEAR(
      (half.alone.time - half.latency).seconds() / (full.alone.time - full.latency).seconds(), 2,
      1e-6);
  EXPECT_EQ(cost_.price(large, inside(8), 0.5).alone.time,
            cost_.price(large, inside(8)).alone.time);
}

TEST_F(CollectiveCostOnDgxA100, AMessageIsLatencyAndBytes) {
  // 17 us and 0.83 x 300 GB/s inside, 40 us and 0.8 x 25 GB/s between nodes.
  EXPECT_NEAR(cost_.send({8 * kMiB}, true).alone.time.microseconds(), 17 + 8 * kMiB / 249e3, 0.01);
  EXPECT_NEAR(cost_.send({8 * kMiB}, false).alone.time.microseconds(), 40 + 8 * kMiB / 20e3, 0.01);
  EXPECT_EQ(cost_.send({8 * kMiB}, false).wire_bytes, 8 * kMiB);
}

TEST_F(CollectiveCostOnDgxA100, ChoosesAsNcclDoes) {
  EXPECT_EQ(cost_.price(of(CollectiveKind::kAllReduce, kMiB), inside(8)).protocol, "LL");
  EXPECT_EQ(cost_.price(of(CollectiveKind::kAllReduce, 16 * kMiB), inside(8)).protocol, "LL128");
  EXPECT_EQ(cost_.price(of(CollectiveKind::kAllReduce, 256 * kMiB), inside(8)).protocol, "Simple");
  EXPECT_EQ(cost_.price(of(CollectiveKind::kAllReduce, kMiB), across(64, 8)).algorithm, "tree");
}

// Published nccl-tests over InfiniBand and RoCE, in calibration/points/collectives.csv: oci-hpc and
// coreweave (H100, 2 and 12 nodes), vultr-b200-poc (2 nodes). None of them is in a profile.
TEST(CollectiveCost, IsWithin15PercentOfPublishedLargeMessagesBetweenNodes) {
  struct Run {
    const char* topology;
    int nodes;
    std::int64_t mebibytes;
    double measured_us;
  };
  for (const Run& run : {Run{"dgx-h100", 2, 1024, 4478.8}, Run{"dgx-h100", 2, 16384, 68359},
                         Run{"dgx-h100", 12, 512, 2984.6}, Run{"dgx-h100", 12, 8192, 43980},
                         Run{"dgx-b200", 2, 512, 1620.0}, Run{"dgx-b200", 2, 16384, 44871}}) {
    const Topology whole = topology(run.topology, 8 * run.nodes);
    const Profile profile = read_profile(whole.default_profile());
    const CollectivePrice price =
        CollectiveCost(profile, whole)
            .price(of(CollectiveKind::kAllReduce, run.mebibytes * kMiB), across(run.nodes, 8));
    EXPECT_NEAR(price.alone.time.microseconds() / run.measured_us, 1, 0.15)
        << run.topology << " " << run.nodes << " nodes, " << run.mebibytes << " MiB";
    EXPECT_EQ(price.alone.grade, Grade::kFitted);
  }
}

TEST(CollectiveCost, PricesEveryShippedTopologyWithItsOwnProfile) {
  for (const TopologyName& each : topology_presets()) {
    const Profile profile = read_profile(each.profiles.front());
    // One machine is all there is of host-cpu.
    const int gpus = each.gpus_per_node * (each.name == "host-cpu" ? 1 : 2);
    const Topology whole = topology(each.name, gpus);
    const CollectiveCost cost(profile, whole);
    for (const CollectiveKind kind : kKinds) {
      const CollectivePrice inner = cost.price(of(kind, kMiB), inside(each.gpus_per_node));
      if (each.gpus_per_node > 1) {
        EXPECT_GT(inner.alone.time, Time::zero()) << each.name;
      }
      if (whole.nodes() < 2) continue;
      const CollectivePrice outer = cost.price(of(kind, kMiB), across(2, each.gpus_per_node));
      EXPECT_GT(outer.alone.time, Time::zero()) << each.name;
      EXPECT_GT(outer.alone.band, 0) << each.name;
    }
  }
}

// Curves of the same device were measured over NVLink.
TEST(CollectiveCost, WithoutNvlinkNothingMeasuredOverItHolds) {
  const Profile profile = read_profile("a100-sxm-80gb");
  const Topology boxes = topology("pcie-a100", 8), dgx = topology("dgx-a100", 8);
  const Collective sum = of(CollectiveKind::kAllReduce, 1024 * kMiB);
  const CollectivePrice slow = CollectiveCost(profile, boxes).price(sum, inside(8));
  EXPECT_GT(slow.alone.time.seconds(),
            5 * CollectiveCost(profile, dgx).price(sum, inside(8)).alone.time.seconds());
  // At most the 31 GB/s of a PCIe link carry 2 x 7/8 of the bytes.
  EXPECT_GT(slow.alone.time.seconds(), 1.75 * 1024 * kMiB / 31e9);
  EXPECT_EQ(slow.alone.grade, Grade::kFitted);
}

}  // namespace
}  // namespace headway
