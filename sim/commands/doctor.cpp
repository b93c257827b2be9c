#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <ostream>
#include <thread>

#include "sim/commands/command.hpp"

namespace headway {

namespace {

// The first line a command prints, or nothing where it is not there or fails.
std::string first_line(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(("{ " + command + "; } 2>/dev/null").c_str(), "r"), pclose);
  if (pipe == nullptr) return "";
  char buffer[256];
  std::string text;
  if (std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) text = buffer;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

struct Finding {
  const char* what;
  const char* command;
  const char* use;  // what it is for
  const char* how;  // how to get it
};

constexpr Finding kFindings[] = {
    {"NVIDIA GPU", "nvidia-smi --query-gpu=name --format=csv,noheader",
     "executing and calibrating on CUDA", "a machine with an NVIDIA driver"},
    {"nvcc", "{ command -v nvcc || ls /usr/local/cuda/bin/nvcc; } | head -n 1",
     "building the CUDA backend", "the CUDA Toolkit, 12.4 or later"},
    {"NCCL", "ls /usr/include/nccl.h /usr/local/cuda/include/nccl.h | head -n 1",
     "collectives between GPUs, which are not executed yet", "libnccl-dev of NVIDIA's package source"},
    {"OpenBLAS", "ls /usr/include/*/cblas.h /usr/include/cblas.h | head -n 1", "the CPU backend",
     "apt-get install libopenblas-dev"},
    {"MPI", "mpirun --version", "ranks as processes, the planner across machines",
     "apt-get install libopenmpi-dev openmpi-bin"},
};

}  // namespace

int doctor_command(const CommandLine& line) {
  CLI::App app("Says what this machine has, what is missing and how to get it.", "headway doctor");
  app.footer("example: headway doctor");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  line.out << "cores: " << std::thread::hardware_concurrency() << '\n';
  for (const Finding& finding : kFindings) {
    const std::string found = first_line(finding.command);
    line.out << finding.what << ": ";
    if (found.empty()) {
      line.out << "missing; needed only for " << finding.use << "; get it with " << finding.how
               << '\n';
    } else {
      line.out << found << '\n';
    }
  }
  line.out << "simulate, validate, topology, import and list need none of these.\n";
  return kAnswered;
}

}  // namespace headway
