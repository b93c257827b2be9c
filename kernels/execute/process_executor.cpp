#include "kernels/execute/process_executor.hpp"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "kernels/execute/exchange.hpp"
#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/rank_run.hpp"
#include "kernels/execute/resident_memory.hpp"
#include "kernels/execute/wait_for_graph.hpp"
#include "sim/core/error.hpp"

namespace headway {
namespace {

// How long a rank that has failed goes on, so that words reach all: the first process that ends
// makes mpirun end the others.
constexpr std::chrono::milliseconds kGrace{200};

// Whoever waits is more patient than the one it waits for, who can say more.
constexpr int kPatienceOfWaiting = 10;

// Long enough for others to run, short against a step.
constexpr std::chrono::microseconds kShareOfCore{20};

// Another rank has failed first.
class Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Numbers and times as bytes, for processes of one program.
class Packer {
 public:
  template <typename T>
  void put(const T& value) {
    const auto* first = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof(T));
  }
  template <typename T>
  void put_list(const std::vector<T>& values) {
    put(values.size());
    const auto* first = reinterpret_cast<const char*>(values.data());
    bytes.insert(bytes.end(), first, first + values.size() * sizeof(T));
  }
  void put_values(const std::map<int, std::vector<double>>& by_allocation) {
    put(by_allocation.size());
    for (const auto& [allocation, values] : by_allocation) {
      put(allocation);
      put_list(values);
    }
  }
  std::vector<char> bytes;
};

class Unpacker {
 public:
  explicit Unpacker(const std::vector<char>& bytes) : next_(bytes.data()) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(static_cast<void*>(&value), next_, sizeof(T));
    next_ += sizeof(T);
    return value;
  }
  template <typename T>
  std::vector<T> take_list() {
    std::vector<T> values(take<std::size_t>());
    std::memcpy(static_cast<void*>(values.data()), next_, values.size() * sizeof(T));
    next_ += values.size() * sizeof(T);
    return values;
  }
  std::map<int, std::vector<double>> take_values() {
    std::map<int, std::vector<double>> by_allocation;
    for (auto left = take<std::size_t>(); left > 0; --left) {
      const int allocation = take<int>();
      by_allocation[allocation] = take_list<double>();
    }
    return by_allocation;
  }

 private:
  const char* next_;
};

std::vector<char> packed(const RankNumbers& numbers) {
  Packer packer;
  packer.put(numbers.losses.size());
  for (const auto& [micro_batch, loss] : numbers.losses) {
    packer.put(micro_batch);
    packer.put(loss);
  }
  packer.put(numbers.loss_total);
  packer.put(numbers.norm);
  packer.put_values(numbers.gradients);
  packer.put_values(numbers.updated);
  return std::move(packer.bytes);
}

RankNumbers unpacked(const std::vector<char>& bytes) {
  Unpacker from(bytes);
  RankNumbers numbers;
  for (auto left = from.take<std::size_t>(); left > 0; --left) {
    const int micro_batch = from.take<int>();
    numbers.losses[micro_batch] = from.take<double>();
  }
  numbers.loss_total = from.take<std::optional<double>>();
  numbers.norm = from.take<std::optional<double>>();
  numbers.gradients = from.take_values();
  numbers.updated = from.take_values();
  return numbers;
}

// A thread that looks whether the rank's operations end. It uses no MPI.
class Watch {
 public:
  Watch(std::chrono::milliseconds patience, std::function<void(int operation)> stands_still)
      : patience_(patience), stands_still_(std::move(stands_still)), thread_([this] { run(); }) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  void begins(int operation) {
    running_ = operation;
    ++progress_;
  }
  void ended() {
    running_ = -1;
    ++progress_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    std::int64_t seen = -1;
    while (!over_) {
      wake_.wait_for(lock, patience_, [this] { return over_; });
      const std::int64_t progress = progress_;
      const int running = running_;
      if (!over_ && running >= 0 && progress == seen) stands_still_(running);
      seen = progress;
    }
  }

  std::chrono::milliseconds patience_;
  std::function<void(int)> stands_still_;
  std::atomic<int> running_{-1};
  std::atomic<std::int64_t> progress_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

class ProcessRun {
 public:
  ProcessRun(const Program& program, const ExecuteOptions& options, MpiWorld& world,
             const LastWords& last_words)
      : options_(options),
        world_(world),
        plan_(program, options.swapped),
        rank_(world.rank()),
        shares_core_(world.local_size() > static_cast<int>(std::thread::hardware_concurrency())),
        exchange_(world, plan_, rank_),
        last_words_(last_words),
        watch_(options.patience, [this](int operation) {
          last_words_.tell(plan_.words(rank_, operation) + ": stands still: nothing ended for " +
                           std::to_string(options_.patience.count()) + " ms");
          last_words_.end();
        }) {}

