#include <gmock/gmock.h>

#include "tests/cluster/clusters.hpp"

namespace headway {
namespace {

using testing::HasSubstr;

std::string torus(const std::string& dimensions) {
  return changed(kSmallCluster, {{"\"max_nodes\": 64", "\"max_nodes\": 6"},
                                 {R"("generator": "rail-leaf-spine", "leaf_nodes": 2)",
                                  R"("generator": "torus", "dimensions": )" + dimensions}});
}

TEST(Torus, JoinsNeighboursAroundEachDimension) {
  const Topology topology = topology_of(torus("[2, 3]"), 12);
  EXPECT_EQ(count(topology, NodeKind::kLeaf), 6);
  // Three pairs along the dimension of two, two rings of three along the other.
  EXPECT_EQ(count(topology, "torus"), 2 * (3 + 6));
  // Server 5 stands at (1, 2): one step along each, around the second.
  EXPECT_THAT(way(topology, 0, 10), HasSubstr(" switch0 switch4 switch5 node5/"));
  EXPECT_THAT(way(topology, 0, 11), HasSubstr(" switch0 switch1 switch5 node5/"));
}

TEST(Torus, KeepsSwitchesThatHaveNoServerYet) {
  EXPECT_EQ(count(topology_of(torus("[2, 3]"), 2), NodeKind::kLeaf), 6);
}

TEST(Torus, RefusesSizesThatAreNone) {
  for (const char* wrong : {"[]", "[2, 0]", "[2, \"3\"]", "[1000000, 1000000, 1000000]"}) {
    EXPECT_THAT(problems_of(torus(wrong)),
                HasSubstr("t.json: /network/dimensions: expected a list of whole numbers from 1"))
        << wrong;
  }
  EXPECT_THAT(problems_of(torus("[2, 2]")), HasSubstr("joins 8 NICs, and 6 nodes have 12"));
}

}  // namespace
}  // namespace headway
