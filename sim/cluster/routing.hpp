// Which links a transfer between two GPUs takes.
//
//   inside an NVLink domain   the fewest NVLink hops, through a switch or, where two GPUs have no
//   link
//                             in common (hybrid cube mesh), through a GPU that both have one with
//   inside a server without   PCI Express: switches and CPUs
//   else                      GPU -> its NIC -> leaf (-> spine (-> core -> spine) -> leaf) -> the
//                             receiver's NIC -> GPU
//
// A GPU's NIC is the one of its rail: GPUs divide a server's NICs in blocks. Where the network sets
// `rails_over_nvlink`, a transfer between different rails changes rail before it leaves: sender GPU
// -> NVLink -> the GPU of its server on the receiver's rail -> that GPU's NIC, so that it meets no
// spine. NCCL does so from 2.12 on (PXN; facts 4.4).
//
// Of several ways with the fewest hops the widest is taken, and of equally wide ones the one with
// the receiver's number modulo their count (in the order of the links they end with), as
// InfiniBand's fat-tree routing spreads destinations (d-mod-k); where there is a choice at several
// layers, each takes its part of the number. A network may ask for a hash of both ends instead, as
// ECMP does. Leaf-spine networks leave no choice where their spine layers are one vertex
// (generators/leaf_spine.cpp).
//
// Dead links are no links: routes go round them, and a GPU whose NIC has no way out uses the next
// one of its server that has.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cluster/generators.hpp"
#include "sim/cluster/topology.hpp"

namespace headway {

// Which links a part of a route may take.
enum class Reach : std::uint8_t {
  kFabric,   // nvlink, memory: between GPUs
  kServer,   // pcie, socket: inside a server; never through a GPU or NIC
  kOutside,  // nic, leaf-spine, spine-core: between NICs, through switches
};

// Answers for one graph, from any thread.
class Router {
 public:
  // `dead`: links that are not used. REQUIRES: the graph outlives the router.
  explicit Router(const ClusterGraph& graph, const std::vector<LinkId>& dead = {});
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // The links in order; empty where there is no way (or from equals to). `spread` chooses among
  // equals.
  std::vector<LinkId> path(VertexId from, VertexId to, Reach reach, std::uint64_t spread = 0) const;

  // Whether a link that is not dead leads from the vertex outwards, and one back.
  bool reaches_outside(VertexId vertex) const;

  // For each vertex the number of its strongly connected component, all links taken together.
  std::vector<int> components() const;

 private:
  struct Adjacency;
  std::unique_ptr<const Adjacency> adjacency_;
};

}  // namespace headway
