// Measured collectives held against what they cost here, point by point, with the algorithm and
// protocol that NCCL's model chooses: where curves cross over can be seen. Nothing that a point was
// fitted to predicts it: inside a node the measured curve of its own operation and group size is
// left out, so that it is priced by the curve of another size or by NCCL's model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/evidence.hpp"
#include "sim/cost/points.hpp"

namespace headway {

// NICs of a server as an option, "8x400 Gbit/s", out of a network's name ("IB NDR 8x400G CX7");
// nothing where it does not say how many and how fast.
std::optional<std::string> nics_in(const std::string& network);
// Whether NCCL itself drives the network, over InfiniBand or RoCE, and the source is sure of it:
// clouds' own transports and reductions in switches are described by nobody's constants.
bool is_plain_network(const std::string& network);

struct CheckedCollective {
  const CollectiveRow* row = nullptr;
  std::string device;   // of the profile asked
  bool inside = false;  // of one node or NVLink domain
  bool stated = false;  // GPU, network and ranks are, and NCCL drives the network
  double predicted_us = 0;
  std::string algorithm, protocol;
  Grade grade = Grade::kFitted;
  std::string skipped;  // why there is no prediction; empty where there is one
};

// Of every collective of the set, in order, by the shipped profile of its device. REQUIRES:
// `points` outlives the result.
std::vector<CheckedCollective> check_collectives(const PointSet& points);

// "gpu,op,nranks,gpus_per_node,nic,bytes,measured_us,predicted_us,algorithm,protocol,grade,stated,
// source", a line each; those without a prediction are left out.
std::string collectives_csv(const std::vector<CheckedCollective>& checked);

}  // namespace headway
