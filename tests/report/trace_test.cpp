#include "sim/report/trace.hpp"

#include <gmock/gmock.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/report/small_step.hpp"

namespace headway {
namespace {

using testing::Contains;
using testing::IsEmpty;

struct TraceEvent {
  std::string phase, name;
  std::int64_t process = 0, thread = 0;
  double start = 0, duration = 0;  // microseconds
  std::int64_t id = 0;
  std::optional<JsonNode> arguments;

  double end() const { return start + duration; }
};

std::vector<TraceEvent> events_of(const std::string& text) {
  std::vector<TraceEvent> events;
  const JsonNode trace = JsonNode::parse_text(text, "trace.json");
  for (const JsonNode& node : trace.find("traceEvents")->elements()) {
    TraceEvent event;
    event.phase = node.find("ph")->string();
    event.name = node.find("name")->string();
    event.process = node.find("pid")->integer();
    if (const auto thread = node.find("tid")) event.thread = thread->integer();
    if (const auto start = node.find("ts")) event.start = start->number();
    if (const auto duration = node.find("dur")) event.duration = duration->number();
    if (const auto id = node.find("id")) event.id = id->integer();
    event.arguments = node.find("args");
    events.push_back(event);
  }
  return events;
}

std::vector<TraceEvent> of_phase(const std::vector<TraceEvent>& events, const std::string& phase) {
  std::vector<TraceEvent> some;
  std::copy_if(events.begin(), events.end(), std::back_inserter(some),
               [&](const TraceEvent& event) { return event.phase == phase; });
  return some;
}

std::string small_trace(Detail detail) {
  StepOptions options;
  options.detail = detail;
  return trace_json(play(kSmallJob, options).step);
}

constexpr double kNanosecond = 1e-3;

TEST(Trace, NamesATrackForEveryStreamThatHasSpans) {
  for (const Detail detail : {Detail::kInstances, Detail::kTasks}) {
    const auto events = events_of(small_trace(detail));
    std::set<std::pair<std::int64_t, std::int64_t>> tracks;
    std::vector<std::string> processes, threads;
    for (const TraceEvent& event : of_phase(events, "M")) {
      const std::string name = event.arguments->find("name")->string();
      if (event.name == "process_name") processes.push_back(name);
      if (event.name != "thread_name") continue;
      tracks.insert({event.process, event.thread});
      threads.push_back(name);
    }
    EXPECT_THAT(processes, testing::ElementsAre("pipeline rank 0 (rank 0 and 3 like it)",
                                                "pipeline rank 1 (rank 4 and 3 like it)"));
    EXPECT_THAT(threads, Contains("compute"));
    EXPECT_THAT(threads, Contains("host"));
    for (const TraceEvent& span : of_phase(events, "X")) {
      ASSERT_TRUE(tracks.contains({span.process, span.thread})) << span.name;
    }
  }
}

TEST(Trace, SpansOfATrackFollowOneAnother) {
  for (const Detail detail : {Detail::kInstances, Detail::kTasks}) {
    auto spans = of_phase(events_of(small_trace(detail)), "X");
    ASSERT_FALSE(spans.empty());
    std::stable_sort(spans.begin(), spans.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return std::tuple(a.process, a.thread, a.start) < std::tuple(b.process, b.thread, b.start);
    });
    for (std::size_t i = 0; i < spans.size(); ++i) {
      ASSERT_GE(spans[i].start, 0);
      ASSERT_GT(spans[i].duration, 0);
      if (i == 0 || spans[i - 1].process != spans[i].process ||
          spans[i - 1].thread != spans[i].thread) {
        continue;
      }
      ASSERT_GE(spans[i].start, spans[i - 1].end() - kNanosecond) << spans[i].name;
    }
  }
}

TEST(Trace, SpansSayWhatTheyAre) {
  std::set<std::string> actions, operations;
  for (const TraceEvent& span : of_phase(events_of(small_trace(Detail::kInstances)), "X")) {
    actions.insert(span.name);
  }
  EXPECT_THAT(actions, Contains("0F0"));
  EXPECT_THAT(actions, Contains("1B7"));
  for (const TraceEvent& span : of_phase(events_of(small_trace(Detail::kTasks)), "X")) {
    operations.insert(span.name);
    if (span.name != "attention.qkv") continue;
    EXPECT_TRUE(span.arguments->find("stage"));
    EXPECT_TRUE(span.arguments->find("micro_batch"));
    EXPECT_TRUE(span.arguments->find("layer"));
  }
  EXPECT_THAT(operations, Contains("attention.qkv"));
}

TEST(Trace, AnArrowLeadsFromEachSenderToItsReceiver) {
  for (const Detail detail : {Detail::kInstances, Detail::kTasks}) {
    const auto events = events_of(small_trace(detail));
    const auto spans = of_phase(events, "X");
    const auto stands_in_a_span = [&](const TraceEvent& end) {
      return std::any_of(spans.begin(), spans.end(), [&](const TraceEvent& span) {
        return span.process == end.process && span.thread == end.thread &&
               span.start <= end.start + kNanosecond && end.start < span.end() + kNanosecond;
      });
    };
    std::map<std::int64_t, TraceEvent> starts;
    for (const TraceEvent& start : of_phase(events, "s")) starts.emplace(start.id, start);
    // Eight micro-batches, forward and backward.
    EXPECT_EQ(starts.size(), 16U);
    for (const TraceEvent& finish : of_phase(events, "f")) {
      ASSERT_TRUE(starts.contains(finish.id));
      const TraceEvent& start = starts.at(finish.id);
      EXPECT_NE(start.process, finish.process);
      EXPECT_LT(start.start, finish.start);
      EXPECT_TRUE(stands_in_a_span(start));
      EXPECT_TRUE(stands_in_a_span(finish));
      starts.erase(finish.id);
    }
    EXPECT_THAT(starts, IsEmpty());
  }
}

TEST(Trace, MemoryStartsAndEndsWithWhatPersistsAndReachesThePeak) {
  StepOptions options;
  options.detail = Detail::kInstances;
  const Played played = play(kSmallJob, options);
  std::map<std::int64_t, std::vector<TraceEvent>> counters;
  for (const TraceEvent& event : of_phase(events_of(trace_json(played.step)), "C")) {
    counters[event.process].push_back(event);
  }
  ASSERT_EQ(counters.size(), 2U);
  for (const auto& [device, some] : counters) {
    const auto gib = [](const TraceEvent& event) { return event.arguments->find("GiB")->number(); };
    EXPECT_EQ(some.front().start, 0);
    EXPECT_EQ(gib(some.front()), gib(some.back()));
    EXPECT_TRUE(
        std::is_sorted(some.begin(), some.end(),
                       [](const TraceEvent& a, const TraceEvent& b) { return a.start < b.start; }));
    double highest = 0;
    for (const TraceEvent& event : some) highest = std::max(highest, gib(event));
    const StageMemory& stage = played.report.memory.per_stage[static_cast<std::size_t>(device)];
    const Bytes buffers = stage.peak - stage.workspace - stage.context - stage.communicators;
    EXPECT_DOUBLE_EQ(highest, buffers.gib());
  }
}

TEST(Trace, IsTheSameEachTime) {
  EXPECT_EQ(small_trace(Detail::kTasks), small_trace(Detail::kTasks));
}

TEST(Gzip, UnpacksToTheTextAndIsTheSameEachTime) {
  const std::string text = small_trace(Detail::kInstances);
  const std::string packed = gzip(text);
  EXPECT_EQ(packed, gzip(text));
  EXPECT_LT(packed.size(), text.size() / 4);
  z_stream stream{};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string input = packed, output(text.size() + 1, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(output.data());
  stream.avail_out = static_cast<uInt>(output.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  inflateEnd(&stream);
  output.resize(stream.total_out);
  EXPECT_EQ(output, text);
}

}  // namespace
}  // namespace headway
