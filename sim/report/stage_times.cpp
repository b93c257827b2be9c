#include "sim/report/stage_times.hpp"

namespace headway {

namespace {

enum class Part { kForward, kBackward, kOther };

// "2F", "2F_first" are forward; "2B", "2W", "2I" backward; passes without a stage are neither.
Part part_of(const Pass& pass) {
  const std::size_t letter = pass.name.find_first_not_of("0123456789");
  if (pass.stage < 0 || letter == 0 || letter == std::string::npos) return Part::kOther;
  switch (pass.name[letter]) {
    case 'F':
      return Part::kForward;
    case 'B':
    case 'W':
    case 'I':
      return Part::kBackward;
    default:
      return Part::kOther;
  }
}

}  // namespace

std::vector<StageTime> stage_times(const SimulatedStep& step) {
  std::vector<StageTime> times(step.lowered.device_rank.size());
  for (std::size_t d = 0; d < times.size(); ++d) {
    times[d].rank = step.lowered.device_rank[d];
    times[d].idle = step.timeline.makespan;
  }
  for (const Span& span : step.timeline.spans) {
    if (span.stream != 0) continue;
    const auto device = static_cast<std::size_t>(span.device);
    const RankKind& kind =
        step.program.kinds[static_cast<std::size_t>(step.lowered.device_kind[device])];
    const Instance& instance =
        step.lowered.graph.instances[static_cast<std::size_t>(span.instance)];
    const Issue& issue = kind.order[static_cast<std::size_t>(instance.label)];
    const Time spent = span.end - span.start;
    StageTime& time = times[device];
    switch (part_of(kind.passes[static_cast<std::size_t>(issue.pass)])) {
      case Part::kForward:
        time.forward += spent;
        break;
      case Part::kBackward:
        time.backward += spent;
        break;
      case Part::kOther:
        time.other += spent;
        break;
    }
    time.idle = time.idle - spent;
  }
  return times;
}

}  // namespace headway
