// Programs that a command starts beside itself: the executor, the microbenchmarks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headway {

// A directory of this run alone, removed with everything in it.
class TemporaryDirectory {
 public:
  // Throws MachineFailure.
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The program of that name beside this one, else the one that the shell would find.
std::string program_beside(const std::string& name);

// What becomes of a program's standard output.
enum class ChildOutput { kOnStandardError, kDropped };

// Runs a program to its end. Returns its exit code. Throws MachineFailure, with `hint`, where it
// cannot be started, and where a signal ends it.
int run_program(const std::vector<std::string>& words, const std::string& hint,
                ChildOutput output = ChildOutput::kOnStandardError);

}  // namespace headway
