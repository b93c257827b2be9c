#include "kernels/execute/mpi_world.hpp"

#include <mpi.h>

#include <chrono>
#include <limits>

#include "sim/core/error.hpp"

namespace headway {
namespace {

constexpr int kClockRounds = 50;
constexpr int kClockTag = 0;

void require(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw MachineFailure(std::string(what) + ": " +
                       std::string(text, static_cast<std::size_t>(length)));
}

int narrow(std::size_t count) {
  if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw MachineFailure("a message of " + std::to_string(count) +
                         " bytes; MPI takes at most 2^31 - 1");
  }
  return static_cast<int>(count);
}

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct MpiWorld::Communicators {
  MPI_Comm messages = MPI_COMM_NULL, words = MPI_COMM_NULL;
};

struct MpiWorld::Message::State {
  MPI_Request request = MPI_REQUEST_NULL;
};

MpiWorld::Message::Message() = default;
MpiWorld::Message::Message(Message&&) noexcept = default;
MpiWorld::Message& MpiWorld::Message::operator=(Message&&) noexcept = default;
MpiWorld::Message::~Message() = default;

bool MpiWorld::Message::done() {
  if (state_ == nullptr) return true;
  int ended = 0;
  require(MPI_Test(&state_->request, &ended, MPI_STATUS_IGNORE), "a message");
  if (ended != 0) state_.reset();
  return ended != 0;
}

MpiWorld::MpiWorld() : communicators_(std::make_unique<Communicators>()) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_rank_);
  MPI_Comm_size(machine, &local_size_);
  MPI_Comm_free(&machine);
  for (MPI_Comm* communicator : {&communicators_->messages, &communicators_->words}) {
    MPI_Comm_dup(MPI_COMM_WORLD, communicator);
    MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN);
  }
  if (local_size_ < size_) synchronise_clock();
}

MpiWorld::~MpiWorld() {
  if (!abandoned_) MPI_Finalize();
}

// The round trip that takes least says most (Cristian 1989). Between machines only.
void MpiWorld::synchronise_clock() {
  MPI_Comm comm = communicators_->messages;
  for (int other = 1; other < size_; ++other) {
    if (rank_ != 0 && rank_ != other) continue;
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < kClockRounds; ++round) {
      std::int64_t theirs = 0;
      if (rank_ == 0) {
        MPI_Recv(&theirs, 1, MPI_INT64_T, other, kClockTag, comm, MPI_STATUS_IGNORE);
        theirs = steady_ns();
        MPI_Send(&theirs, 1, MPI_INT64_T, other, kClockTag, comm);
        continue;
      }
      const std::int64_t asked = steady_ns();
      MPI_Send(&theirs, 1, MPI_INT64_T, 0, kClockTag, comm);
      MPI_Recv(&theirs, 1, MPI_INT64_T, 0, kClockTag, comm, MPI_STATUS_IGNORE);
      const std::int64_t took = steady_ns() - asked;
      if (took >= shortest) continue;
      shortest = took;
      clock_offset_ns_ = theirs - (asked + took / 2);
    }
  }
}

MpiWorld::Message MpiWorld::send(int to, int tag, const void* bytes, std::size_t count) const {
  Message message;
  message.state_ = std::make_unique<Message::State>();
  require(MPI_Isend(bytes, narrow(count), MPI_BYTE, to, tag, communicators_->messages,
                    &message.state_->request),
          "a send");
  return message;
}

MpiWorld::Message MpiWorld::receive(int from, int tag, void* bytes, std::size_t count) const {
  Message message;
  message.state_ = std::make_unique<Message::State>();
  require(MPI_Irecv(bytes, narrow(count), MPI_BYTE, from, tag, communicators_->messages,
                    &message.state_->request),
          "a receive");
  return message;
}

MpiWorld::Message MpiWorld::tell(int to, const std::string& text) const {
  Message message;
  message.state_ = std::make_unique<Message::State>();
  require(MPI_Isend(text.data(), narrow(text.size()), MPI_BYTE, to, 0, communicators_->words,
                    &message.state_->request),
          "a word");
  return message;
}

std::optional<MpiWorld::Word> MpiWorld::heard() const {
  int there = 0;
  MPI_Status status;
  require(MPI_Iprobe(MPI_ANY_SOURCE, 0, communicators_->words, &there, &status), "listening");
  if (there == 0) return std::nullopt;
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  Word word{status.MPI_SOURCE, std::string(static_cast<std::size_t>(count), ' ')};
  require(MPI_Recv(word.text.data(), count, MPI_BYTE, status.MPI_SOURCE, 0, communicators_->words,
                   MPI_STATUS_IGNORE),
          "a word");
  return word;
}

}  // namespace headway
