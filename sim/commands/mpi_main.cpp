// headway-mpi: the same program for `mpirun -n N`, whose planner shares its candidates among the
// processes. Whatever else it is asked for, the first process does alone.
#include <mpi.h>

#include <iostream>
#include <limits>
#include <ostream>
#include <streambuf>

#include "sim/commands/command.hpp"
#include "sim/core/error.hpp"
#include "sim/core/heap.hpp"
#include "sim/search/shared_work.hpp"

namespace headway {
namespace {

// MPI itself ends all processes where something fails: its default error handler.
class MpiProcesses : public SearchProcesses {
 public:
  MpiProcesses() {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  MpiProcesses(const MpiProcesses&) = delete;
  MpiProcesses& operator=(const MpiProcesses&) = delete;
  ~MpiProcesses() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> exchange(const std::string& mine) override {
    const auto count = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> counts(static_cast<std::size_t>(size_));
    MPI_Allgather(&count, 1, MPI_INT64_T, counts.data(), 1, MPI_INT64_T, MPI_COMM_WORLD);
    std::vector<std::string> all;
    // One broadcast each: what a process gives can be long, all of them together too long for MPI.
    for (int from = 0; from < size_; ++from) {
      const auto length = static_cast<std::size_t>(counts[static_cast<std::size_t>(from)]);
      std::string& text = all.emplace_back(from == rank_ ? mine : std::string(length, '\0'));
      if (text.size() > std::numeric_limits<int>::max())
        throw MachineFailure("a share of the search is longer than MPI can send");
      MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, from, MPI_COMM_WORLD);
    }
    return all;
  }

 private:
  int rank_ = 0, size_ = 1;
};

// Takes everything and keeps nothing.
class Nowhere : public std::streambuf {
 protected:
  int overflow(int c) override { return c == traits_type::eof() ? 0 : c; }
};

int run(const std::vector<std::string>& arguments, MpiProcesses& processes) {
  if (processes.rank() == 0) return run_command_line({arguments, std::cout, std::cerr, &processes});
  if (arguments.empty() || arguments.front() != "plan") return kAnswered;
  Nowhere nowhere;
  std::ostream unheard(&nowhere);
  return run_command_line({arguments, unheard, unheard, &processes});
}

int run(const std::vector<std::string>& arguments) {
  MpiProcesses processes;
  const int exit_code = run(arguments, processes);
  // The others may wait for this process.
  if (exit_code == kMachineFailed) MPI_Abort(MPI_COMM_WORLD, exit_code);
  return exit_code;
}

}  // namespace
}  // namespace headway

int main(int argc, char** argv) {
  headway::use_huge_pages();
  return headway::run({argv + 1, argv + argc});
}
