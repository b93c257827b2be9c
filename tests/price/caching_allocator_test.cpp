#include "sim/price/caching_allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace headway {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr Bytes kAmple{std::int64_t{1} << 40};

TEST(CachingAllocator, RoundsBlocksTo512BytesAndSmallSegmentsTo2MiB) {
  CachingAllocator allocator(kAmple);
  allocator.allocate({1});
  EXPECT_EQ(allocator.allocated().count, 512);
  EXPECT_EQ(allocator.reserved().count, 2 * kMiB);
  allocator.allocate({513});
  EXPECT_EQ(allocator.allocated().count, 512 + 1024);
  EXPECT_EQ(allocator.reserved().count, 2 * kMiB);  // from the same segment
}

TEST(CachingAllocator, TakesSegmentsBySizeOfTheRequest) {
  for (const auto& [request, segment] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{kMiB, 2 * kMiB},
                                                          {kMiB + 1, 20 * kMiB},
                                                          {10 * kMiB - 512, 20 * kMiB},
                                                          {10 * kMiB, 10 * kMiB},
                                                          {11 * kMiB, 12 * kMiB},
                                                          {100 * kMiB + 1, 102 * kMiB}}) {
    CachingAllocator allocator(kAmple);
    allocator.allocate({request});
    EXPECT_EQ(allocator.reserved().count, segment) << request;
  }
}

TEST(CachingAllocator, ALargeBlockIsSplitOnlyWhereMoreThanAMiBIsLeft) {
  CachingAllocator allocator(kAmple);
  const int whole = allocator.allocate({20 * kMiB});
  allocator.free(whole);
  allocator.allocate({19 * kMiB});  // 1 MiB would be left: the block is given whole
  EXPECT_EQ(allocator.allocated().count, 20 * kMiB);
  CachingAllocator other(kAmple);
  other.free(other.allocate({20 * kMiB}));
  other.allocate({18 * kMiB});
  EXPECT_EQ(other.allocated().count, 18 * kMiB);
  other.allocate({2 * kMiB});  // the rest
  EXPECT_EQ(other.reserved().count, 20 * kMiB);
}

TEST(CachingAllocator, FreedNeighboursServeALargerRequest) {
  CachingAllocator allocator(kAmple);
  const int a = allocator.allocate({6 * kMiB});
  const int b = allocator.allocate({6 * kMiB});
  const int c = allocator.allocate({6 * kMiB});
  EXPECT_EQ(allocator.reserved().count, 20 * kMiB);
  allocator.free(a);
  allocator.free(c);
  allocator.free(b);
  allocator.allocate({20 * kMiB});
  EXPECT_EQ(allocator.reserved().count, 20 * kMiB);
}

TEST(CachingAllocator, KeepsWhatItHasUntilTheDeviceIsFull) {
  CachingAllocator allocator({50 * kMiB});
  allocator.free(allocator.allocate({30 * kMiB}));
  EXPECT_EQ(allocator.reserved().count, 30 * kMiB);
  allocator.allocate({40 * kMiB});  // does not fit the cached 30, nor beside it
  EXPECT_EQ(allocator.reserved().count, 40 * kMiB);
  EXPECT_FALSE(allocator.out_of_memory());
  allocator.allocate({12 * kMiB});
  EXPECT_TRUE(allocator.out_of_memory());
  EXPECT_EQ(allocator.peak_reserved().count, 52 * kMiB);
}

// Whatever the requests: nothing is lost, and once all is freed all has merged again, so that a
// full device can be emptied for one request as large as itself.
TEST(CachingAllocator, BalancesOnRandomRequests) {
  std::mt19937_64 random(7);
  constexpr Bytes kLimit{400 * kMiB};
  int full = 0;
  for (int run = 0; run < 200; ++run) {
    CachingAllocator allocator(kLimit);
    std::vector<int> live;
    for (int i = 0; i < 100; ++i) {
      if (!live.empty() && random() % 2 == 0) {
        const std::size_t at = random() % live.size();
        allocator.free(live[at]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        live.push_back(allocator.allocate({static_cast<std::int64_t>(random() % (30 * kMiB))}));
      }
      ASSERT_LE(allocator.allocated(), allocator.reserved());
    }
    for (const int handle : live) allocator.free(handle);
    ASSERT_EQ(allocator.allocated().count, 0);
    full += allocator.reserved().count > 200 * kMiB ? 1 : 0;
    allocator.allocate(kLimit);
    ASSERT_EQ(allocator.reserved(), kLimit);
  }
  EXPECT_GT(full, 20);
}

}  // namespace
}  // namespace headway
