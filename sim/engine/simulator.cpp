#include "sim/engine/simulator.hpp"

#include "sim/engine/player.hpp"

namespace headway {

Timeline simulate(const TaskGraph& graph, const SimulateOptions& options) {
  return engine::Player(graph, options).play();
}

}  // namespace headway
