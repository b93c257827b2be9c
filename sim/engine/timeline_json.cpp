#include "sim/engine/timeline_json.hpp"

namespace headway {
namespace {

constexpr std::size_t kNumbersOfASpan = 6;

void write_times(JsonWriter& json, const char* key, const std::vector<Time>& times) {
  json.key(key).begin_array(true);
  for (const Time time : times) json.value(time.picoseconds);
  json.end_array();
}

std::vector<Time> read_times(ObjectReader& reader, const char* key) {
  std::vector<Time> times;
  for (const std::int64_t picoseconds :
       reader.integers(key).value_or(std::vector<std::int64_t>{})) {
    times.push_back({picoseconds});
  }
  return times;
}

}  // namespace

void write_timeline(JsonWriter& json, const Timeline& timeline) {
  json.begin_object();
  json.field("makespan_ps", timeline.makespan.picoseconds).field("events", timeline.events);
  json.key("devices").begin_array();
  for (const DeviceTotals& device : timeline.devices) {
    json.begin_object();
    write_times(json, "busy_ps", device.busy);
    write_times(json, "waiting_ps", device.waiting);
    json.field("idle_ps", device.idle.picoseconds).field("end_ps", device.end.picoseconds);
    json.end_object();
  }
  json.end_array();
  json.key("deadlock").begin_array();
  for (const Wait& wait : timeline.deadlock) {
    json.begin_object(true).field("device", wait.device).field("instance", wait.instance);
    json.field("task", wait.task).field("what", wait.what).end_object();
  }
  json.end_array();
  write_times(json, "critical_path_ps", timeline.critical_path);
  json.key("spans").begin_array(true);
  for (const Span& span : timeline.spans) {
    json.value(span.start.picoseconds).value(span.end.picoseconds);
    json.value(span.device).value(span.stream).value(span.instance).value(span.task);
  }
  json.end_array().end_object();
}

Timeline read_timeline(const JsonNode& node, Problems& problems) {
  Timeline timeline;
  ObjectReader reader(node, problems);
  timeline.makespan = {reader.require_integer("makespan_ps", {.min = 0})};
  timeline.events = reader.require_integer("events", {.min = 0});
  for (const JsonNode& element :
       reader.array("devices") ? reader.array("devices")->elements() : std::vector<JsonNode>{}) {
    ObjectReader device(element, problems);
    DeviceTotals totals;
    totals.busy = read_times(device, "busy_ps");
    totals.waiting = read_times(device, "waiting_ps");
    totals.idle = {device.require_integer("idle_ps")};
    totals.end = {device.require_integer("end_ps")};
    device.finish();
    timeline.devices.push_back(std::move(totals));
  }
  for (const JsonNode& element :
       reader.array("deadlock") ? reader.array("deadlock")->elements() : std::vector<JsonNode>{}) {
    ObjectReader entry(element, problems);
    Wait wait;
    wait.device = static_cast<int>(entry.require_integer("device"));
    wait.instance = static_cast<int>(entry.require_integer("instance"));
    wait.task = static_cast<int>(entry.require_integer("task"));
    wait.what = entry.require_string("what");
    entry.finish();
    timeline.deadlock.push_back(std::move(wait));
  }
  timeline.critical_path = read_times(reader, "critical_path_ps");
  const auto numbers = reader.integers("spans").value_or(std::vector<std::int64_t>{});
  reader.finish();
  if (numbers.size() % kNumbersOfASpan != 0) {
    reader.problem("spans", std::to_string(numbers.size()) +
                                " numbers; expected six for each span (start, end, device, stream, "
                                "instance, task)");
    return timeline;
  }
  for (std::size_t i = 0; i < numbers.size(); i += kNumbersOfASpan) {
    timeline.spans.push_back({{numbers[i]},
                              {numbers[i + 1]},
                              static_cast<int>(numbers[i + 2]),
                              static_cast<int>(numbers[i + 3]),
                              static_cast<int>(numbers[i + 4]),
                              static_cast<int>(numbers[i + 5])});
  }
  return timeline;
}

}  // namespace headway
