// The clock's agenda: a 4-ary heap of (time, id) in which every id stands at most once and can be
// moved. Ids are dense; which of several ids with equal time comes first depends only on the calls
// made, and the engine's results do not depend on it (it finishes an instant before it goes on).
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headway {

class EventQueue {
 public:
  explicit EventQueue(int ids) : place_(static_cast<std::size_t>(ids), kAbsent) {}

  bool empty() const { return heap_.empty(); }
  // REQUIRES: not empty.
  std::int64_t next_time() const { return heap_.front().time; }

  // Sets the time of `id`, whether or not it stands in the queue.
  void schedule(int id, std::int64_t time) {
    const std::size_t place = place_[index(id)];
    if (place == kAbsent) {
      heap_.push_back({time, id});
      rise(heap_.size() - 1, {time, id});
    } else if (time < heap_[place].time) {
      rise(place, {time, id});
    } else {
      sink(place, {time, id});
    }
  }

  void cancel(int id) {
    const std::size_t place = place_[index(id)];
    if (place != kAbsent) remove_at(place);
  }

  // REQUIRES: not empty.
  int pop() {
    const int id = heap_.front().id;
    remove_at(0);
    return id;
  }

 private:
  struct Entry {
    std::int64_t time;
    int id;
  };
  static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  static constexpr std::size_t kArity = 4;

  static std::size_t index(int id) { return static_cast<std::size_t>(id); }

  void put(std::size_t place, Entry entry) {
    heap_[place] = entry;
    place_[index(entry.id)] = place;
  }

  void rise(std::size_t place, Entry entry) {
    while (place > 0) {
      const std::size_t parent = (place - 1) / kArity;
      if (heap_[parent].time <= entry.time) break;
      put(place, heap_[parent]);
      place = parent;
    }
    put(place, entry);
  }

  void sink(std::size_t place, Entry entry) {
    for (;;) {
      const std::size_t first = place * kArity + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      for (std::size_t child = first + 1; child < first + kArity && child < heap_.size(); ++child) {
        if (heap_[child].time < heap_[least].time) least = child;
      }
      if (heap_[least].time >= entry.time) break;
      put(place, heap_[least]);
      place = least;
    }
    put(place, entry);
  }

  void remove_at(std::size_t place) {
    place_[index(heap_[place].id)] = kAbsent;
    const Entry moved = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    // The last entry takes the place and goes whichever way it must.
    if (place > 0 && heap_[(place - 1) / kArity].time > moved.time) {
      rise(place, moved);
    } else {
      sink(place, moved);
    }
  }

  std::vector<Entry> heap_;
  std::vector<std::size_t> place_;
};

}  // namespace headway
