#include "sim/report/trace.hpp"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "sim/core/json_writer.hpp"
#include "sim/program/lifetime.hpp"

namespace headway {

namespace {

// Chrome traces count in microseconds; picoseconds keep their six digits behind the point.
std::string microseconds(Time time) {
  const std::int64_t whole = time.picoseconds / 1000000;
  std::string digits = std::to_string(time.picoseconds % 1000000);
  digits.insert(0, 6 - digits.size(), '0');
  return std::to_string(whole) + "." + digits;
}

class Trace {
 public:
  explicit Trace(const SimulatedStep& step) : step_(step), json_(0) {}

  std::string text() {
    json_.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
    for (int device = 0; device < step_.lowered.graph.devices; ++device) name_tracks(device);
    ends_.resize(step_.lowered.graph.activities.size());
    for (const Span& span : step_.timeline.spans) add_span(span);
    for (std::size_t id = 0; id < ends_.size(); ++id) add_arrow(id);
    add_memory();
    json_.end_array().end_object();
    return json_.text();
  }

 private:
  struct MessageEnds {
    const Span* sender = nullptr;
    const Span* receiver = nullptr;
  };

  const RankKind& kind_of(int device) const {
    return step_.program.kinds[static_cast<std::size_t>(
        step_.lowered.device_kind[static_cast<std::size_t>(device)])];
  }

  void name_tracks(int device) {
    const auto index = static_cast<std::size_t>(device);
    const int ranks = step_.lowered.partition.rank_multiplicity[index];
    const std::string title = kind_of(device).name + " (rank " +
                              std::to_string(step_.lowered.device_rank[index]) +
                              (ranks > 1 ? " and " + std::to_string(ranks - 1) + " like it)" : ")");
    metadata(device, 0, "process_name", "name", title);
    const int streams = step_.lowered.graph.streams_per_device;
    for (int stream = 0; stream < streams; ++stream) {
      metadata(device, stream, "thread_name", "name",
               step_.program.streams[static_cast<std::size_t>(stream)]);
    }
    metadata(device, streams, "thread_name", "name", "host");
  }

  void metadata(int device, int stream, const char* kind, const char* key,
                const std::string& value) {
    json_.begin_object().field("ph", "M").field("pid", device).field("tid", stream);
    json_.field("name", kind).key("args").begin_object().field(key, value).end_object();
    json_.end_object();
  }

  void add_span(const Span& span) {
    if (span.end == span.start) return;
    const LoweredStep& lowered = step_.lowered;
    const Instance& instance = lowered.graph.instances[static_cast<std::size_t>(span.instance)];
    const RankKind& kind = kind_of(span.device);
    const Issue& issue = kind.order[static_cast<std::size_t>(instance.label)];
    const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
    std::string action = pass.name;
    if (issue.micro_batch >= 0) action += std::to_string(issue.micro_batch);
    const TemplateOperation* operation = nullptr;
    int layer = -1;
    if (span.task >= 0) {
      const TaskOrigin& origin = lowered.origins[static_cast<std::size_t>(instance.task_template)]
                                                [static_cast<std::size_t>(span.task)];
      operation = &step_.program.templates[static_cast<std::size_t>(origin.template_index)]
                       .operations[static_cast<std::size_t>(origin.operation)];
      if (pass.stage >= 0) layer = pass.steps[static_cast<std::size_t>(origin.step)].layer;
    }
    note_message(span, instance);
    json_.begin_object().field("ph", "X").field("pid", span.device).field("tid", span.stream);
    json_.key("ts").raw(microseconds(span.start));
    json_.key("dur").raw(microseconds(span.end - span.start));
    json_.field("name", operation == nullptr ? action : operation->name);
    json_.field("cat", operation == nullptr ? "pass" : std::string(name(operation->cause)));
    json_.key("args").begin_object().field("action", action);
    if (pass.stage >= 0) json_.field("stage", pass.stage);
    if (issue.micro_batch >= 0) json_.field("micro_batch", issue.micro_batch);
    if (layer >= 0) json_.field("layer", layer);
    json_.end_object().end_object();
  }

  // Remembers the span of a message at either end.
  void note_message(const Span& span, const Instance& instance) {
    const LoweredStep& lowered = step_.lowered;
    const auto& tasks =
        lowered.graph.templates[static_cast<std::size_t>(instance.task_template)].tasks;
    const auto& origins = lowered.origins[static_cast<std::size_t>(instance.task_template)];
    const std::size_t first = span.task >= 0 ? static_cast<std::size_t>(span.task) : 0;
    const std::size_t last = span.task >= 0 ? first + 1 : tasks.size();
    for (std::size_t t = first; t < last; ++t) {
      if (tasks[t].activity == kNoIndex || tasks[t].stream != span.stream) continue;
      const TemplateOperation& operation =
          step_.program.templates[static_cast<std::size_t>(origins[t].template_index)]
              .operations[static_cast<std::size_t>(origins[t].operation)];
      const auto& collective = std::get<Collective>(operation.operation);
      const int slot = instance.first_activity + tasks[t].activity;
      const int activity = lowered.graph.bound_activities[static_cast<std::size_t>(slot)];
      MessageEnds& ends = ends_[static_cast<std::size_t>(activity)];
      if (collective.kind == CollectiveKind::kSend) ends.sender = &span;
      if (collective.kind == CollectiveKind::kReceive) ends.receiver = &span;
    }
  }

