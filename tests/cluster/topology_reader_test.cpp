#include "sim/cluster/topology_reader.hpp"

#include <gmock/gmock.h>

#include "sim/cluster/cluster_description.hpp"
#include "sim/core/file.hpp"
#include "tests/cluster/clusters.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TopologyReader, ReadsEveryFigureInItsUnit) {
  const Topology topology = topology_of(kSmallCluster, 4);
  const ClusterDescription& cluster = topology.description();
  EXPECT_EQ(cluster.max_servers, 64);
  EXPECT_EQ(cluster.server.watts, 2000);
  EXPECT_EQ(cluster.dollars_per_gpu_hour, 1.5);
  EXPECT_EQ(cluster.server.gpu_link.bandwidth.bytes_per_second, 300e9);
  EXPECT_EQ(cluster.server.gpu_link.latency.picoseconds, 300'000);
  EXPECT_EQ(cluster.server.nic.bandwidth.bytes_per_second, 25e9);  // 200 Gbit/s
  EXPECT_EQ(cluster.server.nic.latency.picoseconds, 1'000'000);
  EXPECT_EQ(cluster.network.uplink.latency.picoseconds, 250'000);
}

struct BadValue {
  const char* piece;
  const char* by;
  const char* pointer;
  const char* message;
};

// What a test's name shows.
void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.by; }

class BadTopology : public testing::TestWithParam<BadValue> {};

TEST_P(BadTopology, NamesFilePlaceAndWhatIsAllowed) {
  const BadValue& bad = GetParam();
  EXPECT_THAT(
      problems_of(changed(kSmallCluster, {{bad.piece, bad.by}})),
      AllOf(HasSubstr(std::string("t.json: ") + bad.pointer + ": "), HasSubstr(bad.message)));
}

INSTANTIATE_TEST_SUITE_P(
    EachParameter, BadTopology,
    testing::Values(
        BadValue{"\"name\": \"small\", ", "", "/name", "missing"},
        BadValue{"\"title\": \"a small cluster\", ", "", "/title", "missing"},
        BadValue{"\"source\": \"made up\", \"profiles\"", "\"profiles\"", "/source", "missing"},
        BadValue{"\"title\"", "\"titel\"", "/titel", "title"},
        BadValue{"[\"a100-sxm-80gb\"]", "[]", "/profiles", "at least one profile"},
        BadValue{"[\"a100-sxm-80gb\"]", "[\"a100-sxm-90gb\"]", "/profiles/0",
                 "did you mean \"a100-sxm-80gb\"?"},
        BadValue{"[\"a100-sxm-80gb\"]", "[\"h200\", \"h200\"]", "/profiles/1", "given twice"},
        BadValue{"[\"a100-sxm-80gb\"]", "\"a100-sxm-80gb\"", "/profiles", "is not a list"},
        BadValue{"\"max_nodes\": 64, ", "", "/max_nodes", "missing"},
        BadValue{"\"max_nodes\": 64", "\"max_nodes\": 0", "/max_nodes", "from 1"},
        BadValue{"\"max_nodes\": 64", "\"max_nodes\": 2147483648", "/max_nodes", "up to 1048576"},
        BadValue{"\"gpus\": 2", "\"gpus\": 0", "/node/gpus", "from 1"},
        BadValue{"\"gpus\": 2", "\"gpus\": -8", "/node/gpus", "from 1"},
        BadValue{"\"gpus\": 2", "\"gpus\": 2.5", "/node/gpus", "integer"},
        BadValue{"\"gpus\": 2", "\"gpus\": \"2\"", "/node/gpus", "integer"},
        BadValue{"\"nvswitch\"", "\"nvswich\"", "/node/gpu_fabric/generator", "nvswitch"},
        BadValue{"\"300 GB/s\"", "300", "/node/gpu_fabric/bandwidth", "GB/s"},
        BadValue{"\"300 GB/s\"", "\"300\"", "/node/gpu_fabric/bandwidth", "the unit is missing"},
        BadValue{"\"300 GB/s\"", "\"300 GB\"", "/node/gpu_fabric/bandwidth", "GB"},
        BadValue{"\"300 GB/s\"", "\"-300 GB/s\"", "/node/gpu_fabric/bandwidth", "negative"},
        BadValue{"\"300 GB/s\"", "\"0 GB/s\"", "/node/gpu_fabric/bandwidth", "a bandwidth of 0"},
        BadValue{"\"300 GB/s\"", "\"nan GB/s\"", "/node/gpu_fabric/bandwidth", "nan"},
        BadValue{"\"0.3 us\"", "\"0.3\"", "/node/gpu_fabric/latency", "the unit is missing"},
        BadValue{"\"links\": 12", "\"links\": 0", "/node/gpu_fabric/links", "from 1"},
        BadValue{"\"links\": 12", "\"domain_nodes\": 0", "/node/gpu_fabric/domain_nodes", "from 1"},
        BadValue{"\"switches\": 1", "\"switches\": -1", "/node/pcie/switches", "from 0"},
        BadValue{"\"31 GB/s\"", "\"0 B/s\"", "/node/pcie/bandwidth", "a bandwidth of 0"},
        BadValue{"\"0.15 us\"", "\"soon\"", "/node/pcie/latency", "soon"},
        BadValue{"\"amd\"", "\"via\"", "/node/cpu/vendor",
                 "expected \"intel\", \"amd\" or \"arm\""},
        BadValue{"\"vendor\": \"amd\"", "\"vendor\": \"amd\", \"sockets\": 0", "/node/cpu/sockets",
                 "from 1"},
        BadValue{"\"vendor\": \"amd\"", "\"vendor\": \"amd\", \"sockets\": 2",
                 "/node/cpu/bandwidth", "missing"},
        BadValue{"\"count\": 2", "\"count\": 0", "/node/nics/count", "from 1"},
        BadValue{"\"count\": 2", "\"count\": 3", "/node/nics/count",
                 "3 NICs cannot be divided among 2 GPUs"},
        BadValue{"\"200 Gbit/s\"", "\"0 Gbit/s\"", "/node/nics/bandwidth", "a bandwidth of 0"},
        BadValue{"\"1 us\"", "1", "/node/nics/latency", "us"},
        BadValue{"\"2 kW\"", "\"2\"", "/node/power", "the unit is missing"},
        BadValue{"\"1.5 $/h\"", "\"1.5\"", "/node/price", "the unit is missing"},
        BadValue{"\"rail-leaf-spine\"", "\"rail-leaf-spin\"", "/network/generator",
                 "rail-leaf-spine"},
        BadValue{"\"leaf_nodes\": 2", "\"leaf_nodes\": 0", "/network/leaf_nodes", "from 1"},
        BadValue{"\"leaf_nodes\": 2", "\"oversubscription\": 1", "/network/leaf_nodes", "missing"},
        BadValue{"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"oversubscription\": 0",
                 "/network/oversubscription", "above 0"},
        BadValue{"\"0.25 us\"", "\"0.25 GB\"", "/network/latency", "GB"},
        BadValue{"\"leaf_nodes\": 2",
                 "\"leaf_nodes\": 2, \"pod_nodes\": 3, \"core_latency\": \"1 us\"",
                 "/network/pod_nodes", "3 nodes are not whole leaves of 2"},
        BadValue{"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"pod_nodes\": 4",
                 "/network/core_latency", "missing"},
        BadValue{"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"core_latency\": \"1 us\"",
                 "/network/core_latency", "unknown key"},
        BadValue{"\"leaf_nodes\": 2", "\"leaf_nodes\": 2, \"rails_over_nvlink\": 1",
                 "/network/rails_over_nvlink", "not true or false"}));

