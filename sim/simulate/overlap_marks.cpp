#include "sim/simulate/overlap_marks.hpp"

#include <algorithm>

namespace headway {

void OverlapMarks::begin_device() {
  std::fill(streams_.begin(), streams_.end(), Stream{});
  releases_.clear();
}

bool OverlapMarks::open() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return stream.known < stream.issued; });
}

bool OverlapMarks::issue(const Events& events, const int* awaited, const int* released) {
  bool overlapped = open();
  for (const Event& event : events) {
    Stream& stream = streams_[static_cast<std::size_t>(event.stream)];
    switch (event.kind) {
      case Kind::kIssues:
        ++stream.issued;
        overlapped = true;
        break;
      case Kind::kJoins:
        stream.known = stream.issued;
        break;
      case Kind::kReleases:
        releases_[released[event.slot]] = {event.stream, stream.issued};
        break;
      case Kind::kAwaits: {
        const auto found = releases_.find(awaited[event.slot]);
        if (found == releases_.end()) break;
        Stream& other = streams_[static_cast<std::size_t>(found->second.stream)];
        other.known = std::max(other.known, found->second.issued);
        break;
      }
    }
  }
  return overlapped;
}

}  // namespace headway
