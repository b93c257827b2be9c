#include "sim/program/data/offload.hpp"

#include <utility>

namespace headway::offload {

namespace {

int copy(OperationList& list, KernelKind kind, int stream, const std::string& name,
         std::vector<BufferRef> from, std::vector<BufferRef> to, std::int64_t elements,
         DataType type, Cause cause, std::vector<int> after) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = elements;
  kernel.columns = 1;
  kernel.type = kernel.output = type;
  const int index = list.add(name, kernel, std::move(from), std::move(to), cause);
  list.last().stream = stream;
  list.last().after = std::move(after);
  return index;
}

}  // namespace

int down(ProgramBuilder& builder) { return builder.stream("to_host"); }
int up(ProgramBuilder& builder) { return builder.stream("to_device"); }
int cores(ProgramBuilder& builder) { return builder.stream("host_cores"); }

int to_host(ProgramBuilder& builder, OperationList& list, const std::string& name,
            std::vector<BufferRef> from, std::vector<BufferRef> to, std::int64_t elements,
            DataType type, Cause cause, std::vector<int> after) {
  return copy(list, KernelKind::kToHost, down(builder), name, std::move(from), std::move(to),
              elements, type, cause, std::move(after));
}

int to_device(ProgramBuilder& builder, OperationList& list, const std::string& name,
              std::vector<BufferRef> from, std::vector<BufferRef> to, std::int64_t elements,
              DataType type, Cause cause, std::vector<int> after) {
  return copy(list, KernelKind::kToDevice, up(builder), name, std::move(from), std::move(to),
              elements, type, cause, std::move(after));
}

void move_to_cores(ProgramBuilder& builder, OperationList& list, int first) {
  const int host = cores(builder);
  bool waited = false;
  for (int o = first; o < list.size(); ++o) {
    TemplateOperation& operation = list.at(o);
    auto* kernel = std::get_if<Kernel>(&operation.operation);
    const bool copies = operation.stream == down(builder) || operation.stream == up(builder);
    if (kernel != nullptr && !copies && kernel->rows * kernel->columns > 1) {
      kernel->on_host = true;
      operation.stream = host;
      if (!std::exchange(waited, true)) operation.joins = {0, down(builder)};
    }
    if (o == first) continue;
    // The cores go on with the next share while the one before goes up.
    const int before = list.at(o - 1).stream;
    const bool goes_on = operation.stream == host && before != 0 && before != down(builder);
    if (before != operation.stream && !goes_on) operation.after.push_back(o - 1);
  }
}

}  // namespace headway::offload