  ExecutionResult execute() {
    result_.messages.assign(plan_.ranks.size(), "");
    if (find_deadlock()) return std::move(result_);
    try {
      for (const Meeting& meeting : plan_.meetings) require_same_collective(plan_, meeting);
      const ResidentMemory memory;
      run_ = std::make_unique<RankRun>(plan_, rank_, options_);
      for (int step = 0; step < options_.warm_up + options_.steps; ++step) run_step(step);
      collect_times(memory.grown());
      result_.messages.clear();
    } catch (const Stopped& stopped) {
      fail(stopped.what(), false);
    } catch (const std::exception& error) {
      fail(where() + error.what(), true);
    }
    return std::move(result_);
  }

 private:
  // -- Failures -------------------------------------------------------------------------------

  bool find_deadlock() {
    const PlanOrder order(plan_);
    if (order.ends()) return false;
    result_.outcome = Outcome::kDeadlock;
    result_.deadlock = wait_cycle(plan_, order.begun(), order.ended());
    for (int rank = 0; rank < world_.size(); ++rank) {
      result_.messages[static_cast<std::size_t>(rank)] =
          waiting_words(plan_, order.begun(), order.ended(), rank);
    }
    return true;
  }

  std::string where() const {
    return running_ >= 0 ? plan_.words(rank_, running_) + ": "
                         : "rank " + std::to_string(rank_) + ": ";
  }

  void fail(const std::string& message, bool first) {
    result_.outcome = Outcome::kFailed;
    result_.messages[static_cast<std::size_t>(rank_)] = message;
    last_words_.tell(message);
    world_.abandon();
    std::vector<MpiWorld::Message> told;
    for (int other = 0; first && other < world_.size(); ++other) {
      if (other != rank_) told.push_back(world_.tell(other, message));
    }
    const auto until = ExecutionClock::now() + kGrace;
    while (ExecutionClock::now() < until) {
      for (MpiWorld::Message& word : told) word.done();
      std::this_thread::yield();
    }
  }

  void listen() const {
    if (const auto word = world_.heard()) {
      throw Stopped("rank " + std::to_string(rank_) + " was stopped: rank " +
                    std::to_string(word->from) + " failed: " + word->text);
    }
  }

  // Waits for something that others bring about.
  template <typename Done>
  void wait_until(Done done, const std::function<std::string()>& what) {
    const auto since = ExecutionClock::now();
    const auto patience = kPatienceOfWaiting * options_.patience;
    while (!done()) {
      listen();
      if (ExecutionClock::now() - since > patience) {
        throw std::runtime_error("waits for " + what() + "; nothing came for " +
                                 std::to_string(patience.count()) + " ms");
      }
      give_way();
    }
  }

  // Where ranks share cores, whoever waits leaves them to the others.
  void give_way() const {
    if (shares_core_) {
      std::this_thread::sleep_for(kShareOfCore);
    } else {
      std::this_thread::yield();
    }
  }

  void wait_for(MpiWorld::Message message, const char* what) {
    wait_until([&] { return message.done(); }, [what] { return std::string(what); });
  }

  // -- A step ---------------------------------------------------------------------------------

  void run_step(int step) {
    run_->begin_step(step, common_start());
    while (!run_->done()) {
      run_->release();
      const bool moved = end_meetings();
      const int next = run_->startable();
      if (next >= 0) {
        start(next);
      } else if (!moved) {
        wait_until([this] { return end_meetings(); }, [this] { return exchange_.missing(); });
      }
      listen();
    }
    run_->release();
    collect_numbers();
    if (step >= options_.warm_up) times_.push_back(run_->times());
  }

  // All have ended the step before; rank 0 says when this one starts.
  ExecutionClock::time_point common_start() {
    gather({});
    std::int64_t start = ExecutionClock::now().time_since_epoch().count();
    broadcast(&start, sizeof start);
    return ExecutionClock::time_point(ExecutionClock::duration(start - world_.clock_offset_ns()));
  }

