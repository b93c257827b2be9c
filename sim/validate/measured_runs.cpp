#include "sim/validate/measured_runs.hpp"

#include <cmath>
#include <filesystem>
#include <set>

namespace headway {

namespace {

void read_measured(const JsonNode& node, MeasuredRun& run, Problems& problems) {
  ObjectReader measured(node, problems);
  if (const auto seconds = measured.number("iteration_time_s", {.min = 0, .min_excluded = true})) {
    run.iteration_time = Time::from_seconds(*seconds);
  }
  if (const auto bytes = measured.number("memory_peak_bytes", {.min = 1})) {
    run.memory_peak = Bytes{std::llround(*bytes)};
  }
  if (const auto kind = measured.choice("memory_kind", {"allocated", "reserved", "device"})) {
    run.memory_kind = *kind;
  }
  run.out_of_memory = measured.boolean("out_of_memory").value_or(false);
  if (const auto parts = measured.object("breakdown_s")) {
    ObjectReader breakdown(*parts, problems);
    for (const char* key :
         {"compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host", "other"}) {
      if (const auto seconds = breakdown.number(key, {.min = 0}))
        run.breakdown[key] = Time::from_seconds(*seconds);
    }
    breakdown.finish();
  }
  measured.finish();
  if (!run.iteration_time && !run.memory_peak && !run.out_of_memory) {
    measured.problem("",
                     "measures nothing; expected iteration_time_s, memory_peak_bytes or "
                     "out_of_memory");
  }
}

std::optional<MeasuredRun> read_run(const JsonNode& node, Problems& problems) {
  ObjectReader reader(node, problems);
  const auto job = reader.object("job");
  if (!job) {
    reader.problem("job", "is missing");
    return std::nullopt;
  }
  MeasuredRun run(*job);
  run.id = reader.require_string("id");
  run.source = reader.string("source").value_or("");
  const std::string reliability =
      reader.choice("reliability", {"high", "medium", "low"}).value_or("high");
  run.reliability = reliability == "high"     ? Reliability::kHigh
                    : reliability == "medium" ? Reliability::kMedium
                                              : Reliability::kLow;
  run.group = reader.string("group").value_or("");
  run.assumed = reader.strings("assumed").value_or(std::vector<std::string>{});
  reader.string("notes");
  if (const auto measured = reader.object("measured")) {
    read_measured(*measured, run, problems);
  } else {
    reader.problem("measured", "is missing");
  }
  reader.finish();
  return run;
}

}  // namespace

std::string_view name(Reliability reliability) {
  switch (reliability) {
    case Reliability::kHigh:
      return "high";
    case Reliability::kMedium:
      return "medium";
    case Reliability::kLow:
      return "low";
  }
  return "";
}

std::vector<MeasuredRun> read_measured_runs(const std::string& path, Problems& problems) {
  ObjectReader file(JsonNode::parse_file(path), problems);
  std::vector<MeasuredRun> runs;
  const auto array = file.array("runs");
  if (!array) {
    file.problem("runs", "is missing; expected a list of measured runs");
    return runs;
  }
  file.finish();
  std::set<std::string> ids;
  for (const JsonNode& node : array->elements()) {
    auto run = read_run(node, problems);
    if (!run) continue;
    if (!ids.insert(run->id).second) {
      problems.add(path, node.pointer() + "/id", "'" + run->id + "' stands there twice");
    }
    run->file = std::filesystem::path(path).stem().string();
    runs.push_back(std::move(*run));
  }
  return runs;
}

bool used_in_fit(const std::string& id) {
  // FNV-1a, 64 bit (Fowler, Noll, Vo): offset basis and prime.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash % 5 == 0;
}

}  // namespace headway
