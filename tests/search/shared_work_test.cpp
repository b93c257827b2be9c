#include "sim/search/shared_work.hpp"

#include <gmock/gmock.h>

#include <barrier>
#include <stdexcept>
#include <thread>

#include "sim/core/error.hpp"
#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Processes of one search, as threads of the test.
class World {
 public:
  explicit World(int size) : given_(static_cast<std::size_t>(size)), meet_(size) {}

  class Process : public SearchProcesses {
   public:
    Process(World& world, int rank) : world_(world), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(world_.given_.size()); }
    std::vector<std::string> exchange(const std::string& mine) override {
      world_.given_[static_cast<std::size_t>(rank_)] = mine;
      world_.meet_.arrive_and_wait();
      std::vector<std::string> all = world_.given_;
      world_.meet_.arrive_and_wait();
      return all;
    }

   private:
    World& world_;
    int rank_;
  };

  // Runs `work` in each process; it is given its rank and its view of the world.
  void run(const std::function<void(int, SearchProcesses&)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(given_.size()); ++rank) {
      threads.emplace_back([&, rank] {
        Process process(*this, rank);
        work(rank, process);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::string> given_;
  std::barrier<> meet_;
};

TEST(ShareOut, GivesEveryProcessWhatAllOfThemMade) {
  std::vector<std::string> heard[3];
  World(3).run([&](int rank, SearchProcesses& processes) {
    bool stop = false;
    const auto work = [&](std::size_t i, ByteWriter& out) {
      EXPECT_EQ(i % 3, static_cast<std::size_t>(rank));
      out.add(static_cast<std::int64_t>(i * i));
      out.add("by " + std::to_string(rank));
    };
    share_out(5, 2, &processes, stop, work, [&](std::size_t, ByteReader& in) {
      const std::int64_t number = in.number();
      heard[rank].push_back(std::to_string(number) + " " + in.text());
      EXPECT_TRUE(in.at_end());
    });
    EXPECT_FALSE(stop);
  });
  for (const auto& all : heard)
    EXPECT_THAT(all, ElementsAre("0 by 0", "1 by 1", "4 by 2", "9 by 0", "16 by 1"));
}

TEST(ShareOut, StopsAllWhereOneIsToldTo) {
  World(2).run([](int rank, SearchProcesses& processes) {
    bool stop = rank == 1;
    share_out(
        1, 1, &processes, stop, [](std::size_t, ByteWriter&) {}, [](std::size_t, ByteReader&) {});
    EXPECT_TRUE(stop);
  });
}

TEST(ShareOut, FailsInAllWhereOneFails) {
  World(2).run([](int rank, SearchProcesses& processes) {
    bool stop = false;
    const auto work = [&](std::size_t i, ByteWriter&) {
      if (i == 1) throw std::runtime_error("no such thing");
    };
    try {
      share_out(2, 1, &processes, stop, work, [](std::size_t, ByteReader&) {});
      ADD_FAILURE();
    } catch (const std::exception& error) {
      EXPECT_EQ(rank == 0, dynamic_cast<const MachineFailure*>(&error) != nullptr);
      EXPECT_THAT(error.what(), HasSubstr("no such thing"));
    }
  });
}

// More processes than rows of a block, and fewer: the answer, counts included, is that of one.
TEST(PlanSearch, IsTheSameOnAnyNumberOfProcesses) {
  constexpr const char* kSpace = R"({"tp": [1, 2], "pp": [1, 2, 4], "recompute": ["none", "full"],
      "micro_batch": "auto"})";
  const Profile profile = a100_with(14);
  SearchOptions options;
  options.top = 4;
  const SearchResult alone = search(kSpace, profile, options);
  for (const int processes : {2, 5}) {
    World(processes).run([&](int, SearchProcesses& process) {
      SearchOptions mine = options;
      mine.processes = &process;
      const SearchResult found = search(kSpace, profile, mine);
      EXPECT_EQ(found.counts.legal, alone.counts.legal);
      EXPECT_EQ(found.counts.over_memory, alone.counts.over_memory);
      EXPECT_EQ(found.counts.pruned, alone.counts.pruned);
      EXPECT_EQ(found.counts.simulated, alone.counts.simulated);
      ASSERT_EQ(found.plans.size(), alone.plans.size());
      for (std::size_t i = 0; i < alone.plans.size(); ++i) {
        EXPECT_EQ(found.plans[i].text, alone.plans[i].text);
        EXPECT_EQ(found.plans[i].report.iteration, alone.plans[i].report.iteration);
      }
      ASSERT_EQ(found.rejected.size(), alone.rejected.size());
      for (std::size_t i = 0; i < alone.rejected.size(); ++i)
        EXPECT_EQ(found.rejected[i].nearest_miss, alone.rejected[i].nearest_miss);
    });
  }
}

}  // namespace
}  // namespace headway
