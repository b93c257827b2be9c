#include <CLI/CLI.hpp>
#include <ostream>

#include "sim/cluster/topology_text.hpp"
#include "sim/commands/command.hpp"

namespace headway {

int topology_command(const CommandLine& line) {
  CLI::App app("Prints a cluster's graph: a summary, the route between two GPUs, Graphviz text.",
               "headway topology");
  std::string name, dot;
  int gpus = 0;
  std::vector<int> route;
  bool check = false;
  app.add_option("cluster", name, "preset or topology file")->required();
  app.add_option("--gpus", gpus, "GPUs; absent: one node's")->check(CLI::Range(1, 1 << 20));
  app.add_option("--route", route, "the links between two ranks")->expected(2)->type_name("A B");
  app.add_option("--dot", dot, "write Graphviz text; - is standard output");
  app.add_flag("--check", check, "only read and check the file");
  app.footer("example: headway topology dgx-a100 --gpus 64 --route 0 13");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  Problems problems;
  const JsonNode place = JsonNode::parse_text("{}", "command line");
  const auto topology = read_topology(name, gpus, {}, place, problems);
  for (const int rank : route) {
    if (topology && (rank < 0 || rank >= topology->gpus())) {
      problems.add("--route", "", std::to_string(rank) + " is no rank; expected 0 to " +
                   std::to_string(topology->gpus() - 1));
    }
  }
  problems.throw_if_any();
  if (check) {
    line.out << name << ": no problems\n";
    return kAnswered;
  }
  if (!route.empty()) {
    line.out << route_text(*topology, route[0], route[1]);
  } else if (!dot.empty()) {
    write_answer(dot, topology->dot(), line);
  } else {
    line.out << summary(*topology);
  }
  return kAnswered;
}

}  // namespace headway
