// Ranks as processes: the numbers of threads, and nobody left behind whatever happens.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "kernels/execute/launch_ranks.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;
using testing::Not;

class ProcessExecutor : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(ranks_program())) {
      GTEST_SKIP() << "built without MPI (libopenmpi-dev)";
    }
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "there is no mpirun (openmpi-bin)";
    }
  }

  static std::string ranks_program() { return binary_dir() + "/tests/kernels/process_ranks"; }

  // The token tells the processes of this test from all others.
  LaunchedRanks launch(const std::string& fault) const {
    return launch_ranks(4, {ranks_program(), fault, token_});
  }
  void TearDown() override {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::string command;
      try {
        command = read_file((entry.path() / "cmdline").string());
      } catch (const InvalidInput&) {
        continue;  // no process, or gone
      }
      EXPECT_THAT(command, Not(HasSubstr(token_))) << entry.path();
    }
  }

  std::string token_ = "token-" + std::to_string(::getpid());
};

TEST_F(ProcessExecutor, GivesTheNumbersOfThreadsToTheBit) {
  const LaunchedRanks ran = launch("none");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.messages, ElementsAre("equal", "", "", ""));
}

TEST_F(ProcessExecutor, ADeadlockIsReadOffThePlan) {
  const LaunchedRanks ran = launch("deadlock");
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.messages[0], "rank 0, 0F3, send left (layer 0): waits for rank 1 to come to it");
}

TEST_F(ProcessExecutor, OneRankThatThrowsEndsAllWithAMessage) {
  const LaunchedRanks ran = launch("throw");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.messages[2], HasSubstr("mlp.activation (layer 1): cosmic ray"));
  for (const std::size_t other : {0, 1, 3}) {
    // mpirun may be faster than the others are at hearing why.
    EXPECT_THAT(ran.messages[other],
                AnyOf(HasSubstr("rank 2 failed: rank 2, "), Eq("was stopped from outside")))
        << other;
  }
}

TEST_F(ProcessExecutor, ARefusedAllocationEndsAllWithAMessage) {
  const LaunchedRanks ran = launch("refuse");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.messages[2], HasSubstr("exceed the limit of 1000"));
  EXPECT_THAT(ran.messages[0], AnyOf(HasSubstr("rank 2 failed"), Eq("was stopped from outside")));
}

TEST_F(ProcessExecutor, ARankThatStandsStillIsEnded) {
  const LaunchedRanks ran = launch("hang");
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.messages[2], HasSubstr("mlp.activation (layer 1): stands still"));
}

TEST_F(ProcessExecutor, ARankThatSleepsOrDiesLeavesNobodyBehind) {
  for (const char* fault : {"stop", "die"}) {
    const LaunchedRanks ran = launch(fault);
    EXPECT_NE(ran.exit_code, 0) << fault;
    // Whoever waits for it says so, unless mpirun was faster.
    EXPECT_THAT(ran.messages[3], AnyOf(HasSubstr("waits for rank"), HasSubstr("failed"),
                                       Eq("was stopped from outside")))
        << fault;
  }
}

}  // namespace
}  // namespace headway