  void add_arrow(std::size_t id) {
    const MessageEnds& ends = ends_[id];
    if (ends.sender == nullptr || ends.receiver == nullptr) return;
    add_arrow_end("s", id, *ends.sender, ends.sender->start);
    // A little before its end: what ends there is then the receiver, for sure.
    const Time length = ends.receiver->end - ends.receiver->start;
    constexpr Time kInside{2000};  // viewers count whole nanoseconds
    const Time back = std::min(kInside, Time{length.picoseconds / 2});
    add_arrow_end("f", id, *ends.receiver, ends.receiver->end - back);
  }

  void add_arrow_end(const char* phase, std::size_t id, const Span& span, Time time) {
    json_.begin_object().field("ph", phase).field("bp", "e");
    json_.field("id", static_cast<std::int64_t>(id)).field("name", "message").field("cat", "pp");
    json_.field("pid", span.device).field("tid", span.stream);
    json_.key("ts").raw(microseconds(time)).end_object();
  }

  // Memory is counted in issue order. On the clock, what lives during an issue lives from the start
  // of its first operation, and what lives after it from the end of its last one; but never against
  // the issue order, so a message still under way when the next issue starts gives way to it.
  void add_memory() {
    const TaskGraph& graph = step_.lowered.graph;
    std::vector<std::vector<int>> issued(static_cast<std::size_t>(graph.devices));
    for (std::size_t i = 0; i < graph.instances.size(); ++i) {
      issued[static_cast<std::size_t>(graph.instances[i].device)].push_back(static_cast<int>(i));
    }
    const std::vector<Extent> extents = extents_of_instances();
    std::map<int, MemoryUse> uses;
    for (int device = 0; device < graph.devices; ++device) {
      const int kind = step_.lowered.device_kind[static_cast<std::size_t>(device)];
      auto found = uses.find(kind);
      if (found == uses.end()) {
        found = uses.emplace(kind, memory_use(step_.program, kind_of(device), true)).first;
      }
      add_memory_of(device, issued[static_cast<std::size_t>(device)], extents, found->second);
    }
  }

  struct Extent {
    Time start = Time::max(), end;  // start max: nothing of it was played
  };
  std::vector<Extent> extents_of_instances() const {
    std::vector<Extent> extents(step_.lowered.graph.instances.size());
    for (const Span& span : step_.timeline.spans) {
      if (span.stream == step_.lowered.graph.streams_per_device) continue;
      Extent& extent = extents[static_cast<std::size_t>(span.instance)];
      extent.start = std::min(extent.start, span.start);
      extent.end = std::max(extent.end, span.end);
    }
    return extents;
  }

  void add_memory_of(int device, const std::vector<int>& issued, const std::vector<Extent>& extents,
                     const MemoryUse& use) {
    Bytes shown = total(use.persistent);
    add_counter(device, Time::zero(), shown);
    const auto show = [&](Time time, Bytes bytes) {
      if (bytes != shown) add_counter(device, time, bytes);
      shown = bytes;
    };
    Time now;
    Bytes most = shown;  // of the issues since the clock last moved
    for (std::size_t k = 0; k < issued.size(); ++k) {
      const auto i = static_cast<std::size_t>(issued[k]);
      const auto issue = static_cast<std::size_t>(step_.lowered.graph.instances[i].label);
      const Extent& extent = extents[i];
      if (extent.start == Time::max()) continue;
      if (extent.start > now) {
        now = extent.start;
        most = Bytes{};
      }
      most = std::max(most, use.during_issue[issue]);
      show(now, most);
      Time until = std::max(now, extent.end);
      const Time next = next_start(issued, k, extents);
      until = std::min(until, std::max(now, next));
      if (until > now) {
        now = until;
        most = Bytes{};
        show(now, use.after_issue[issue]);
      }
    }
    if (!issued.empty()) show(step_.timeline.makespan, use.after_issue.back());
  }

  static Time next_start(const std::vector<int>& issued, std::size_t k,
                         const std::vector<Extent>& extents) {
    while (++k < issued.size()) {
      const Time start = extents[static_cast<std::size_t>(issued[k])].start;
      if (start != Time::max()) return start;
    }
    return Time::max();
  }

  void add_counter(int device, Time time, Bytes bytes) {
    json_.begin_object().field("ph", "C").field("pid", device).field("name", "memory");
    json_.key("ts").raw(microseconds(time)).key("args").begin_object();
    json_.field("GiB", bytes.gib()).end_object().end_object();
  }

  const SimulatedStep& step_;
  JsonWriter json_;
  std::vector<MessageEnds> ends_;
};

}  // namespace

std::string trace_json(const SimulatedStep& step) { return Trace(step).text(); }

std::string gzip(const std::string& text) {
  constexpr int kGzipWindow = 15 + 16;  // zlib: largest window, gzip header (without a time stamp)
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("zlib refuses to start");
  }
  std::string packed(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  std::string input = text;  // zlib's interface takes non-const input
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("zlib did not finish");
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace headway
