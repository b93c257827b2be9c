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
// InfiniBand's fat-tree routing spreads destinations (d-mod-k). Generated networks leave no such
// choice: their spine layers are one vertex (generators/leaf_spine.cpp).
#pragma once

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
  // REQUIRES: the graph outlives the router.
  explicit Router(const ClusterGraph& graph);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // The links in order; empty where there is no way (or from equals to). `spread` chooses among
  // equals.
  std::vector<LinkId> path(VertexId from, VertexId to, Reach reach, int spread = 0) const;

  // For each vertex the number of its strongly connected component, all links taken together.
  std::vector<int> components() const;

 private:
  struct Adjacency;
  std::unique_ptr<const Adjacency> adjacency_;
};

}  // namespace headway
