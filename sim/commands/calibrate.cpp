#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <thread>

#include "sim/commands/calibration.hpp"
#include "sim/commands/child_program.hpp"
#include "sim/commands/execution.hpp"
#include "sim/core/error.hpp"
#include "sim/cost/device_fit.hpp"
#include "sim/cost/host_fit.hpp"
#include "sim/cost/points.hpp"

namespace headway {

namespace {

namespace fs = std::filesystem;

constexpr const char* kHint =
    "it is built where OpenBLAS and Google Benchmark are (libopenblas-dev, libbenchmark-dev)";

bool has_mpirun() { return std::system("mpirun --version > /dev/null 2>&1") == 0; }

struct Benchmark {
  const char* program;  // "headway-measure-gemm"
  const char* option;   // beside the common ones, or nullptr
  const char* file;
};

// Runs one; returns its file.
std::string run_benchmark(const Benchmark& benchmark, const CalibrationRequest& request,
                          const CommandLine& line) {
  const std::string file = (fs::path(request.measurements) / benchmark.file).string();
  line.err << "measuring " << benchmark.file << std::endl;
  std::vector<std::string> words = {program_beside(benchmark.program), "--benchmark_out=" + file,
                                    "--benchmark_out_format=json"};
  if (request.quick) words.emplace_back("--quick");
  if (benchmark.option != nullptr) words.emplace_back(benchmark.option);
  if (const int code = run_program(words, kHint, ChildOutput::kDropped); code != 0) {
    throw MachineFailure(words[0] + " failed (exit code " + std::to_string(code) + ")");
  }
  return file;
}

Profile calibrate_cpu(const CalibrationRequest& request, const CommandLine& line);
Profile calibrate_cuda(const CalibrationRequest& request, const CommandLine& line);

}  // namespace

std::string machine_name() {
  std::ifstream processors("/proc/cpuinfo");
  std::string name;
  for (std::string line; std::getline(processors, line) && name.empty();) {
    if (line.starts_with("model name")) name = line.substr(line.find(':') + 1);
  }
  std::string word;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty() && word.back() != '-') {
      word += '-';
    }
  }
  if (word.empty()) word = "cpu";
  if (word.back() != '-') word += '-';
  return word + std::to_string(std::thread::hardware_concurrency()) + "-cores";
}

Profile calibrate(const std::string& backend, const CalibrationRequest& request,
                  const CommandLine& line) {
  return backend == "cuda" ? calibrate_cuda(request, line) : calibrate_cpu(request, line);
}

namespace {

Profile calibrate_cpu(const CalibrationRequest& request, const CommandLine& line) {
  const bool mpi = request.transport.empty() ? has_mpirun() : request.transport == "mpi";
  std::vector<Benchmark> benchmarks = {
      {"headway-measure-gemm", nullptr, "gemm.json"},
      {"headway-measure-attention", nullptr, "attention.json"},
      {"headway-measure-elementwise", nullptr, "elementwise.json"},
      {"headway-measure-optimizers", nullptr, "optimizers.json"},
      {"headway-measure-memory_copy", nullptr, "memory_copy.json"},
      {"headway-measure-communication", nullptr, "communication-threads.json"}};
  if (mpi)
    benchmarks.push_back({"headway-measure-communication", "--mpi", "communication-mpi.json"});
  fs::create_directories(request.measurements);
  std::vector<std::string> files;
  for (const Benchmark& benchmark : benchmarks) {
    files.push_back(run_benchmark(benchmark, request, line));
  }
  return fit_host(read_host_measurements(files), mpi ? "mpi" : "threads",
                  "measured on " + machine_name() + (request.quick ? " (--quick)" : ""));
}

// One program measures all things of a device; what is in the folder already is not measured again.
Profile calibrate_cuda(const CalibrationRequest& request, const CommandLine& line) {
  constexpr const char* kProgram = "headway-measure-cuda";
  constexpr const char* kThings[] = {"gemm",   "optimizers",  "launch",     "clock",  "overlap",
                                     "kernels", "attention", "collectives", "memory_copy"};
  fs::create_directories(request.measurements);
  std::vector<std::string> files;
  for (const char* thing : kThings) {
    line.err << "measuring " << thing << std::endl;
    std::vector<std::string> words = {program_beside(kProgram), request.measurements, "--things",
                                      thing};
    if (request.quick) words.emplace_back("--quick");
    if (const int code = run_program(words, "it is built where the CUDA Toolkit is (nvcc)",
                                     ChildOutput::kDropped);
        code != 0) {
      throw MachineFailure(words[0] + " failed (exit code " + std::to_string(code) + ")");
    }
    files.push_back((fs::path(request.measurements) / (std::string(thing) + ".json")).string());
  }
  const std::string gpu = device_of_measurements(files.front());
  const auto device = device_of_gpu(gpu);
  if (!device) {
    throw InvalidInput(files.front(), "/context/device",
                       "there is no profile of '" + gpu + "' to begin with");
  }
  return fit_device(read_host_measurements(files), read_profile(*device),
                    "measured on " + gpu + (request.quick ? " (--quick)" : ""));
}

}  // namespace

int calibrate_command(const CommandLine& line) {
  CLI::App app("Measures this machine and writes its profile.", "headway calibrate");
  std::string backend = "cpu", output;
  CalibrationRequest request;
  request.measurements = "calibration/measurements/" + machine_name();
  bool mpi = false, threads = false;
  app.add_option("--backend", backend, "what is measured")->check(CLI::IsMember(backends()));
  app.add_option("-o,--output", output, "where the profile is written")->required();
  app.add_option("--measurements", request.measurements, "folder that keeps what was measured")
      ->capture_default_str();
  app.add_flag("--quick", request.quick, "in under a minute: fewer sizes, less sure");
  auto* const with_mpi =
      app.add_flag("--mpi", mpi, "ranks are processes (default where there is an mpirun)");
  app.add_flag("--threads", threads, "ranks are threads")->excludes(with_mpi);
  app.footer("example: headway calibrate --backend cpu -o my-machine.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (mpi) request.transport = "mpi";
  if (threads) request.transport = "threads";
  const Profile profile = calibrate(backend, request, line);
  write_answer(output, profile_text(profile), line);
  if (output != "-") {
    line.out << "profile of " << machine_name() << ": " << output
             << "; measurements: " << request.measurements << '\n';
  }
  return kAnswered;
}

}  // namespace headway
