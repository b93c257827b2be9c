#include "sim/cluster/routing.hpp"

#include <gmock/gmock.h>

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two NICs under two leaves that two or three spines join:  0 nic, 1 nic, 2 leaf, 3 leaf, 4..
// spines.
ClusterGraph fabric(const std::vector<double>& spines) {
  ClusterGraph graph;
  const auto add = [&](NodeKind kind) { graph.vertices.push_back({kind, "", -1, -1}); };
  const auto connect = [&](int a, int b, double bandwidth, const char* kind) {
    graph.links.push_back({a, b, kind, {bandwidth}, {}, 1});
    graph.links.push_back({b, a, kind, {bandwidth}, {}, 1});
  };
  for (const NodeKind kind : {NodeKind::kNic, NodeKind::kNic, NodeKind::kLeaf, NodeKind::kLeaf}) {
    add(kind);
  }
  connect(0, 2, 10, kNicLink);  // links 0, 1
  connect(1, 3, 10, kNicLink);  // links 2, 3
  for (const double width : spines) {
    add(NodeKind::kSpine);
    const int spine = static_cast<int>(graph.vertices.size()) - 1;
    connect(2, spine, width, kLeafSpine);  // links 4 + 4 i, 5 + 4 i
    connect(spine, 3, width, kLeafSpine);  // links 6 + 4 i, 7 + 4 i
  }
  return graph;
}

TEST(Router, SpreadsReceiversOverEqualSpinesInTurn) {
  const ClusterGraph graph = fabric({5, 5, 5});
  const Router router(graph);
  EXPECT_THAT(router.path(0, 1, Reach::kOutside, 0), ElementsAre(0, 4, 6, 3));
  EXPECT_THAT(router.path(0, 1, Reach::kOutside, 1), ElementsAre(0, 8, 10, 3));
  EXPECT_THAT(router.path(0, 1, Reach::kOutside, 2), ElementsAre(0, 12, 14, 3));
  EXPECT_THAT(router.path(0, 1, Reach::kOutside, 3), ElementsAre(0, 4, 6, 3));
}

TEST(Router, TakesTheWidestOfTheShortest) {
  // The second spine is found later, and twice as wide as the others.
  const ClusterGraph graph = fabric({3, 6, 3});
  const Router router(graph);
  for (int spread = 0; spread < 3; ++spread) {
    EXPECT_THAT(router.path(0, 1, Reach::kOutside, spread), ElementsAre(0, 8, 10, 3));
  }
}

TEST(Router, FindsNoWayWhereThereIsNone) {
  const ClusterGraph apart = fabric({});
  const Router router(apart);
  EXPECT_THAT(router.path(0, 1, Reach::kOutside), IsEmpty());
  EXPECT_THAT(router.path(0, 2, Reach::kServer), IsEmpty());
  EXPECT_THAT(router.path(0, 2, Reach::kOutside), ElementsAre(0));
  const std::vector<int> components = router.components();
  EXPECT_EQ(components[0], components[2]);
  EXPECT_NE(components[0], components[1]);
}

TEST(Router, NeverPassesThroughANic) {
  // A NIC with two ports joins two leaves, but forwards nothing.
  ClusterGraph graph = fabric({});
  graph.vertices.push_back({NodeKind::kNic, "", -1, -1});
  for (const int leaf : {2, 3}) {
    graph.links.push_back({leaf, 4, kNicLink, {10}, {}, 1});
    graph.links.push_back({4, leaf, kNicLink, {10}, {}, 1});
  }
  EXPECT_THAT(Router(graph).path(0, 1, Reach::kOutside), IsEmpty());
  EXPECT_EQ(Router(graph).path(0, 4, Reach::kOutside).size(), 2U);
}

}  // namespace
}  // namespace headway
