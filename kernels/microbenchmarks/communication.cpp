// What two ranks pay for collectives and messages, what the executor itself costs per operation,
// and what a collective beside a matrix multiplication costs: each is a Program of many such
// operations, executed as any other, ranks as threads or with --mpi as processes.
//   collective/KIND/TRANSPORT/RANKS/BYTES   one of them, from the last arrival to the next
//   operation send/TRANSPORT/BYTES                    a message, one way issue/TRANSPORT an
//   operation that does nothing overlap/TRANSPORT/BYTES                 a GEMM and an all-reduce on
//   two streams: counters alone_*
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/launch_ranks.hpp"
#include "kernels/execute/resident_memory.hpp"
#include "kernels/microbenchmarks/sampling.hpp"
#ifdef HEADWAY_MPI
#include "kernels/execute/process_executor.hpp"
#endif

namespace headway {
namespace {

constexpr int kRanks = 2;
constexpr int kRepeats = 16;  // of the operation in a step
constexpr int kSteps = 9, kWarmUp = 2;
constexpr std::int64_t kFp32Bytes = 4;

// A Program of one pass that every rank issues, written operation by operation.
class CommunicationProgram {
 public:
  explicit CommunicationProgram(int ranks) {
    program_.grid = RankGrid({{"pp", ranks}});
    program_.streams = {"compute", "communication"};
    program_.groups.push_back({"all", {"pp"}, {}});
    program_.sequence_length = program_.vocab_size = 1;
    for (int rank = 0; rank < ranks; ++rank) {
      RankKind kind;
      kind.name = "rank " + std::to_string(rank);
      kind.stages = {rank};
      kind.passes.push_back({"all", rank, {{rank, 0}}});
      kind.order.push_back({0, -1});
      program_.kinds.push_back(std::move(kind));
      program_.templates.push_back({"rank " + std::to_string(rank), {}});
    }
  }

  // A buffer that every rank holds all the time.
  int buffer(std::int64_t rows, std::int64_t columns) {
    const int family = static_cast<int>(program_.buffers.size());
    BufferFamily made;
    made.name = "buffer " + std::to_string(family);
    made.type = DataType::kFp32;
    made.rows = rows;
    made.columns = columns;
    made.initial = InitialValue::kOne;
    program_.buffers.push_back(std::move(made));
    for (RankKind& kind : program_.kinds) kind.persistent.push_back({family});
    return family;
  }
  void add(int rank, Operation operation, std::vector<BufferRef> reads,
           std::vector<BufferRef> writes, int stream = 0, int peer = 0) {
    auto& operations = program_.templates[static_cast<std::size_t>(rank)].operations;
    TemplateOperation made;
    made.name = "operation " + std::to_string(operations.size());
    made.operation = std::move(operation);
    made.stream = stream;
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    if (peer != 0) {
      made.peer_axis = "pp";
      made.peer_offset = peer;
    } else if (std::holds_alternative<Collective>(made.operation)) {
      made.group = 0;
    }
    operations.push_back(std::move(made));
  }
  int ranks() const { return program_.grid.size(); }
  const Program& program() const { return program_; }