  void start(int operation) {
    run_->begin(operation);
    running_ = operation;
    watch_.begins(operation);
    if (options_.before_operation) {
      options_.before_operation(rank_, plan_.words(rank_, operation));
    }
    run_->make_operands(operation);
    const int meeting = run_->planned(operation).meeting;
    if (meeting < 0) {
      run_->end(operation, run_->compute_alone(operation));
    } else if (plan_.meetings[static_cast<std::size_t>(meeting)].members.size() == 1) {
      meet_alone(operation);
    } else {
      exchange_.come(operation, run_->now(), run_->operands(operation));
    }
    running_ = -1;
    watch_.ended();
  }

  void meet_alone(int operation) {
    MeasuredTimes times;
    times.start = run_->now();
    const std::vector<CollectiveMember> own = {run_->operands(operation)};
    communicate(std::get<Collective>(run_->planned(operation).operation->operation), own);
    times.end = run_->now();
    run_->end(operation, times);
  }

  bool end_meetings() {
    if (!exchange_.waits()) return false;
    running_ = exchange_.oldest();
    bool any = false;
    for (const Exchange::Ended& ended : exchange_.progress()) {
      run_->end(ended.operation, {ended.start, run_->now()});
      any = true;
    }
    if (!exchange_.waits() || any) running_ = -1;
    return any;
  }

  // -- Between steps --------------------------------------------------------------------------

  // By rank, at rank 0.
  std::vector<std::vector<char>> gather(std::vector<char> own) {
    std::vector<std::vector<char>> all(static_cast<std::size_t>(world_.size()));
    std::size_t size = own.size();
    if (rank_ != 0) {
      wait_for(world_.send(0, kBetween, &size, sizeof size), "rank 0");
      wait_for(world_.send(0, kBetween, own.data(), own.size()), "rank 0");
      return all;
    }
    all[0] = std::move(own);
    for (int other = 1; other < world_.size(); ++other) {
      auto& theirs = all[static_cast<std::size_t>(other)];
      wait_for(world_.receive(other, kBetween, &size, sizeof size), "the others");
      theirs.resize(size);
      wait_for(world_.receive(other, kBetween, theirs.data(), size), "the others");
    }
    return all;
  }

  // From rank 0.
  void broadcast(void* bytes, std::size_t count) {
    if (rank_ != 0) return wait_for(world_.receive(0, kBetween, bytes, count), "rank 0");
    for (int other = 1; other < world_.size(); ++other) {
      wait_for(world_.send(other, kBetween, bytes, count), "the others");
    }
  }

  void collect_numbers() {
    const auto all = gather(packed(run_->numbers()));
    if (rank_ != 0) return;
    numbers_.clear();
    for (const std::vector<char>& bytes : all) numbers_.push_back(unpacked(bytes));
    result_.steps.push_back(executed_step(plan_, numbers_));
  }

  void collect_times(Bytes resident) {
    Packer own;
    own.put(run_->peak());
    own.put(resident);
    for (const std::vector<MeasuredTimes>& step : times_) own.put_list(step);
    const auto all = gather(std::move(own.bytes));
    if (rank_ != 0) return;
    std::vector<std::vector<std::vector<MeasuredTimes>>> times(times_.size());
    for (const std::vector<char>& bytes : all) {
      Unpacker from(bytes);
      result_.peak.push_back(from.take<Bytes>());
      result_.resident.push_back(from.take<Bytes>());
      for (auto& step : times) step.push_back(from.take_list<MeasuredTimes>());
    }
    result_.parameters = updated_parameters(plan_, numbers_);
    set_times(plan_, options_.warm_up, std::move(times), result_);
  }

  static constexpr int kBetween = 0;  // the tag of messages between steps

  const ExecuteOptions options_;
  MpiWorld& world_;
  const ExecutionPlan plan_;
  const int rank_;
  const bool shares_core_;
  ExecutionResult result_;
  std::unique_ptr<RankRun> run_;
  Exchange exchange_;
  int running_ = -1;                               // what this rank is at
  std::vector<std::vector<MeasuredTimes>> times_;  // by measured step
  std::vector<RankNumbers> numbers_;               // of all ranks, at rank 0
  const LastWords last_words_;
  Watch watch_;  // last: it looks at all others
};

}  // namespace

ExecutionResult execute_in_processes(const Program& program, const ExecuteOptions& options,
                                     MpiWorld& world, const LastWords& last_words) {
  if (world.size() != program.grid.size()) {
    throw InvalidInput("mpirun", "",
                       "the Program has " + std::to_string(program.grid.size()) +
                           " ranks; expected as many processes, not " +
                           std::to_string(world.size()));
  }
  return ProcessRun(program, options, world, last_words).execute();
}

}  // namespace headway
