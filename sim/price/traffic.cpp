#include "sim/price/traffic.hpp"

#include <map>
#include <tuple>
#include <variant>

namespace headway {

namespace {

// Bytes out of a rank, for the kinds where as many come in.
Bytes ring_bytes(const Collective& collective, int group_size) {
  const std::int64_t whole = size(collective).count;
  const std::int64_t others = group_size - 1;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return {2 * others * whole / group_size};
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kAllToAll:
      return {others * whole / group_size};
    case CollectiveKind::kShift:
      return {whole};
    case CollectiveKind::kSend:
    case CollectiveKind::kReceive:
      break;
  }
  return {};
}

}  // namespace

Bytes sent_bytes(const Collective& collective, int group_size) {
  if (collective.kind == CollectiveKind::kSend) return size(collective);
  return ring_bytes(collective, group_size);
}

Bytes received_bytes(const Collective& collective, int group_size) {
  if (collective.kind == CollectiveKind::kReceive) return size(collective);
  return ring_bytes(collective, group_size);
}

std::vector<TrafficLine> traffic(const Program& program, const RankKind& kind) {
  std::vector<std::int64_t> issues(kind.passes.size(), 0);
  for (const Issue& issue : kind.order) ++issues[static_cast<std::size_t>(issue.pass)];
  std::vector<std::int64_t> uses(program.templates.size(), 0);
  for (std::size_t p = 0; p < kind.passes.size(); ++p) {
    for (const Step& step : kind.passes[p].steps) {
      uses[static_cast<std::size_t>(step.template_index)] += issues[p];
    }
  }
  std::map<std::tuple<Cause, CollectiveKind, std::string>, TrafficLine> lines;
  for (std::size_t t = 0; t < program.templates.size(); ++t) {
    if (uses[t] == 0) continue;
    for (const TemplateOperation& operation : program.templates[t].operations) {
      const auto* collective = std::get_if<Collective>(&operation.operation);
      if (collective == nullptr) continue;
      const bool message = operation.group < 0;
      std::string group = operation.peer_axis;
      int ranks = 2;
      if (!message) {
        const GroupFamily& family = program.groups[static_cast<std::size_t>(operation.group)];
        group = family.name;
        ranks = program.grid.group_size(family);
      }
      if (ranks < 2) continue;
      TrafficLine& line = lines[{operation.cause, collective->kind, group}];
      line.cause = operation.cause;
      line.kind = collective->kind;
      line.group = group;
      line.size = ranks;
      line.count += uses[t];
      line.sent += sent_bytes(*collective, ranks) * uses[t];
      line.received += received_bytes(*collective, ranks) * uses[t];
    }
  }
  std::vector<TrafficLine> result;
  for (auto& [key, line] : lines) result.push_back(std::move(line));
  return result;
}

}  // namespace headway