 private:
  Program program_;
};

Kernel nothing() {
  Kernel kernel;
  kernel.kind = KernelKind::kZero;
  kernel.rows = kernel.columns = 1;
  kernel.type = kernel.output = DataType::kFp32;
  return kernel;
}

Collective collective_of(CollectiveKind kind, std::int64_t elements) {
  Collective collective;
  collective.kind = kind;
  collective.elements = elements;
  collective.type = DataType::kFp32;
  return collective;
}

// As many places as keep a repeat from finding the one before in the caches, up to all of them.
int places_for(std::int64_t bytes) {
  constexpr std::int64_t kRotatedBytes = 64 << 20;
  return static_cast<int>(std::clamp<std::int64_t>(kRotatedBytes / bytes, 2, kRepeats));
}

CommunicationProgram collectives(CollectiveKind kind, std::int64_t bytes) {
  CommunicationProgram made(kRanks);
  const std::int64_t whole = bytes / kFp32Bytes;
  const bool gathers = kind == CollectiveKind::kAllGather;
  const bool scatters = kind == CollectiveKind::kReduceScatter;
  std::vector<std::pair<int, int>> places;
  for (int place = 0; place < places_for(bytes); ++place) {
    const int from = made.buffer(1, gathers ? whole / kRanks : whole);
    const bool in_place = kind == CollectiveKind::kAllReduce;
    places.emplace_back(from, in_place ? from : made.buffer(1, scatters ? whole / kRanks : whole));
  }
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto [from, to] = places[static_cast<std::size_t>(repeat) % places.size()];
    for (int rank = 0; rank < kRanks; ++rank) {
      made.add(rank, collective_of(kind, whole), {{from}}, {{to}});
    }
  }
  return made;
}

// There and back again.
CommunicationProgram messages(std::int64_t bytes) {
  CommunicationProgram made(kRanks);
  const std::int64_t whole = bytes / kFp32Bytes;
  std::vector<int> places;
  // A buffer carries one message of a step: what it carries is its name.
  for (int repeat = 0; repeat < kRepeats; ++repeat) places.push_back(made.buffer(1, whole));
  const Collective send = collective_of(CollectiveKind::kSend, whole);
  const Collective receive = collective_of(CollectiveKind::kReceive, whole);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const int place = places[static_cast<std::size_t>(repeat)];
    const int sender = repeat % kRanks;
    made.add(sender, send, {{place}}, {}, 0, sender == 0 ? 1 : -1);
    made.add(1 - sender, receive, {}, {{place}}, 0, sender == 0 ? -1 : 1);
  }
  return made;
}

CommunicationProgram issues(int repeats) {
  CommunicationProgram made(kRanks);
  const int one = made.buffer(1, 1);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (int rank = 0; rank < kRanks; ++rank) made.add(rank, nothing(), {}, {{one}});
  }
  return made;
}

// A square multiplication and an all-reduce, beside each other; either may be left out.
CommunicationProgram overlapped(std::int64_t bytes, bool multiplies, bool reduces) {
  constexpr std::int64_t kSide = 512;
  CommunicationProgram made(kRanks);
  const int x = made.buffer(kSide, kSide), w = made.buffer(kSide, kSide);
  const int y = made.buffer(kSide, kSide), sum = made.buffer(1, bytes / kFp32Bytes);
  Gemm gemm;
  gemm.m = gemm.n = gemm.k = kSide;
  gemm.type = gemm.output = DataType::kFp32;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (reduces) {
        made.add(rank, collective_of(CollectiveKind::kAllReduce, bytes / kFp32Bytes), {{sum}},
                 {{sum}}, 1);
      }
      if (multiplies) made.add(rank, gemm, {{x}, {w}}, {{y}});
    }
  }
  return made;
}

// How ranks are run.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual ExecutionResult run(const Program& program, const ExecuteOptions& options) = 0;
  virtual bool reports() const { return true; }
};

class Threads : public Transport {
 public:
  std::string name() const override { return "threads"; }
  ExecutionResult run(const Program& program, const ExecuteOptions& options) override {
    return execute(program, options);
  }
};

#ifdef HEADWAY_MPI
class Processes : public Transport {
 public:
  Processes() {
    tell_launcher_when_stopped(world_.rank());
    keep_to_core(world_.local_rank());
  }
  std::string name() const override { return "mpi"; }
  bool reports() const override { return world_.rank() == 0; }
  ExecutionResult run(const Program& program, const ExecuteOptions& options) override {
    const int rank = world_.rank();
    return execute_in_processes(
        program, options, world_,
        {[rank](const std::string& message) { tell_launcher(rank, message); }, [] { _exit(1); }});
  }

 private:
  MpiWorld world_;
};
#endif

// Seconds of the median step of a Program; its relative spread.
struct StepTime {
  double seconds = 0, spread = 0;
};
StepTime step_time(Transport& transport, const Program& program) {
  ExecuteOptions options;
  options.steps = kSteps;
  options.warm_up = kWarmUp;
  options.checked = false;
  const ExecutionResult result = transport.run(program, options);
  if (result.outcome != Outcome::kFinished) throw std::runtime_error(result.messages.front());
  if (!transport.reports()) return {1, 0};
  std::vector<double> seconds;
  for (const ExecutedStep& step : result.steps) seconds.push_back(step.duration.seconds());
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  return {median, (seconds[3 * seconds.size() / 4] - seconds[seconds.size() / 4]) / median};
}

