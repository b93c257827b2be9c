#include "sim/simulate/traffic.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/engine/simulator.hpp"

namespace headway {

namespace {

int index(std::size_t value) { return static_cast<int>(value); }

std::string label(const Topology& topology, const Transfer& transfer) {
  const auto name = [&](int gpu) {
    return topology.vertices()[static_cast<std::size_t>(gpu)].name;
  };
  return name(transfer.from) + " to " + name(transfer.to);
}

}  // namespace

TaskGraph traffic_graph(const Topology& topology, const std::vector<Transfer>& transfers,
                        const std::vector<double>& shares) {
  TaskGraph graph;
  graph.devices = index(transfers.size());
  const std::vector<TopologyLink>& links = topology.links();
  for (std::size_t l = 0; l < links.size(); ++l) {
    graph.links.push_back({links[l].bandwidth.bytes_per_second * (shares.empty() ? 1 : shares[l])});
  }
  // Templates by (start, number of transfers awaited, whether others wait for it).
  std::map<std::tuple<Time, std::size_t, bool>, int> templates;
  std::vector<bool> awaited(transfers.size(), false);
  for (const Transfer& transfer : transfers) {
    for (const int before : transfer.after) awaited[static_cast<std::size_t>(before)] = true;
  }
  std::vector<int> port(transfers.size(), kNoIndex);
  for (std::size_t t = 0; t < transfers.size(); ++t) {
    const Transfer& transfer = transfers[t];
    Activity activity;
    activity.first_load = index(graph.loads.size());
    for (const LinkId link : topology.route(transfer.from, transfer.to)) {
      graph.loads.push_back({link, 1});
      activity.latency += links[static_cast<std::size_t>(link)].latency;
    }
    activity.load_count = index(graph.loads.size()) - activity.first_load;
    if (activity.load_count == 0) {
      throw InvalidInput("transfers", "/transfers/" + std::to_string(t),
                         "there is no way from " + label(topology, transfer));
    }
    activity.work = transfer.bytes.count;
    activity.weight = transfer.connections;
    graph.activities.push_back(activity);

    const auto [found, is_new] = templates.try_emplace(
        {transfer.start, transfer.after.size(), awaited[t]}, index(graph.templates.size()));
    if (is_new) {
      Task wait, move;
      wait.duration = transfer.start;
      for (std::size_t i = 0; i < transfer.after.size(); ++i) wait.awaits.push_back(index(i));
      move.activity = 0;
      move.after = {0};
      if (awaited[t]) move.releases = {0};
      graph.templates.push_back({{wait, move}});
    }
    Instance instance;
    instance.device = index(t);
    instance.task_template = found->second;
    instance.first_awaited = index(graph.awaited_ports.size());
    for (const int before : transfer.after) {
      graph.awaited_ports.push_back(port[static_cast<std::size_t>(before)]);
    }
    instance.first_released = index(graph.released_ports.size());
    if (awaited[t]) graph.released_ports.push_back(port[t] = graph.ports++);
    instance.first_activity = index(graph.bound_activities.size());
    graph.bound_activities.push_back(index(t));
    graph.instances.push_back(instance);
  }
  return graph;
}

std::vector<TransferTimes> play_traffic(const Topology& topology,
                                        const std::vector<Transfer>& transfers,
                                        const std::vector<double>& shares) {
  SimulateOptions options;
  options.detail = Detail::kTasks;
  const Timeline timeline = simulate(traffic_graph(topology, transfers, shares), options);
  std::vector<TransferTimes> times(transfers.size());
  for (const Span& span : timeline.spans) {
    if (span.task == 1) times[static_cast<std::size_t>(span.device)] = {span.start, span.end};
  }
  return times;
}

std::vector<Transfer> read_transfers(const JsonNode& node, const Topology& topology,
                                     Problems& problems) {
  ObjectReader reader(node, problems);
  std::vector<Transfer> transfers;
  std::unordered_map<std::string, int> by_name;
  const auto array = reader.array("transfers");
  if (!array && !reader.has("transfers")) {
    reader.problem("transfers", "missing; expected a list of transfers");
  }
  reader.finish();
  if (!array) return transfers;
  constexpr std::int64_t kMostConnections = 1 << 16;
  for (const JsonNode& element : array->elements()) {
    ObjectReader one(element, problems);
    Transfer transfer;
    const std::int64_t last = topology.gpus() - 1;
    transfer.from = static_cast<int>(one.require_integer("from", {.min = 0, .max = last}));
    transfer.to = static_cast<int>(one.require_integer("to", {.min = 0, .max = last}));
    if (transfer.from == transfer.to && one.has("to")) {
      one.problem("to", "a transfer from a GPU to itself");
    }
    transfer.bytes = one.require_bytes("bytes");
    if (transfer.bytes.count <= 0 && one.has("bytes")) {
      one.problem("bytes", "no bytes; expected more than 0");
    }
    if (one.has("start")) transfer.start = one.require_time("start");
    transfer.connections = static_cast<int>(
        one.integer("connections", {.min = 1, .max = kMostConnections}).value_or(1));
    transfer.name = one.string("name").value_or("");
    for (const std::string& before : one.strings("after").value_or(std::vector<std::string>{})) {
      const auto found = by_name.find(before);
      if (found == by_name.end()) {
        one.problem("after", "\"" + before + "\" is no transfer before this one");
      } else {
        transfer.after.push_back(found->second);
      }
    }
    if (!transfer.name.empty() && !by_name.emplace(transfer.name, index(transfers.size())).second) {
      one.problem("name", "\"" + transfer.name + "\" is given twice");
    }
    one.finish();
    transfers.push_back(std::move(transfer));
  }
  return transfers;
}

}  // namespace headway