TEST(TopologyReader, ReportsAllProblemsOfAFileAtOnce) {
  const std::string lines = problems_of(
      changed(kSmallCluster,
              {{"\"gpus\": 2", "\"gpus\": 0"}, {"300 GB/s", "0 GB/s"}, {"\"amd\"", "\"via\""}}));
  EXPECT_THAT(lines, AllOf(HasSubstr("/node/gpus"), HasSubstr("/node/gpu_fabric/bandwidth"),
                           HasSubstr("/node/cpu/vendor")));
}

TEST(TopologyReader, NeedsANetworkForSeveralServers) {
  const std::string alone = R"({"name": "n", "title": "t", "source": "s", "profiles": ["h200"],
    "max_nodes": 4, "node": {"source": "s", "gpus": 2,
    "gpu_fabric": {"source": "s", "generator": "nvswitch", "bandwidth": "1 GB/s", "latency": "1 us"},
    "pcie": {"source": "s", "switches": 1, "bandwidth": "1 GB/s", "latency": "1 us"},
    "cpu": {"source": "s", "vendor": "amd"}}})";
  EXPECT_EQ(problems_of(alone),
            "t.json: /max_nodes: 4 nodes cannot be joined without a \"network\"");
  EXPECT_EQ(problems_of(changed(alone, {{"\"max_nodes\": 4", "\"max_nodes\": 1"}})), "");
  // Four trays of one NVLink domain need none.
  EXPECT_EQ(
      problems_of(
          changed(alone, {{"\"latency\": \"1 us\"", "\"latency\": \"1 us\", \"domain_nodes\": 4"}}),
          8),
      "");
}

TEST(TopologyReader, RefusesGpuCountsThatTheClusterCannotHave) {
  EXPECT_EQ(problems_of(kSmallCluster, 3),
            "job.json: 3 GPUs are not whole nodes of small, which have 2 GPUs each; expected a "
            "multiple of 2, or fewer than one node");
  EXPECT_EQ(problems_of(kSmallCluster, 0), "job.json: 0 GPUs; expected at least 1");
  EXPECT_EQ(problems_of(kSmallCluster, -4), "job.json: -4 GPUs; expected at least 1");
  EXPECT_EQ(problems_of(kSmallCluster, 130),
            "job.json: too many GPUs: 130, and small has at most 128 (made up)");
  EXPECT_THAT(problems_of(kSmallCluster, 2147483647), HasSubstr("too many GPUs: 2147483647"));
  EXPECT_EQ(problems_of(kSmallCluster, 128), "");
  EXPECT_EQ(problems_of(kSmallCluster, 1), "");
}

