// The processes that one mpirun has started, of which this is one. Wraps what the executor needs of
// MPI: messages of bytes that never block, so that whoever waits can look at the clock and listen
// for failures meanwhile. Only the thread that made it may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace headway {

class MpiWorld {
 public:
  // Joins the world. One at a time in a process, and never another after it.
  MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  // Leaves it together with all others, unless it is abandoned.
  ~MpiWorld();
  // The process is about to end by itself: others are not waited for.
  void abandon() { abandoned_ = true; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Of the processes on this machine, which one this is, and how many there are.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  // What to add to this machine's steady clock to have that of rank 0: nothing on its own machine,
  // else half a round trip's error.
  std::int64_t clock_offset_ns() const { return clock_offset_ns_; }

  // A message under way. Its bytes belong to it until it is done; messages of one tag between two
  // ranks arrive in order.
  class Message {
   public:
    Message();
    Message(Message&&) noexcept;
    Message& operator=(Message&&) noexcept;
    ~Message();
    bool done();  // moves it on, too

   private:
    friend class MpiWorld;
    struct State;
    std::unique_ptr<State> state_;
  };
  // Throws MachineFailure where MPI refuses. REQUIRES: tag >= 0.
  Message send(int to, int tag, const void* bytes, std::size_t count) const;
  Message receive(int from, int tag, void* bytes, std::size_t count) const;

  // Words that may come at any time, apart from all other messages.
  struct Word {
    int from = 0;
    std::string text;
  };
  Message tell(int to, const std::string& text) const;  // `text` outlives the message
  std::optional<Word> heard() const;

 private:
  struct Communicators;
  void synchronise_clock();

  std::unique_ptr<Communicators> communicators_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::int64_t clock_offset_ns_ = 0;
  bool abandoned_ = false;
};

}  // namespace headway
