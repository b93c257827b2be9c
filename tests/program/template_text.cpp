#include "tests/program/template_text.hpp"

#include <sstream>
#include <stdexcept>

namespace headway {

namespace {

class OperationText {
 public:
  std::string operator()(const Gemm& gemm) const {
    std::ostringstream out;
    out << "gemm " << name(gemm.role) << " " << gemm.m << " x " << gemm.n << " x " << gemm.k << " "
        << name(gemm.type);
    if (gemm.output != gemm.type) out << " to " << name(gemm.output);
    if (gemm.accumulate) out << " accumulating";
    return out.str();
  }
  std::string operator()(const Attention& attention) const {
    std::ostringstream out;
    out << "attention " << (attention.backward ? "backward " : "forward ") << name(attention.kernel)
        << " " << attention.batch << " x " << attention.heads << "/" << attention.kv_heads
        << " heads x " << attention.sequence_q << " x " << attention.head_dim;
    if (attention.dropout) out << " dropping";
    return out.str();
  }
  std::string operator()(const Kernel& kernel) const {
    std::ostringstream out;
    out << name(kernel.kind) << " " << kernel.rows << " x " << kernel.columns << " "
        << name(kernel.type);
    if (kernel.output != kernel.type) out << " to " << name(kernel.output);
    if (kernel.bias) out << " with bias";
    if (!kernel.fused) out << " unfused";
    if (kernel.scale != 1) out << " times " << kernel.scale;
    return out.str();
  }
  std::string operator()(const GroupedGemm& gemm) const {
    std::ostringstream out;
    out << "grouped gemm " << name(gemm.role) << " " << gemm.groups << " experts, " << gemm.m
        << " x " << gemm.n << " x " << gemm.k << " " << name(gemm.type);
    if (gemm.output != gemm.type) out << " to " << name(gemm.output);
    if (gemm.accumulate) out << " accumulating";
    return out.str();
  }
  std::string operator()(const Routing& routing) const {
    std::ostringstream out;
    out << name(routing.kind) << " " << routing.tokens << " tokens x " << routing.per_token << "/"
        << routing.experts << ", " << routing.rows << " rows x " << routing.columns;
    if (routing.capacity > 0) out << ", capacity " << routing.capacity;
    return out.str();
  }
  std::string operator()(const Collective& collective) const {
    std::ostringstream out;
    out << name(collective.kind) << " " << collective.elements << " " << name(collective.type);
    if (collective.reduce != ReduceOperator::kSum) out << " " << name(collective.reduce);
    if (collective.shares != Shares::kEqual) out << " " << name(collective.shares);
    return out.str();
  }
  std::string operator()(const HostWork& host) const {
    return "host " + std::string(name(host.kind));
  }
};

template <typename Families>
std::string reference(const Families& families, int family, int layer) {
  std::string text = families[static_cast<std::size_t>(family)].name;
  if (layer != 0) text += (layer > 0 ? "[+" : "[") + std::to_string(layer) + "]";
  return text;
}

}  // namespace

std::string to_text(const Program& program, const Template& list) {
  std::ostringstream out;
  out << list.name << "\n";
  for (const TemplateOperation& operation : list.operations) {
    out << "  ";
    if (operation.stream != 0) {
      out << "[" << program.streams[static_cast<std::size_t>(operation.stream)] << "] ";
    }
    out << operation.name << " | " << std::visit(OperationText{}, operation.operation);
    if (operation.group >= 0) {
      out << " over " << program.groups[static_cast<std::size_t>(operation.group)].name;
    }
    out << " |";
    for (const BufferRef& read : operation.reads) {
      out << " " << reference(program.buffers, read.family, read.layer);
    }
    out << " ->";
    for (const BufferRef& write : operation.writes) {
      out << " " << reference(program.buffers, write.family, write.layer);
    }
    for (const int after : operation.after) {
      out << " after " << list.operations[static_cast<std::size_t>(after)].name;
    }
    for (const int stream : operation.joins) {
      out << " joins " << program.streams[static_cast<std::size_t>(stream)];
    }
    for (const PortRef& port : operation.awaits) {
      out << " awaits " << reference(program.ports, port.family, port.layer);
    }
    for (const PortRef& port : operation.releases) {
      out << " releases " << reference(program.ports, port.family, port.layer);
    }
    if (operation.host_waits) out << " host waits";
    out << "\n";
  }
  return out.str();
}

const Template& template_named(const Program& program, const std::string& name) {
  for (const Template& list : program.templates) {
    if (list.name == name) return list;
  }
  throw std::invalid_argument("no template " + name);
}

}  // namespace headway
