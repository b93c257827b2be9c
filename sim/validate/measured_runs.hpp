// Training runs that others measured and published: a job with the step time, or the memory peak,
// that was seen. One file is one source.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/core/units.hpp"

namespace headway {

enum class Reliability : std::uint8_t { kHigh, kMedium, kLow };
std::string_view name(Reliability reliability);

struct MeasuredRun {
  std::string id;
  std::string file;    // the source's name: "zb" of "zb.json"
  std::string source;  // where it was published
  Reliability reliability = Reliability::kHigh;
  JsonNode job;
  std::optional<Time> iteration_time;
  std::map<std::string, Time> breakdown = {};  // of it, where stated: "compute", "tp", "host", ...
  std::optional<Bytes> memory_peak;
  std::string memory_kind = "allocated";  // "allocated", "reserved" or "device"
  bool out_of_memory = false;
  std::string group;                 // runs that differ only in plan or software share one
  std::vector<std::string> assumed;  // what the source does not state, in its table's words

  MeasuredRun() = delete;
  explicit MeasuredRun(JsonNode job_node) : job(std::move(job_node)) {}
};

// Adds a Problem for every fault of the file's own frame; the jobs inside are read when simulated.
std::vector<MeasuredRun> read_measured_runs(const std::string& path, Problems& problems);

// Whether a run was set aside to fit software constants: FNV-1a 64 of its id, mod 5, is 0. Such
// runs are left out of the error figures.
bool used_in_fit(const std::string& id);

}  // namespace headway
