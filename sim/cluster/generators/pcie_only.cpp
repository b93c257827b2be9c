// GPUs without links of their own: the server's PCIe switches and CPUs, which every server has,
// carry everything.
#include "sim/cluster/generators.hpp"

namespace headway {

void connect_pcie_only(GraphBuilder&) {}

}  // namespace headway
