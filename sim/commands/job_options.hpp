// A job on the command line: a file, options that override it, or options alone. The same for every
// command that takes a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/commands/command.hpp"
#include "sim/plan/job.hpp"

namespace headway {

class JobOptions {
 public:
  // Adds the positional JOB.json and the options to the command's parser. `this` must outlive it.
  void add_to(CLI::App& app);
  // The options alone, for commands whose job comes from elsewhere.
  void add_options_to(CLI::App& app);

  // Reads the job. Throws InvalidInput with all problems, and for what this version has not built
  // yet.
  Job read() const;
  // What the options say, by dotted key. Adds a problem for what is no KEY=VALUE.
  std::vector<JobOverride> overrides(Problems& problems) const;
  // The job's document ({} without a file) and the options over it, for commands that read it
  // themselves. Throws InvalidInput where there is neither.
  struct Source {
    JsonNode document;
    std::vector<JobOverride> overrides;
  };
  Source source() const;
  // The job's file, or "command line".
  std::string name() const;

 private:
  std::string file_;
  struct Value {
    std::string key;     // "plan.tp"
    std::string option;  // "--tp"
    std::optional<std::string> text;
  };
  std::vector<Value> values_;
  std::vector<std::string> settings_;  // --set plan.tp=8
};

// The notes of a resolved job, one line each.
void print_notes(const Job& job, const CommandLine& line);

}  // namespace headway
