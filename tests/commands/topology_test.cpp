#include <gmock/gmock.h>

#include "sim/core/json_reader.hpp"
#include "tests/commands/command_line.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using TopologyCommand = InFolder;

TEST_F(TopologyCommand, DescribesOneNodeWhereNoSizeIsGiven) {
  const Ran ran = run({"topology", "dgx-a100"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, AllOf(StartsWith("dgx-a100: "), HasSubstr("8 in 1 node of 8"),
                             HasSubstr("\n  source ")));
  EXPECT_THAT(run({"topology", "dgx-a100", "--nodes", "4"}).out, HasSubstr("32 in 4 nodes of 8"));
  EXPECT_THAT(run({"topology", "dgx-a100", "--gpus", "32"}).out, HasSubstr("32 in 4 nodes of 8"));
  EXPECT_EQ(run({"topology", "dgx-a100", "--gpus", "32", "--nodes", "4"}).exit_code, kBadInput);
}

TEST_F(TopologyCommand, TakesAClusterInOneLine) {
  const Ran ran = run(
      {"topology", "h100", "--nodes", "64", "--nic", "8x400 Gbit/s", "--oversubscription", "2"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, AllOf(StartsWith("h100 8x400 Gbit/s: "), HasSubstr("512 in 64 nodes"),
                             HasSubstr(", 2:1")));
  EXPECT_THAT(run({"topology", "dgx-h100", "--nic", "8x400 Gbit/s"}).err,
              StartsWith("headway: --nic: needs a GPU's name"));
}

TEST_F(TopologyCommand, ShowsTheRouteBetweenTwoRanks) {
  const Ran ran = run({"topology", "dgx-a100", "--gpus", "64", "--route", "0", "13"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, AllOf(StartsWith("GPU 0 (node0/gpu0) to GPU 13 (node1/gpu5)\n"),
                             HasSubstr("narrowest link 25 GB/s (nic)")));
  const Ran outside = run({"topology", "dgx-a100", "--route", "0", "8"});
  EXPECT_EQ(outside.exit_code, kBadInput);
  EXPECT_EQ(outside.err, "headway: --route: 8 is no rank; expected 0 to 7\n");
}

TEST_F(TopologyCommand, WritesGraphvizText) {
  const Ran ran = run({"topology", "dgx-a100", "--dot", "-"});
  EXPECT_EQ(ran.exit_code, kAnswered);
  EXPECT_THAT(ran.out, StartsWith("digraph"));
  EXPECT_EQ(run({"topology", "dgx-a100", "--dot", path("a.dot")}).exit_code, kAnswered);
  EXPECT_EQ(read_file(path("a.dot")), ran.out);
}

TEST_F(TopologyCommand, EveryPresetPassesItsCheck) {
  for (const char* name : {"dgx-a100", "a100-4x200", "dgx-h100", "host-cpu", "gb200-nvl72"}) {
    const Ran ran = run({"topology", name, "--check"});
    EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
    EXPECT_EQ(ran.out, std::string(name) + ": no problems\n");
  }
}

TEST_F(TopologyCommand, ListsEveryProblemOfAFile) {
  std::string text = read_file(source_dir() + "/topologies/dgx-a100.json");
  text = with(text, "\"300 GB/s\"", "300");
  text = with(text, "\"max_nodes\"", "\"max_node\"");
  const std::string cluster = file("cluster.json", text);
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"topology", cluster}, {"topology", cluster, "--check"}}) {
    const Ran ran = run(line);
    EXPECT_EQ(ran.exit_code, kBadInput);
    EXPECT_THAT(ran.out, IsEmpty());
    EXPECT_THAT(ran.err, AllOf(HasSubstr(cluster + ": /node/gpu_fabric/bandwidth: "),
                               HasSubstr("did you mean \"max_nodes\"?")));
  }
}

TEST_F(TopologyCommand, RefusesAnUnknownCluster) {
  const Ran ran = run({"topology", "dgx-a10"});
  EXPECT_EQ(ran.exit_code, kBadInput);
  EXPECT_EQ(lines_of(ran.err), 1);
  EXPECT_THAT(ran.err, HasSubstr("did you mean \"dgx-a100\"?"));
}

TEST_F(TopologyCommand, PlaysTraffic) {
  const std::string traffic = file("traffic.json", R"({"transfers": [
      {"name": "a", "from": 0, "to": 8, "bytes": "25 GB"},
      {"from": 1, "to": 9, "bytes": "25 GB", "after": ["a"]}]})");
  const Ran ran = run({"topology", "dgx-a100", "--nodes", "2", "--traffic", traffic});
  EXPECT_EQ(ran.exit_code, kAnswered) << ran.err;
  EXPECT_THAT(ran.out, AllOf(StartsWith("a: GPU 0 to 8, "), HasSubstr("\n1: GPU 1 to 9, ")));
  const Ran half = run({"topology", "dgx-a100", "--nodes", "2", "--traffic", traffic, "--degrade",
                        "node0/nic0=0.5", "--json", "-"});
  const JsonNode first =
      JsonNode::parse_text(half.out, "times").find("transfers")->elements().front();
  EXPECT_NEAR(first.find("end_s")->number(), 2, 1e-4);
  EXPECT_EQ(run({"topology", "dgx-a100", "--json", "-"}).err, "headway: --json: needs --traffic\n");
}

TEST_F(TopologyCommand, ShowsTheWayRoundDeadLinks) {
  const Ran ran = run(
      {"topology", "dgx-a100", "--nodes", "2", "--route", "0", "8", "--degrade", "node0/nic0=0"});
  EXPECT_THAT(ran.out, HasSubstr("node0/nic1 -> "));
}

}  // namespace
}  // namespace headway
