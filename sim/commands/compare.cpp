#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <ostream>
#include <sstream>

#include "sim/commands/command.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"
#include "sim/report/json.hpp"
#include "sim/report/step_report.hpp"
#include "sim/simulate/simulated_step.hpp"

namespace headway {

namespace {

// What can be put beside another: figures by name, in the order they are printed.
struct Comparable {
  enum class Kind { kResult, kTrace };
  Kind kind = Kind::kResult;
  std::vector<std::pair<std::string, double>> figures;
};

constexpr const char* kResultKeys[] = {"iteration_time_s", "tokens_per_s", "mfu", "hfu",
                                       "bubble_fraction"};
constexpr double kMicrosecond = 1e-6;  // of a Chrome trace

Comparable read_result(const JsonNode& result) {
  Comparable read;
  const auto add = [&](const std::string& name, const std::optional<JsonNode>& value) {
    if (value && value->is_number()) read.figures.emplace_back(name, value->number());
  };
  for (const char* key : kResultKeys) add(key, result.find(key));
  for (const char* section : {"breakdown_s", "memory"}) {
    const auto node = result.find(section);
    if (!node || !node->is_object()) continue;
    for (const std::string& key : node->keys()) {
      add(std::string(section) + "." + key, node->find(key));
    }
  }
  const auto lines = result.find("communication");
  for (const JsonNode& each :
       lines && lines->is_array() ? lines->elements() : std::vector<JsonNode>{}) {
    const auto kind = each.find("kind"), group = each.find("group"),
               bytes = each.find("bytes_per_rank");
    if (!kind || !group || !bytes) continue;
    const std::string name = kind->string() + " " + group->string() + " of " + bytes->text();
    add(name + ".time_s", each.find("time_s"));
    add(name + ".exposed_s", each.find("exposed_s"));
  }
  return read;
}

// Seconds by name, over all processes and tracks, and of the whole.
Comparable read_trace(const JsonNode& trace) {
  Comparable read;
  read.kind = Comparable::Kind::kTrace;
  const auto list = trace.is_array() ? std::optional(trace) : trace.find("traceEvents");
  std::map<std::string, double> seconds;
  double first = INFINITY, last = 0;
  for (const JsonNode& event : list->elements()) {
    const auto phase = event.find("ph"), name = event.find("name"), start = event.find("ts"),
               duration = event.find("dur");
    if (!phase || !phase->is_string() || phase->string() != "X") continue;
    if (!name || !name->is_string() || !start || !duration) continue;
    if (!start->is_number() || !duration->is_number()) continue;
    const double from = start->number() * kMicrosecond;
    const double took = duration->number() * kMicrosecond;
    seconds[name->string()] += took;
    first = std::min(first, from);
    last = std::max(last, from + took);
  }
  read.figures.emplace_back("whole", seconds.empty() ? 0 : last - first);
  for (const auto& [name, sum] : seconds) read.figures.emplace_back(name, sum);
  return read;
}

Comparable simulated(const JsonNode& node, const std::string& file) {
  Problems problems;
  JobReading reading = read_job(node, {}, problems);
  for (const NotYetBuilt& missing : reading.not_built) {
    problems.add(file, missing.pointer, missing.rule + " is not built yet in this version");
  }
  problems.throw_if_any();
  const Job& job = *reading.job;
  const Profile profile = read_profile(job.profile);
  const SimulatedStep step = simulate_step(job, profile);
  const std::string json = result_json(job, report_step(job, profile, step), std::nullopt);
  return read_result(JsonNode::parse_text(json, file));
}

Comparable read_comparable(const std::string& file) {
  const JsonNode node = JsonNode::parse_file(file);
  if (node.is_array() || (node.is_object() && node.find("traceEvents"))) return read_trace(node);
  if (node.is_object() && node.find("iteration_time_s")) return read_result(node);
  if (node.is_object() && node.find("model")) return simulated(node, file);
  throw InvalidInput(
      file, "", "neither a result (iteration_time_s), a trace (traceEvents) nor a job (model)");
}

void print(const Comparable& a, const Comparable& b, const CommandLine& line) {
  constexpr int kName = 44, kNumber = 14;
  std::map<std::string, double> others(b.figures.begin(), b.figures.end());
  std::vector<std::pair<std::string, double>> left = b.figures;
  const auto number = [&](std::optional<double> value) {
    std::ostringstream text;
    if (value) {
      text << std::setprecision(5) << *value;
    } else {
      text << "-";
    }
    line.out << std::setw(kNumber) << text.str();
  };
  const auto row = [&](const std::string& name, std::optional<double> mine,
                       std::optional<double> theirs) {
    line.out << std::left << std::setw(kName) << name << std::right;
    number(mine);
    number(theirs);
    if (mine && theirs && *mine != 0) {
      std::ostringstream change;
      change << std::showpos << std::fixed << std::setprecision(1) << 100 * (*theirs / *mine - 1)
             << " %";
      line.out << std::setw(kNumber) << change.str();
    }
    line.out << '\n';
  };
  for (const auto& [name, value] : a.figures) {
    const auto found = others.find(name);
    row(name, value, found == others.end() ? std::nullopt : std::optional(found->second));
    std::erase_if(left, [&, of = name](const auto& each) { return each.first == of; });
  }
  for (const auto& [name, value] : left) row(name, std::nullopt, value);
}

}  // namespace

int compare_command(const CommandLine& line) {
  CLI::App app("Puts two results, traces or jobs side by side.", "headway compare");
  std::string a, b;
  app.add_option("a", a, "a result (--json), a trace (--trace, the PyTorch profiler's) or a job")
      ->required()
      ->type_name("A");
  app.add_option("b", b, "another of the same kind; a job counts as its simulated result")
      ->required()
      ->type_name("B");
  app.footer("example: headway compare simulated.json measured.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  const Comparable first = read_comparable(a), second = read_comparable(b);
  if (first.kind != second.kind) {
    throw InvalidInput(b, "", "a trace and a result cannot be compared; expected two of a kind");
  }
  print(first, second, line);
  return kAnswered;
}

}  // namespace headway