TEST(TopologyReader, OverridesLinksByKind) {
  const Topology topology = topology_of(
      kSmallCluster, 8,
      {{"nic", Bandwidth{12.5e9}, std::nullopt, ""}, {"nvlink", std::nullopt, Time{7}, ""}});
  EXPECT_EQ(topology.nic_bandwidth().bytes_per_second, 12.5e9);
  EXPECT_EQ(topology.nvlink_bandwidth().bytes_per_second, 300e9);
  for (const TopologyLink& link : topology.links()) {
    if (link.kind == "nic") {
      EXPECT_EQ(link.bandwidth.bytes_per_second, 12.5e9);
    }
    // The fabric is sized to its NICs: two of 12.5 GB/s.
    if (link.kind == "leaf-spine") {
      EXPECT_EQ(link.bandwidth.bytes_per_second, 25e9);
    }
    if (link.kind == "nvlink") {
      EXPECT_EQ(link.latency.picoseconds, 7);
    }
  }
  const Topology narrow =
      topology_of(kSmallCluster, 8, {{"leaf-spine", Bandwidth{1e9}, std::nullopt, ""}});
  for (const TopologyLink& link : narrow.links()) {
    if (link.kind == "leaf-spine") {
      EXPECT_EQ(link.bandwidth.bytes_per_second, 1e9);
    }
  }
}

TEST(TopologyReader, OverridesEachOfTheNicsThatServeOneGpu) {
  const std::string striped = changed(kSmallCluster, {{"\"count\": 2", "\"count\": 4"}});
  EXPECT_EQ(topology_of(striped, 2).nic_bandwidth().bytes_per_second, 50e9);
  EXPECT_EQ(topology_of(striped, 2, {{"nic", Bandwidth{1e9}, std::nullopt, ""}})
                .nic_bandwidth()
                .bytes_per_second,
            2e9);
}

TEST(TopologyReader, RefusesOverridesThatChangeNothing) {
  EXPECT_EQ(problems_of(kSmallCluster, 2,
                        {{"nics", Bandwidth{1e9}, std::nullopt, "/cluster/links/nics"}}),
            "job.json: /cluster/links/nics: \"nics\" is no kind of link of small; did you mean "
            "\"nic\"? (it has nvlink, pcie, nic or leaf-spine)");
  EXPECT_EQ(
      problems_of(kSmallCluster, 2, {{"nic", Bandwidth{0}, std::nullopt, "/cluster/links/nic"}}),
      "job.json: /cluster/links/nic: a bandwidth of 0; expected more");
}

TEST(TopologyReader, NamesThePresetsWhereOneIsMisspelt) {
  Problems problems;
  EXPECT_FALSE(read_topology("dgx-a10", 8, {}, JsonNode::parse_text("null", "job.json"), problems));
  EXPECT_THAT(
      lines_of(problems),
      AllOf(HasSubstr("job.json: \"dgx-a10\" is no known topology; did you mean \"dgx-a100\"?"),
            HasSubstr("or a path")));
}

TEST(TopologyReader, ReportsAFileThatIsNotThereOrNoJson) {
  const JsonNode place = JsonNode::parse_text("null", "job.json");
  Problems missing;
  EXPECT_FALSE(read_topology("no/such.json", 8, {}, place, missing));
  EXPECT_THAT(lines_of(missing), HasSubstr("no/such.json"));
  EXPECT_THAT(check_topology("no/such.json"), testing::SizeIs(1));
  EXPECT_THAT(check_topology("dgx-a101"), testing::SizeIs(1));
}

TEST(TopologyReader, ChecksAFileForEveryProblem) {
  const std::string path = testing::TempDir() + "/headway_checked_topology.json";
  write_file(path, changed(kSmallCluster, {{"300 GB/s", "0 GB/s"}, {"\"amd\"", "\"via\""}}));
  const std::vector<Problem> problems = check_topology(path);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].file, path);
  EXPECT_EQ(problems[0].pointer, "/node/gpu_fabric/bandwidth");
  EXPECT_EQ(problems[1].pointer, "/node/cpu/vendor");
  write_file(path, kSmallCluster);
  EXPECT_TRUE(check_topology(path).empty());
}

TEST(TopologyReader, ReadsAPathAsAPreset) {
  Problems problems;
  const auto topology = read_topology(source_dir() + "/topologies/dgx-h100.json", 16, {},
                                      JsonNode::parse_text("null", "job.json"), problems);
  EXPECT_EQ(lines_of(problems), "");
  EXPECT_EQ(topology->name(), "dgx-h100");
}

}  // namespace
}  // namespace headway
