// The matrix that `nvidia-smi topo -m` prints: how each GPU and NIC reaches each other one (NV12:
// twelve NVLinks; PIX, PXB: through PCIe switches; PHB, NODE: through the host bridge of a socket;
// SYS: between sockets). It states neither which GPUs these are nor how fast their NICs.
#pragma once

#include <string>
#include <string_view>

#include "sim/formats/node_draft.hpp"

namespace headway {

// Throws InvalidInput with the line: no such matrix, a row that does not fit, a word that is none
// of those, GPUs joined as no generator joins them.
NodeDraft import_nvidia_smi(std::string_view text, const std::string& file);

}  // namespace headway
