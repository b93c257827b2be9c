#include "kernels/execute/launch_ranks.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "sim/core/error.hpp"

namespace headway {
namespace {

constexpr std::string_view kMark = "headway-rank ";

int rank_to_be_told = 0;

extern "C" void when_stopped(int) {
  tell_launcher(rank_to_be_told, "was stopped from outside");
  _exit(1);
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// A child that waits to be killed.
class Sleeper {
 public:
  Sleeper() : child_(fork()) {
    if (child_ == 0) {
      for (;;) pause();
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  pid_t id() const { return child_; }

 private:
  pid_t child_;
};

// Whether processes of ours may copy from each other's memory, which containers often forbid.
// OpenMPI 4 tries all the same, and fails with every large message.
bool may_read_siblings() {
  const Sleeper sleeper;
  const pid_t reader = fork();
  if (reader == 0) {
    static const int kValue = 1;
    int copy = 0;
    iovec to{&copy, sizeof copy}, from{const_cast<int*>(&kValue), sizeof kValue};
    _exit(process_vm_readv(sleeper.id(), &to, 1, &from, 1, 0) == sizeof copy ? 0 : 1);
  }
  int status = 1;
  return reader > 0 && waitpid(reader, &status, 0) == reader && status == 0;
}

std::vector<std::string> mpirun_words(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> words = {"mpirun",    "-n",   std::to_string(ranks),
                                    "--bind-to", "none", "--quiet"};
  // All ranks are on this machine: no network is looked for.
  words.insert(words.end(), {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"});
  if (!may_read_siblings()) {
    words.insert(words.end(), {"--mca", "btl_vader_single_copy_mechanism", "none"});
  }
  if (ranks > usable_cores()) {
    words.insert(words.end(), {"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"});
  }
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

pid_t start(const std::vector<std::string>& words, int standard_error) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  // mpirun ends its ranks when it is told to end; whoever kills us tells it.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(standard_error, STDERR_FILENO);
  execvp(pointers[0], pointers.data());
  constexpr int kNotFound = 127;  // as a shell says it
  _exit(kNotFound);
}

// Sorts what comes on standard error into what ranks tell and what others are to see.
class Listener {
 public:
  explicit Listener(LaunchedRanks& launched) : launched_(launched) {}

  void hear(std::string_view text) {
    rest_.append(text);
    for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      hear_line(std::string_view(rest_).substr(0, end));
      rest_.erase(0, end + 1);
    }
  }
  void end() {
    if (!rest_.empty()) hear_line(rest_);
  }

 private:
  void hear_line(std::string_view line) {
    std::size_t rank = 0;
    const std::size_t colon = line.find(": ");
    if (line.starts_with(kMark) && colon != std::string_view::npos &&
        std::from_chars(line.data() + kMark.size(), line.data() + colon, rank).ptr ==
            line.data() + colon &&
        rank < launched_.messages.size()) {
      if (launched_.messages[rank].empty()) launched_.messages[rank] = line.substr(colon + 2);
      return;
    }
    std::cerr << line << '\n';
  }

  LaunchedRanks& launched_;
  std::string rest_;
};

}  // namespace

bool started_by_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

void tell_launcher(int rank, std::string_view message) {
  std::array<char, 1024> line{};
  std::size_t size = kMark.copy(line.data(), kMark.size());
  size = static_cast<std::size_t>(
      std::to_chars(line.data() + size, line.data() + size + 12, rank).ptr - line.data());
  for (const std::string_view part : {std::string_view(": "), message}) {
    size += part.copy(line.data() + size, line.size() - 1 - size);
  }
  line[size++] = '\n';
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), size);
}

void tell_launcher_when_stopped(int rank) {
  rank_to_be_told = rank;
  signal(SIGTERM, when_stopped);
}

LaunchedRanks launch_ranks(int ranks, const std::vector<std::string>& command) {
  LaunchedRanks launched;
  launched.messages.resize(static_cast<std::size_t>(ranks));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw MachineFailure(std::string("pipe: ") + strerror(errno));
  const pid_t child = start(mpirun_words(ranks, command), ends[1]);
  close(ends[1]);
  if (child < 0) throw MachineFailure(std::string("fork: ") + strerror(errno));
  Listener listener(launched);
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    listener.hear({buffer.data(), static_cast<std::size_t>(count)});
  }
  listener.end();
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  constexpr int kNotFound = 127, kSignalled = 128;
  launched.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  if (launched.exit_code == kNotFound) {
    throw MachineFailure("mpirun: not found; apt-get install openmpi-bin");
  }
  return launched;
}

void keep_to_core(int n) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0 || n >= CPU_COUNT(&cores)) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores) || n-- > 0) continue;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    return;
  }
}

}  // namespace headway
