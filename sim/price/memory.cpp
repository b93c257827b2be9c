#include "sim/price/memory.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <map>
#include <set>
#include <variant>

#include "sim/price/caching_allocator.hpp"

namespace headway {

namespace {

// Buffers of one connection, one of which a ring has per channel (NCCL 2.18-2.30, facts 4.4):
// Simple 4 MiB, LL 8 x 512 x 8 x 16 bytes, LL128 120 x 640 x 8 x 8 bytes.
constexpr std::int64_t kSimpleBuffer = std::int64_t{4} << 20;
constexpr std::int64_t kLowLatencyBuffer = 8 * 512 * 8 * 16;
constexpr std::int64_t kLowLatency128Buffer = 120 * 640 * 8 * 8;

Bytes part(const BytesByCategory& bytes, BufferCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}

StageMemory stage_memory(const Program& program, int kind, const MemoryUse& use,
                         const MemoryOptions& options) {
  StageMemory stage;
  stage.kind = kind;
  stage.peak_at = use.peak_at;
  stage.parameters = part(use.at_peak, BufferCategory::kParameter);
  stage.gradients = part(use.at_peak, BufferCategory::kGradient);
  stage.optimizer = part(use.at_peak, BufferCategory::kOptimizer);
  stage.activations =
      part(use.at_peak, BufferCategory::kActivation) + part(use.at_peak, BufferCategory::kInput);
  stage.communicators = communicator_bytes(program, program.kinds[static_cast<std::size_t>(kind)],
                                           options.communicator_channels);
  stage.buffers = part(use.at_peak, BufferCategory::kCommunication) + stage.communicators;
  stage.workspace = options.workspace;
  stage.context = options.context;
  stage.peak = use.peak + stage.communicators + stage.workspace + stage.context;
  stage.host = use.host_peak;
  stage.allocated = use.rounded_peak + rounded_block(options.workspace);
  return stage;
}

// Plays the fullest stage through the allocator.
CachingAllocator play_allocator(const Program& program, const StageMemory& stage,
                                const MemoryOptions& options, Bytes limit) {
  const RankKind& kind = program.kinds[static_cast<std::size_t>(stage.kind)];
  CachingAllocator allocator(limit);
  allocator.allocate(options.workspace);
  for (const BufferRef& reference : kind.persistent) {
    const BufferFamily& family = program.buffers[static_cast<std::size_t>(reference.family)];
    if (family.on_host) continue;
    const std::int64_t copies = family.per_micro_batch ? program.micro_batches : 1;
    for (std::int64_t copy = 0; copy < copies; ++copy) allocator.allocate(family.size());
  }
  std::map<BufferInstance, int> handles;
  replay(program, kind, stage.peak_at.issue + 1, [&](const BufferInstance& buffer, bool allocated) {
    const auto family = static_cast<std::size_t>(buffer.family);
    if (program.buffers[family].on_host) return;
    if (allocated) {
      handles[buffer] = allocator.allocate(program.buffers[family].size());
    } else {
      const auto entry = handles.find(buffer);
      allocator.free(entry->second);
      handles.erase(entry);
    }
  });
  return allocator;
}

std::string gib(Bytes bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", bytes.gib());
  return text.data();
}

std::string why_not_on_host(const MemoryReport& report) {
  const auto fullest =
      std::max_element(report.per_stage.begin(), report.per_stage.end(),
                       [](const StageMemory& a, const StageMemory& b) { return a.host < b.host; });
  return "stage " + std::to_string(fullest - report.per_stage.begin()) + " needs " +
         gib(fullest->host) + " of the " + gib(report.host_capacity) +
         " that a GPU has of its host's memory";
}

std::string why_not(const Program& program, const MemoryReport& report) {
  const auto index = static_cast<std::size_t>(report.fullest_stage);
  const StageMemory& stage = report.per_stage[index];
  const std::array<std::pair<const char*, Bytes>, 7> lines = {{{"parameters", stage.parameters},
                                                               {"gradients", stage.gradients},
                                                               {"optimizer", stage.optimizer},
                                                               {"activations", stage.activations},
                                                               {"buffers", stage.buffers},
                                                               {"workspace", stage.workspace},
                                                               {"context", stage.context}}};
  const auto largest = std::max_element(
      lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = "stage " + std::to_string(report.fullest_stage) + " needs " +
                     gib(std::max(stage.peak, report.device)) + " of " + gib(report.capacity);
  if (stage.peak <= report.capacity) {
    text += " (" + gib(stage.peak) + " before the allocator's fragmentation)";
  }
  text += "; most of it " + std::string(largest->first) + ", " + gib(largest->second);
  if (stage.peak_at.issue >= 0) {
    const RankKind& kind = program.kinds[static_cast<std::size_t>(stage.kind)];
    text += "; the peak stands at " + describe(program, kind, stage.peak_at);
  }
  return text;
}

}  // namespace

Bytes communicator_bytes(const Program& program, const RankKind& kind, int channels) {
  std::set<std::string> communicators;
  std::vector<bool> seen(program.templates.size(), false);
  for (const Pass& pass : kind.passes) {
    for (const Step& step : pass.steps) {
      const auto index = static_cast<std::size_t>(step.template_index);
      if (seen[index]) continue;
      seen[index] = true;
      for (const TemplateOperation& operation : program.templates[index].operations) {
        if (!std::holds_alternative<Collective>(operation.operation)) continue;
        if (operation.group < 0) {
          communicators.insert("messages along " + operation.peer_axis);
          continue;
        }
        const GroupFamily& family = program.groups[static_cast<std::size_t>(operation.group)];
        if (program.grid.group_size(family) > 1) communicators.insert(family.name);
      }
    }
  }
  const std::int64_t connection = kSimpleBuffer + kLowLatencyBuffer + kLowLatency128Buffer;
  return Bytes{connection * channels} * static_cast<std::int64_t>(communicators.size());
}

std::string describe(const Program& program, const RankKind& kind, IssuePosition position) {
  const Issue issue = kind.order[static_cast<std::size_t>(position.issue)];
  const Pass& pass = kind.passes[static_cast<std::size_t>(issue.pass)];
  std::string text = pass.name;
  if (issue.micro_batch >= 0) text += std::to_string(issue.micro_batch);
  if (pass.steps.empty()) return text;
  const Step& step = pass.steps[static_cast<std::size_t>(position.step)];
  const Template& list = program.templates[static_cast<std::size_t>(step.template_index)];
  return text + ", " + list.operations[static_cast<std::size_t>(position.operation)].name + " of " +
         list.name + "[" + std::to_string(step.layer) + "]";
}

MemoryReport report_memory(const Program& program, const MemoryOptions& options) {
  MemoryReport report;
  report.capacity = options.capacity;
  report.per_stage.resize(static_cast<std::size_t>(program.grid.axis_size("pp")));
  for (std::size_t k = 0; k < program.kinds.size(); ++k) {
    const StageMemory stage =
        stage_memory(program, static_cast<int>(k), memory_use(program, program.kinds[k]), options);
    for (const int coordinate : program.kinds[k].stages) {
      report.per_stage[static_cast<std::size_t>(coordinate)] = stage;
    }
  }
  const auto fullest =
      std::max_element(report.per_stage.begin(), report.per_stage.end(),
                       [](const StageMemory& a, const StageMemory& b) { return a.peak < b.peak; });
  report.fullest_stage = static_cast<int>(fullest - report.per_stage.begin());
  report.peak = fullest->peak;
  report.allocated = fullest->allocated;
  const Bytes beside = fullest->context + fullest->communicators;
  const CachingAllocator allocator =
      play_allocator(program, *fullest, options, options.capacity - beside);
  report.reserved = allocator.peak_reserved();
  report.device = report.reserved + beside;
  report.fits = report.peak <= report.capacity && report.device <= report.capacity;
  if (!report.fits) report.why = why_not(program, report);
  report.host_capacity = options.host_capacity;
  for (const StageMemory& stage : report.per_stage) report.host = std::max(report.host, stage.host);
  if (report.host <= report.host_capacity || report.host_capacity.count == 0) return report;
  report.fits = false;
  report.why += (report.why.empty() ? "" : "; ") + why_not_on_host(report);
  return report;
}

MemoryReport report_memory(const Job& job, const Program& program, const Device& device) {
  MemoryOptions options;
  options.capacity = device.memory;
  options.context = job.software.context;
  options.workspace = job.software.workspace;
  if (const auto host = job.topology.host_memory()) options.host_capacity = host->size;
  if (device.compute_capability == 0) options.communicator_channels = 0;  // they are NCCL's
  return report_memory(program, options);
}

}  // namespace headway
