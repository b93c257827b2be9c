#include "sim/commands/execution.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "sim/commands/child_program.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "sim/engine/timeline_json.hpp"
#include "sim/program/program_json.hpp"
#include "sim/program/training_step.hpp"

namespace headway {

namespace {

// A backend's executor, and where it is built.
struct Backend {
  const char* name;
  const char* executor;
  const char* hint;
};
constexpr Backend kBackends[] = {
    {"cpu", "headway-execute-cpu",
     "it is built where OpenBLAS is (apt-get install libopenblas-dev)"},
    {"cuda", "headway-execute-cuda", "it is built where the CUDA Toolkit is (nvcc)"}};

const Backend& backend_named(const std::string& name) {
  const auto* found = std::find_if(std::begin(kBackends), std::end(kBackends),
                                   [&](const Backend& each) { return name == each.name; });
  if (found == std::end(kBackends)) {
    throw InvalidInput("--backend", "", name + " is no backend; expected cpu or cuda");
  }
  return *found;
}

std::vector<Bytes> bytes(ObjectReader& reader, const char* key) {
  std::vector<Bytes> values;
  for (const std::int64_t count : reader.integers(key).value_or(std::vector<std::int64_t>{})) {
    values.push_back({count});
  }
  return values;
}

Execution read_execution(const std::string& path) {
  Problems problems;
  ObjectReader reader(JsonNode::parse_file(path), problems);
  Execution execution;
  execution.outcome = reader.require_string("outcome");
  execution.messages = reader.strings("messages").value_or(std::vector<std::string>{});
  execution.deadlock = reader.strings("deadlock").value_or(std::vector<std::string>{});
  for (const JsonNode& node :
       reader.array("steps") ? reader.array("steps")->elements() : std::vector<JsonNode>{}) {
    ObjectReader step(node, problems);
    execution.losses.push_back(
        step.number("loss").value_or(std::numeric_limits<double>::quiet_NaN()));
    execution.durations.push_back({step.require_integer("duration_ps")});
  }
  execution.check = reader.object("check");
  execution.peak = bytes(reader, "peak_bytes");
  execution.resident = bytes(reader, "resident_bytes");
  if (const auto timeline = reader.object("timeline")) {
    execution.timeline = read_timeline(*timeline, problems);
  }
  reader.finish();
  problems.throw_if_any();
  return execution;
}

std::vector<std::string> words_of(const ExecutionRequest& request,
                                  const TemporaryDirectory& directory) {
  std::vector<std::string> words = {program_beside(backend_named(request.backend).executor),
                                    directory.file("program.json"),
                                    "--output",
                                    directory.file("execution.json"),
                                    "--steps",
                                    std::to_string(request.steps),
                                    "--warm-up",
                                    std::to_string(request.warm_up),
                                    "--seed",
                                    std::to_string(request.seed)};
  if (request.mpi) words.emplace_back("--mpi");
  return words;
}

// What an mpirun calls this process; empty where none has started it.
std::string rank_under_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return rank;
  }
  return "";
}

}  // namespace

std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const Backend& backend : kBackends) names.emplace_back(backend.name);
  return names;
}

void require_possible(const ExecutionRequest& request) {
  if (request.backend == "cuda" && request.mpi) {
    throw InvalidInput("--mpi", "", "ranks share the CUDA device in one process; leave it out");
  }
}

bool under_mpirun() { return !rank_under_mpirun().empty(); }

std::optional<Execution> execute_job(const Job& job, const Program& program,
                                     const ExecutionRequest& request) {
  const TemporaryDirectory directory;
  write_file(directory.file("program.json"), to_json(program));
  std::vector<std::string> words = words_of(request, directory);
  if (request.check) {
    write_file(directory.file("reference.json"), to_json(lower(reference_job(job))));
    words.insert(words.end(), {"--reference", directory.file("reference.json")});
    if (job.plan.optimizer == "adamw") {
      // AdamW's first step divides a gradient by its own size; this keeps small ones comparable.
      words.insert(words.end(), {"--adam-epsilon", "1e-4"});
    }
  }
  const int code = run_program(words, backend_named(request.backend).hint);
  if (std::filesystem::exists(directory.file("execution.json"))) {
    return read_execution(directory.file("execution.json"));
  }
  if (code == 0 && under_mpirun() && rank_under_mpirun() != "0") return std::nullopt;
  throw MachineFailure(words[0] + " wrote no result (exit code " + std::to_string(code) + ")");
}

}  // namespace headway
