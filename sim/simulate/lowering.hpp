// Program x cost -> TaskGraph: the only seam between what is done and what it takes. Each rank
// class of the folded job becomes a device, each pass a task template, each issue an instance;
// collectives over one class whose links cannot bind become fixed tasks, all others activities.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/topology.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/plan/software.hpp"
#include "sim/program/program.hpp"
#include "sim/simulate/encounters.hpp"
#include "sim/simulate/folding.hpp"
#include "sim/simulate/operation_pricer.hpp"

namespace headway {

struct LoweringInput {
  const Program& program;
  const Topology& topology;
  const Profile& profile;
  const Software& software;
  MachineWhatIf machine;
  bool unfolded = false;
  const PriceBook* prices = nullptr;  // of the profile, shared by many steps; nullptr: its own
  int first_gpu = 0;                  // of the topology: where rank 0 sits
};

// Where a task of a TaskTemplate comes from.
struct TaskOrigin {
  int step = 0;  // of the pass
  int template_index = 0;
  int operation = 0;  // of the template
  int price = 0;      // LoweredStep::prices
};

// Where an instance comes from.
struct InstanceOrigin {
  int device = 0;
  int issue = 0;  // of its kind's order
};

struct LoweredStep {
  TaskGraph graph;
  Partition partition;
  std::vector<int> device_rank;  // the representative rank of each device
  std::vector<int> device_kind;  // Program::kinds
  std::vector<OperationPrice> prices;
  std::vector<std::vector<TaskOrigin>> origins;  // by TaskTemplate, by task
  std::vector<InstanceOrigin> instances;         // parallel to graph.instances
};

// Throws InvalidInput where the profile lacks what an operation needs, and where dead links leave
// no way.
LoweredStep lower_to_tasks(const LoweringInput& input);

// Several jobs on one topology, side by side: their graphs have the same links, which they share
// when played together. REQUIRES: one topology and machine; none or all unfolded; no GPU twice.
std::vector<LoweredStep> lower_together(const std::vector<LoweringInput>& inputs);

}  // namespace headway
