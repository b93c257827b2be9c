// Transfers between GPUs of a cluster as activities on its links: what traffic takes on a fabric,
// without a training job. Each transfer takes the route that the topology gives it and shares every
// link max-min fairly with the others, weighted by its connections.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/task_graph.hpp"

namespace headway {

struct Transfer {
  int from = 0, to = 0;  // GPUs of the cluster
  Bytes bytes;
  Time start;              // not before; counted from the end of what it comes after
  std::vector<int> after;  // earlier transfers that must have ended
  int connections = 1;     // its weight where links are shared
  std::string name;
};

// An activity for each transfer, which begins with its route's latency. `shares`: what is left of
// each link (cluster/link_names.hpp); empty: all of all. Throws InvalidInput for a transfer without
// a way. REQUIRES: different GPUs of the topology; `after` points backwards.
TaskGraph traffic_graph(const Topology& topology, const std::vector<Transfer>& transfers,
                        const std::vector<double>& shares = {});

struct TransferTimes {
  Time start, end;
};
// Of each transfer, when all are played.
std::vector<TransferTimes> play_traffic(const Topology& topology,
                                        const std::vector<Transfer>& transfers,
                                        const std::vector<double>& shares = {});

// {"transfers": [{"name": "a", "from": 0, "to": 9, "bytes": "1 GiB", "start": "1 ms",
//                 "after": ["b"], "connections": 2}, ...]}; all but from, to and bytes may be
// absent. Problems name the place.
std::vector<Transfer> read_transfers(const JsonNode& node, const Topology& topology,
                                     Problems& problems);

}  // namespace headway