void add_benchmark(const std::string& name, std::function<void(benchmark::State&)> run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

void add_repeated(Transport& transport, const std::string& name, CommunicationProgram made,
                  int repeats) {
  add_benchmark(name, [&transport, made = std::move(made), repeats](benchmark::State& state) {
    const StepTime step = step_time(transport, made.program());
    report_median(state, step.seconds / repeats, kSteps, step.spread);
  });
}

void add_overlap(Transport& transport, std::int64_t bytes) {
  add_benchmark("overlap/" + transport.name() + "/" + std::to_string(bytes),
                [&transport, bytes](benchmark::State& state) {
                  const auto each = [&](bool multiplies, bool reduces) {
                    const CommunicationProgram made = overlapped(bytes, multiplies, reduces);
                    return step_time(transport, made.program()).seconds / kRepeats;
                  };
                  report_median(state, each(true, true), kSteps, 0);
                  state.counters["alone_gemm_us"] = each(true, false) * 1e6;
                  state.counters["alone_all_reduce_us"] = each(false, true) * 1e6;
                });
}

void add_all(Transport& transport, bool quick) {
  constexpr int kIssued = 2000;
  add_repeated(transport, "issue/" + transport.name(), issues(kIssued), kIssued);
  const std::int64_t factor = quick ? 16 : 4;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    for (std::int64_t bytes = 1024; bytes <= (16 << 20); bytes *= factor) {
      add_repeated(transport,
                   "collective/" + std::string(name(kind)) + "/" + transport.name() + "/" +
                       std::to_string(kRanks) + "/" + std::to_string(bytes),
                   collectives(kind, bytes), kRepeats);
    }
  }
  for (std::int64_t bytes = 1024; bytes <= (16 << 20); bytes *= factor) {
    add_repeated(transport, "send/" + transport.name() + "/" + std::to_string(bytes),
                 messages(bytes), kRepeats);
  }
  for (const std::int64_t bytes : {64 << 10, 1 << 20, 4 << 20}) add_overlap(transport, bytes);
}

int measure(Transport& transport, int count, char** values) {
  if (!transport.reports()) {
    // The same benchmarks in the same order; rank 0 tells.
    if (std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
    std::vector<char*> own;
    for (int i = 0; i < count; ++i) {
      if (std::strncmp(values[i], "--benchmark_out", 15) != 0) own.push_back(values[i]);
    }
    return run_microbenchmarks(static_cast<int>(own.size()), own.data(),
                               [&](bool quick) { add_all(transport, quick); });
  }
  return run_microbenchmarks(count, values, [&](bool quick) { add_all(transport, quick); });
}

int start_processes(int count, char** values) {
#ifdef HEADWAY_MPI
  if (started_by_mpirun()) {
    Processes transport;
    return measure(transport, count, values);
  }
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "--mpi"};
  command.insert(command.end(), values + 1, values + count);
  const LaunchedRanks launched = launch_ranks(kRanks, command);
  for (const std::string& told : launched.messages) {
    if (!told.empty()) std::fprintf(stderr, "%s\n", told.c_str());
  }
  return launched.exit_code;
#else
  (void)count;
  (void)values;
  std::fprintf(stderr, "built without MPI; install libopenmpi-dev and openmpi-bin, build again\n");
  return 1;
#endif
}

int run(int count, char** values) {
  keep_freed_memory();
  std::vector<char*> kept;
  bool processes = false;
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(values[i], "--mpi") == 0) {
      processes = true;
    } else {
      kept.push_back(values[i]);
    }
  }
  const int left = static_cast<int>(kept.size());
  if (processes) return start_processes(left, kept.data());
  Threads transport;
  return measure(transport, left, kept.data());
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  try {
    return headway::run(count, values);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
