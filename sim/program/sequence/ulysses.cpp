#include "sim/program/sequence/ulysses.hpp"

namespace headway::ulysses {

void exchange(ProgramBuilder& builder, OperationList& list, const std::string& name, int from,
              int to) {
  Collective collective;
  collective.kind = CollectiveKind::kAllToAll;
  collective.elements = builder.program().buffers[static_cast<std::size_t>(from)].elements();
  collective.type = builder.shape().storage;
  list.add(name, collective, {{from}}, {{to}}, Cause::kContextParallel);
  list.last().group = builder.heads_group();
}

}  // namespace headway::ulysses
