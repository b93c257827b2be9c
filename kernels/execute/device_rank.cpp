#include "kernels/execute/device_rank.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/cuda/device_transfer.hpp"
#include "kernels/execute/operation_placement.hpp"

namespace headway {
namespace {

bool stops_host(const TemplateOperation& operation) {
  const auto* host = std::get_if<HostWork>(&operation.operation);
  return operation.host_waits || (host != nullptr && host->kind == HostKind::kSynchronise);
}

}  // namespace

Time elapsed(const DeviceEvent& from, const DeviceEvent& to) {
  float milliseconds = 0;
  checked(cudaEventElapsedTime(&milliseconds, from.get(), to.get()));
  return Time::from_seconds(static_cast<double>(milliseconds) * 1e-3);
}

DeviceRank::DeviceRank(const ExecutionPlan& plan, int rank, const ExecuteOptions& options,
                       GemmLibrary& library, DevicePartition& partition)
    : plan_(plan), rank_(rank), options_(options) {
  const RankPlan& mine = plan.ranks[static_cast<std::size_t>(rank)];
  for (std::size_t s = 0; s < mine.streams.size(); ++s) {
    streams_.push_back(std::make_unique<DeviceStream>(library, partition.make_stream(rank)));
  }
  memory_ = std::make_unique<DeviceRankMemory>(plan, rank, options.seed, options.memory_limit,
                                               options.checked, *streams_.front());
  const std::size_t operations = mine.operations.size();
  awaited_.resize(operations);
  starts_.resize(operations);
  ends_.resize(operations);
  arrivals_.resize(operations);
  for (std::size_t o = 0; o < operations; ++o) {
    const PlannedOperation& planned = mine.operations[o];
    if (stops_host(*planned.operation)) awaited_[o] = 1;
    for (const Dependency& wait : planned.waits) {
      const auto before = static_cast<std::size_t>(wait.operation);
      if (mine.operations[before].operation->stream != planned.operation->stream) {
        awaited_[before] = 1;
      }
    }
  }
}

void DeviceRank::begin_step(int step, bool timed) {
  const std::size_t operations = awaited_.size();
  step_ = step;
  timed_ = timed;
  memory_->begin_step(step);
  begun_.assign(operations, 0);
  issued_.assign(operations, 0);
  heads_.assign(streams_.size(), 0);
  left_ = operations;
  notes_used_ = 0;
  noted_gradients_.clear();
  loss_total_ = -1;
}

int DeviceRank::issuable() const {
  const RankPlan& mine = plan_.ranks[static_cast<std::size_t>(rank_)];
  int best = -1;
  for (std::size_t s = 0; s < mine.streams.size(); ++s) {
    if (heads_[s] == mine.streams[s].size()) continue;
    const int head = mine.streams[s][heads_[s]];
    if (begun_[static_cast<std::size_t>(head)] != 0 || (best >= 0 && head > best)) continue;
    const auto& waits = planned(head).waits;
    const bool ready = std::all_of(waits.begin(), waits.end(), [&](const Dependency& wait) {
      return issued_[static_cast<std::size_t>(wait.operation)] != 0;
    });
    if (ready) best = head;
  }
  return best;
}

DeviceEvent& DeviceRank::event(std::vector<std::optional<DeviceEvent>>& events, int operation) {
  auto& found = events[static_cast<std::size_t>(operation)];
  // Events live as long as the rank, so whether a later step is timed must not matter.
  if (!found) found.emplace(true);
  return *found;
}

void DeviceRank::prepare(int operation) {
  begun_[static_cast<std::size_t>(operation)] = 1;
  const PlannedOperation& what = planned(operation);
  DeviceStream& own = stream(operation);
  for (const Dependency& wait : what.waits) {
    const DeviceEvent& end = event(ends_, wait.operation);
    if (wait.kind == WaitKind::kHost) {
      checked(cudaEventSynchronize(end.get()));
    } else if (planned(wait.operation).operation->stream != what.operation->stream) {
      own.wait(end);
    }
  }
  for (const auto* list : {&what.reads, &what.writes}) {
    for (const int allocation : *list) memory_->use(allocation, what.operation->stream, own);
  }
}

CollectiveMember DeviceRank::operands(int operation) const {
  CollectiveMember member;
  for (const int read : planned(operation).reads) member.reads.push_back(memory_->operand(read));
  for (const int write : planned(operation).writes) {
    member.writes.push_back(memory_->operand(write));
  }
  return member;
}

void DeviceRank::issue_alone(int operation) {
  const PlannedOperation& what = planned(operation);
  DeviceStream& own = stream(operation);
  note_before(operation);
  if (timed_) own.record(event(starts_, operation));
  if (std::holds_alternative<HostWork>(what.operation->operation)) {
    for (const int write : what.writes) memory_->deliver(write, own);
  } else {
    const CollectiveMember member = operands(operation);
    Placement placement = placement_of(*plan_.program, rank_, what, step_, options_);
    count_update(what, updates_, placement);
    const std::vector<std::int64_t> tokens = choosing_tokens(what, placement);
    std::vector<std::int32_t> recorded;
    if (!tokens.empty() && options_.routing != nullptr) {
      recorded = options_.routing->find(what.layer, tokens);
      placement.choice = recorded.data();
    }
    compute_on_device(with_held_rows(*plan_.program, *what.operation, member), member.reads,
                      member.writes, placement, own);
  }
  finish(operation);
}

void DeviceRank::arrive(int operation) {
  note_before(operation);
  if (timed_) stream(operation).record(event(starts_, operation));
  stream(operation).record(event(arrivals_, operation));
}

void DeviceRank::leave(int operation, const DeviceEvent& done) {
  stream(operation).wait(done);
  finish(operation);
}

bool DeviceRank::needs_event(int operation) const {
  if (timed_ || awaited_[static_cast<std::size_t>(operation)] != 0) return true;
  const PlannedOperation& what = planned(operation);
  for (const auto* list : {&what.reads, &what.writes}) {
    for (const int allocation : *list) {
      if (memory_->needs_event(allocation, what.operation->stream)) return true;
    }
  }
  return false;
}

// The operation, and what follows from its numbers, has been enqueued.
void DeviceRank::finish(int operation) {
  const PlannedOperation& what = planned(operation);
  const DeviceEvent* end = nullptr;
  if (needs_event(operation)) {
    DeviceEvent& made = event(ends_, operation);
    stream(operation).record(made);
    end = &made;
  }
  note_after(operation);
  std::set<int> touched(what.reads.begin(), what.reads.end());
  touched.insert(what.writes.begin(), what.writes.end());
  for (const int allocation : touched) memory_->enqueued(allocation, what.operation->stream, end);
  issued_[static_cast<std::size_t>(operation)] = 1;
  --left_;
  ++heads_[static_cast<std::size_t>(what.operation->stream)];
}

void DeviceRank::synchronise() {
  for (const auto& each : streams_) each->synchronise();
}

std::vector<MeasuredTimes> DeviceRank::times(const DeviceEvent& start) const {
  std::vector<MeasuredTimes> times;
  for (std::size_t o = 0; o < starts_.size(); ++o) {
    times.push_back({elapsed(start, *starts_[o]), elapsed(start, *ends_[o])});
  }
  return times;
}

// -- Numbers ------------------------------------------------------------------------------------

void DeviceRank::note(NoteKind kind, int allocation, int operation) {
  const Operand operand = memory_->operand(allocation);
  const auto bytes = static_cast<std::size_t>(size_of(operand.type, operand.elements()).count);
  if (notes_used_ == notes_.size() || notes_[notes_used_].bytes < bytes) {
    Note made{kind, 0, -1, operand.type, 0, 1.0, PinnedMemory(bytes), bytes};
    if (notes_used_ == notes_.size()) {
      notes_.push_back(std::move(made));
    } else {
      notes_[notes_used_] = std::move(made);
    }
  }
  Note& taken = notes_[notes_used_++];
  taken.kind = kind;
  taken.allocation = allocation;
  taken.micro_batch = planned(operation).micro_batch;
  taken.type = operand.type;
  taken.count = operand.elements();
  checked(cudaMemcpyAsync(taken.copy.data(), operand.data, bytes, cudaMemcpyDeviceToHost,
                          stream(operation).get()));
}

void DeviceRank::note_before(int operation) {
  const PlannedOperation& what = planned(operation);
  const Kernel* kernel = kernel_of(what);
  if (kernel != nullptr &&
      (kernel->kind == KernelKind::kClip || kernel->kind == KernelKind::kValidateNorm)) {
    note(NoteKind::kNorm, what.reads.front(), operation);
  }
  if (!options_.checked) return;
  const auto [first, last] = gradients_read(*plan_.program, what);
  for (std::size_t i = first; i < last; ++i) {
    if (noted_gradients_.insert(what.reads[i]).second) {
      note(NoteKind::kGradient, what.reads[i], operation);
    }
  }
}

void DeviceRank::note_after(int operation) {
  const PlannedOperation& what = planned(operation);
  const Kernel* kernel = kernel_of(what);
  if (kernel != nullptr && kernel->kind == KernelKind::kLossSum) {
    note(NoteKind::kLoss, what.reads.front(), operation);
    notes_[notes_used_ - 1].scale = kernel->scale;
    loss_total_ = what.writes.front();
  }
  if (!options_.checked) return;
  for (std::size_t i = 0; i < parameters_written(what); ++i) {
    note(NoteKind::kUpdated, what.writes[i], operation);
  }
}

RankNumbers DeviceRank::numbers() const {
  RankNumbers numbers;
  // As the step leaves it: summed over micro-batches, averaged, reduced.
  if (loss_total_ >= 0 && memory_->is_there(loss_total_)) {
    numbers.loss_total = download(memory_->operand(loss_total_), *streams_.front()).front();
  }
  for (std::size_t n = 0; n < notes_used_; ++n) {
    const Note& note = notes_[n];
    std::vector<double> values = numbers_of(note.copy.data(), note.type, note.count);
    switch (note.kind) {
      case NoteKind::kLoss:
        for (const double loss : values) numbers.losses[note.micro_batch] += note.scale * loss;
        break;
      case NoteKind::kNorm:
        numbers.norm = std::sqrt(values.front());
        break;
      case NoteKind::kGradient:
        numbers.gradients[note.allocation] = std::move(values);
        break;
      case NoteKind::kUpdated:
        numbers.updated[note.allocation] = std::move(values);
        break;
    }
  }
  return numbers;
}

}  // namespace headway
