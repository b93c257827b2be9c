#include "sim/report/json.hpp"

#include "sim/core/json_writer.hpp"

namespace headway {

namespace {

// JSON text as a value one level deeper.
std::string indented(const std::string& json) {
  std::string text;
  for (const char c : json.substr(0, json.find_last_not_of('\n') + 1)) {
    text += c;
    if (c == '\n') text += "  ";
  }
  return text;
}

void write_breakdown(JsonWriter& json, const Breakdown& parts) {
  json.key("breakdown_s").begin_object();
  json.field("compute", parts.compute.seconds()).field("tp", parts.tp.seconds());
  json.field("cp", parts.cp.seconds()).field("ep", parts.ep.seconds());
  json.field("pp", parts.pp.seconds()).field("dp", parts.dp.seconds());
  json.field("bubble", parts.bubble.seconds()).field("optimizer", parts.optimizer.seconds());
  json.field("host", parts.host.seconds()).field("other", parts.other.seconds());
  json.end_object();
}

void write_memory(JsonWriter& json, const MemoryReport& memory) {
  json.key("memory").begin_object();
  json.field("capacity_bytes", memory.capacity.count).field("peak_bytes", memory.peak.count);
  json.field("allocated_bytes", memory.allocated.count);
  json.field("reserved_bytes", memory.reserved.count);
  json.field("device_bytes", memory.device.count);
  if (memory.host.count > 0) {
    json.field("host_bytes", memory.host.count);
    json.field("host_capacity_bytes", memory.host_capacity.count);
  }
  json.key("per_stage").begin_array();
  for (const StageMemory& stage : memory.per_stage) {
    json.begin_object(true);
    json.field("parameters", stage.parameters.count).field("gradients", stage.gradients.count);
    json.field("optimizer", stage.optimizer.count).field("activations", stage.activations.count);
    json.field("buffers", stage.buffers.count).field("workspace", stage.workspace.count);
    json.field("context", stage.context.count).field("peak", stage.peak.count);
    if (memory.host.count > 0) json.field("host", stage.host.count);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_communication(JsonWriter& json, const std::vector<CommunicationLine>& lines) {
  json.key("communication").begin_array();
  for (const CommunicationLine& line : lines) {
    json.begin_object(true);
    json.field("kind", line.kind).field("group", line.group).field("size", line.size);
    json.field("bytes_per_rank", line.bytes_per_rank.count).field("count", line.count);
    json.field("algorithm", line.algorithm).field("protocol", line.protocol);
    json.field("time_s", line.time.seconds()).field("exposed_s", line.exposed.seconds());
    json.end_object();
  }
  json.end_array();
}

void write_evidence(JsonWriter& json, const Evidence& evidence) {
  json.key("evidence").begin_object(true);
  for (const Grade grade :
       {Grade::kMeasured, Grade::kFitted, Grade::kExtrapolated, Grade::kAnchored}) {
    json.field(name(grade), evidence.share(grade));
  }
  json.end_object();
}

void write_speed(JsonWriter& json, const StepReport& report) {
  json.field("iteration_time_s", report.iteration.seconds());
  json.field("tokens_per_s", report.tokens_per_s);
  json.field("tokens_per_s_per_gpu", report.tokens_per_s_per_gpu);
  json.field("samples_per_s", report.samples_per_s);
  json.field("model_flops_per_s_per_gpu", report.model_flops_per_s_per_gpu);
  json.field("mfu", report.mfu).field("hfu", report.hfu);
}

// What only a step that ends has.
void write_step(JsonWriter& json, const StepReport& report) {
  write_breakdown(json, report.breakdown);
  json.field("bubble_fraction", report.bubble_fraction);
  write_communication(json, report.communication);
  json.key("critical_path").begin_array();
  for (const CausePart& part : report.critical_path) {
    json.begin_object(true).field("cause", part.cause).field("time_s", part.time.seconds());
    json.end_object();
  }
  json.end_array();
  write_evidence(json, report.evidence);
  json.key("interval_s").begin_array(true).value(report.interval_low.seconds());
  json.value(report.interval_high.seconds()).end_array();
  if (report.energy_j) json.field("energy_j", *report.energy_j);
  if (report.cost_usd) json.field("cost_usd", *report.cost_usd);
}

void write_deadlock(JsonWriter& json, const StepReport& report) {
  json.key("deadlock").begin_array();
  for (const std::string& wait : report.deadlock) json.value(wait);
  json.end_array();
}

}  // namespace

std::string result_json(const Job& job, const StepReport& report,
                        const std::optional<WallClock>& wall_clock,
                        const std::vector<AddedField>& added) {
  const bool ends = report.deadlock.empty();
  JsonWriter json;
  json.begin_object();
  if (ends) write_speed(json, report);
  json.field("gpus", report.gpus).field("dp", report.dp).field("fits", report.memory.fits);
  if (!report.memory.fits) json.field("why", report.memory.why);
  ends ? write_step(json, report) : write_deadlock(json, report);
  write_memory(json, report.memory);
  json.field("events", report.events);
  if (wall_clock) {
    json.field("wall_s", wall_clock->library_s).field("process_s", wall_clock->process_s);
    if (wall_clock->library_s > 0) {
      json.field("events_per_s", static_cast<double>(report.events) / wall_clock->library_s);
    }
  }
  for (const AddedField& field : added) json.key(field.key).raw(field.json);
  json.key("job").raw(indented(resolved_job_json(job, 2)));
  json.field("version", HEADWAY_VERSION);
  json.end_object();
  return json.text();
}

}  // namespace headway
