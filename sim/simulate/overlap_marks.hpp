// Which passes of a device collectives beside its compute may overlap, from the dependency order
// alone: a collective counts from the pass that issues it until the compute stream has waited for
// it, by joining its stream or by awaiting a port that this stream released behind it. Whatever is
// not marked cannot be slowed, and is played ahead of the clock; what is marked without need costs
// time, but changes nothing.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace headway {

class OverlapMarks {
 public:
  // What matters of a pass, in the order of its operations.
  enum class Kind {
    kIssues,    // a collective that slows, on `stream`
    kJoins,     // the compute stream waits for all that was issued on `stream`
    kAwaits,    // the compute stream waits for the port in awaited slot `slot`
    kReleases,  // an operation on `stream` releases the port in released slot `slot`
  };
  struct Event {
    Kind kind = Kind::kIssues;
    int stream = 0, slot = 0;
  };
  using Events = std::vector<Event>;

  explicit OverlapMarks(std::size_t streams) : streams_(streams) {}

  // From here on passes are those of another device.
  void begin_device();

  // The next pass that the device issues; its ports by slot, numbered over all devices. Whether a
  // collective may overlap some of it.
  bool issue(const Events& events, const int* awaited, const int* released);

 private:
  struct Stream {
    int issued = 0;  // collectives that slow, so far
    int known = 0;   // of these, those that the compute stream has waited for
  };
  struct Release {
    int stream = 0, issued = 0;
  };
  bool open() const;

  std::vector<Stream> streams_;
  std::unordered_map<int, Release> releases_;  // by port
};

}  // namespace headway
