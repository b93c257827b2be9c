#include <CLI/CLI.hpp>
#include <ostream>

#include "sim/cluster/dead_links.hpp"
#include "sim/cluster/link_names.hpp"
#include "sim/cluster/topology_reader.hpp"
#include "sim/cluster/topology_text.hpp"
#include "sim/commands/command.hpp"
#include "sim/commands/machine_options.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"
#include "sim/simulate/traffic.hpp"

namespace headway {

namespace {

struct TopologyArguments {
  std::string cluster, dot, traffic, json;
  std::vector<std::string> degrade;
  int gpus = 0, nodes = 0;
  std::optional<std::string> nic;
  std::optional<double> oversubscription;
  std::vector<int> route;
  bool check = false;
};

constexpr int kMostGpus = 1 << 20;  // as a job's

void add_options(CLI::App& app, TopologyArguments& arguments) {
  app.add_option("cluster", arguments.cluster, "preset, topology file, or a GPU's name (h100)")
      ->required();
  app.add_option("--gpus", arguments.gpus, "GPUs; absent: those of one node")
      ->check(CLI::Range(1, kMostGpus));
  app.add_option("--nodes", arguments.nodes, "servers, instead of --gpus")
      ->check(CLI::Range(1, kMostGpus));
  app.add_option("--nic", arguments.nic, "of a GPU's name: NICs of a server, \"8x400 Gbit/s\"")
      ->type_name("COUNTxBANDWIDTH");
  app.add_option("--oversubscription", arguments.oversubscription,
                 "of a GPU's name: what a leaf's servers can send over what its uplinks carry")
      ->type_name("FACTOR");
  app.add_option("--route", arguments.route, "print the links between two ranks")
      ->expected(2)
      ->type_name("A B");
  app.add_option("--dot", arguments.dot, "write Graphviz text; - is standard output")
      ->type_name("FILE");
  app.add_option("--traffic", arguments.traffic,
                 "play transfers between GPUs (JSON: a list \"transfers\" of from, to, bytes, and "
                 "start, after, connections, name) and print when each begins and ends")
      ->type_name("FILE");
  app.add_option("--json", arguments.json,
                 "of --traffic: write the times as JSON; - is standard "
                 "output")
      ->type_name("FILE");
  app.add_option(kDegrade, arguments.degrade, kDegradeHelp)
      ->allow_extra_args(false)
      ->type_name("LINK=SHARE");
  app.add_flag("--check", arguments.check,
               "only check: the file, and the graphs made from it at several sizes");
  app.footer("example: headway topology dgx-a100 --gpus 64 --route 0 13");
}

// Nothing where problems were added.
std::optional<Topology> read(const TopologyArguments& arguments, Problems& problems) {
  if (names_one_line_cluster(arguments.cluster)) {
    ClusterOptions options{.gpu = arguments.cluster,
                           .gpus = arguments.gpus,
                           .nodes = arguments.nodes,
                           .nic = arguments.nic,
                           .oversubscription = arguments.oversubscription};
    if (options.gpus == 0 && options.nodes == 0) options.nodes = 1;
    return cluster_in_one_line(options, problems);
  }
  if (arguments.nic) problems.add("--nic", "", "needs a GPU's name as cluster, such as h100");
  if (arguments.oversubscription) {
    problems.add("--oversubscription", "", "needs a GPU's name as cluster, such as h100");
  }
  const JsonNode place = JsonNode::parse_text("{}", "cluster");
  int gpus = arguments.gpus;
  if (gpus == 0) {
    const auto one = read_topology(arguments.cluster, 1, {}, place, problems);
    if (!one) return std::nullopt;
    const std::int64_t all =
        static_cast<std::int64_t>(std::max(1, arguments.nodes)) * one->gpus_per_node();
    gpus = static_cast<int>(std::min(all, std::int64_t{2} * kMostGpus));
  }
  return read_topology(arguments.cluster, gpus, {}, place, problems);
}

// The links that are left, and what is left of each; empty where all is sound.
struct Links {
  Topology topology;
  std::vector<double> shares;
};

Links degraded(const Topology& topology, const TopologyArguments& arguments, Problems& problems) {
  const std::map<std::string, double> names = read_degraded(arguments.degrade, problems);
  if (names.empty()) return {topology, {}};
  std::vector<double> shares = link_shares(topology, names, kDegrade, problems);
  std::vector<LinkId> dead;
  for (std::size_t link = 0; link < shares.size(); ++link) {
    if (shares[link] == 0) dead.push_back(static_cast<LinkId>(link));
  }
  return {dead.empty() ? topology : without(topology, std::move(dead)), std::move(shares)};
}

std::string traffic_json(const std::vector<Transfer>& transfers,
                         const std::vector<TransferTimes>& times) {
  JsonWriter json;
  json.begin_object().key("transfers").begin_array();
  for (std::size_t t = 0; t < transfers.size(); ++t) {
    json.begin_object(true);
    if (!transfers[t].name.empty()) json.field("name", transfers[t].name);
    json.field("from", transfers[t].from).field("to", transfers[t].to);
    json.field("bytes", transfers[t].bytes.count).field("start_s", times[t].start.seconds());
    json.field("end_s", times[t].end.seconds()).end_object();
  }
  json.end_array().end_object();
  return json.text();
}

void play(const Links& links, const TopologyArguments& arguments, const CommandLine& line) {
  Problems problems;
  const std::vector<Transfer> transfers =
      read_transfers(JsonNode::parse_file(arguments.traffic), links.topology, problems);
  problems.throw_if_any();
  const std::vector<TransferTimes> times = play_traffic(links.topology, transfers, links.shares);
  if (!arguments.json.empty()) {
    write_answer(arguments.json, traffic_json(transfers, times), line);
    if (arguments.json == "-") return;
  }
  for (std::size_t t = 0; t < transfers.size(); ++t) {
    const Transfer& transfer = transfers[t];
    line.out << (transfer.name.empty() ? std::to_string(t) : transfer.name) << ": GPU "
             << transfer.from << " to " << transfer.to << ", " << to_text(transfer.bytes) << ": "
             << to_text(times[t].start) << " to " << to_text(times[t].end) << '\n';
  }
}

// What reading finds is bad input; what only the graphs show is a check that failed.
int check(const TopologyArguments& arguments, const CommandLine& line) {
  Problems unreadable;
  if (!read(arguments, unreadable)) {
    const std::vector<Problem> all = check_topology(arguments.cluster);
    throw InvalidInput(all.empty() ? unreadable.list() : all);
  }
  std::vector<Problem> problems;
  if (!names_one_line_cluster(arguments.cluster)) problems = check_topology(arguments.cluster);
  for (const Problem& problem : problems) line.err << "headway: " << problem.text() << '\n';
  if (!problems.empty()) return kCheckFailed;
  line.out << arguments.cluster << ": no problems\n";
  return kAnswered;
}

}  // namespace

int topology_command(const CommandLine& line) {
  TopologyArguments arguments;
  CLI::App app("Prints a cluster's graph: a summary, the route between two GPUs, Graphviz text.",
               "headway topology");
  add_options(app, arguments);
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (arguments.check) return check(arguments, line);

  Problems problems;
  if (arguments.gpus != 0 && arguments.nodes != 0) {
    problems.add("--nodes", "", "given beside --gpus; expected one of the two");
  }
  const std::optional<Topology> topology = read(arguments, problems);
  for (const int rank : arguments.route) {
    if (topology && (rank < 0 || rank >= topology->gpus())) {
      problems.add("--route", "",
                   std::to_string(rank) + " is no rank; expected 0 to " +
                       std::to_string(topology->gpus() - 1));
    }
  }
  if (!arguments.json.empty() && arguments.traffic.empty()) {
    problems.add("--json", "", "needs --traffic");
  }
  if (!topology) problems.throw_if_any();
  const Links links = degraded(*topology, arguments, problems);
  problems.throw_if_any();
  if (!arguments.dot.empty()) write_answer(arguments.dot, links.topology.dot(), line);
  if (!arguments.traffic.empty()) {
    play(links, arguments, line);
  } else if (!arguments.route.empty()) {
    line.out << route_text(links.topology, arguments.route[0], arguments.route[1]);
  } else if (arguments.dot.empty()) {
    line.out << summary(links.topology);
  }
  return kAnswered;
}

}  // namespace headway
