// NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it and NCCL_TOPO_FILE takes it: CPUs, PCI
// bridges, GPUs with their NVLinks, NICs with their speeds. Files for virtual machines have PCI
// devices alone: there GPUs and NICs are known by their PCI class, and speeds are missing.
#pragma once

#include <string>
#include <string_view>

#include "sim/formats/node_draft.hpp"

namespace headway {

// NICs that no GPU is near (under a common PCI bridge below the CPU) are left out where others are:
// NCCL does not use them either. Throws InvalidInput: no such file, no GPUs, several hosts, GPUs
// joined as no generator joins them, NICs that GPUs cannot divide.
NodeDraft import_nccl_topology(std::string_view text, const std::string& file);

}  // namespace headway
