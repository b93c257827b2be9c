#include "sim/program/buffer_index.hpp"

#include <algorithm>

namespace headway {

namespace {

// The layers, relative to the one it is applied to, that a template's references name.
struct LayerRange {
  int lowest = 0;
  int highest = 0;
  void include(int layer) {
    lowest = std::min(lowest, layer);
    highest = std::max(highest, layer);
  }
};

LayerRange relative_layers(const Template& list) {
  LayerRange range;
  for (const TemplateOperation& operation : list.operations) {
    for (const BufferRef& reference : operation.reads) range.include(reference.layer);
    for (const BufferRef& reference : operation.writes) range.include(reference.layer);
  }
  return range;
}

}  // namespace

BufferIndex::BufferIndex(const Program& program, const RankKind& kind) {
  std::vector<LayerRange> relative(program.templates.size());
  std::vector<bool> known(program.templates.size(), false);
  LayerRange layers;
  for (const BufferRef& reference : kind.persistent) layers.include(reference.layer);
  for (const Pass& pass : kind.passes) {
    for (const Step& step : pass.steps) {
      const auto index = static_cast<std::size_t>(step.template_index);
      if (!known[index]) relative[index] = relative_layers(program.templates[index]);
      known[index] = true;
      layers.include(step.layer + relative[index].lowest);
      layers.include(step.layer + relative[index].highest);
    }
  }
  lowest_layer_ = layers.lowest;
  int slots = 0;
  families_.reserve(program.buffers.size());
  for (const BufferFamily& family : program.buffers) {
    families_.push_back({slots, family.per_layer});
    slots += family.per_layer ? layers.highest - layers.lowest + 1 : 1;
  }
  numbers_.assign(static_cast<std::size_t>(slots), -1);
}

}  // namespace headway
