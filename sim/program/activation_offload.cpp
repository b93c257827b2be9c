#include "sim/program/activation_offload.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/program/data/offload.hpp"

namespace headway {

// What the backward pass reads of a layer and micro-batch before it writes it, and the forward pass
// has touched: not the gradient that comes from the layer behind.
std::vector<BufferRef> ActivationOffload::saved_of(const std::vector<Step>& forward,
                                                   const std::vector<Step>& backward,
                                                   int layer) const {
  const auto is_saved = [&](const BufferRef& reference, int at) {
    const BufferFamily& family =
        builder_.program().buffers[static_cast<std::size_t>(reference.family)];
    return family.category == BufferCategory::kActivation && family.per_layer &&
           family.per_micro_batch && reference.layer + at == layer;
  };
  const auto each = [&](const std::vector<Step>& steps, auto visit) {
    for (const Step& step : steps) {
      for (const TemplateOperation& operation : builder_.list(step.template_index).operations) {
        for (const BufferRef& read : operation.reads) {
          if (is_saved(read, step.layer)) visit(read.family, false);
        }
        for (const BufferRef& write : operation.writes) {
          if (is_saved(write, step.layer)) visit(write.family, true);
        }
      }
    }
  };
  std::set<int> touched, read_first, seen;
  each(forward, [&](int family, bool) { touched.insert(family); });
  each(backward, [&](int family, bool writes) {
    if (seen.insert(family).second && !writes) read_first.insert(family);
  });
  std::vector<BufferRef> saved;
  for (const int family : read_first) {
    if (touched.contains(family)) saved.push_back({family, 0});
  }
  return saved;
}

int ActivationOffload::host_copy(int family) {
  const auto [found, fresh] = on_host_.try_emplace(family, -1);
  if (fresh) {
    BufferFamily copy = builder_.program().buffers[static_cast<std::size_t>(family)];
    copy.name = "host." + copy.name;
    copy.on_host = true;
    copy.initial = InitialValue::kUndefined;
    found->second = builder_.buffer(std::move(copy));
  }
  return found->second;
}

// One copy for each type of element.
void ActivationOffload::add_copies(OperationList& list, const std::vector<BufferRef>& saved,
                                   bool to_host) {
  std::map<DataType, std::vector<int>> by_type;
  for (const BufferRef& buffer : saved) {
    by_type[builder_.program().buffers[static_cast<std::size_t>(buffer.family)].type].push_back(
        buffer.family);
  }
  for (const auto& [type, families] : by_type) {
    std::vector<BufferRef> on_device, on_host;
    std::int64_t elements = 0;
    for (const int family : families) {
      on_device.push_back({family});
      on_host.push_back({host_copy(family)});
      elements += builder_.program().buffers[static_cast<std::size_t>(family)].elements();
    }
    const std::string name =
        std::string(to_host ? "down." : "up.") + std::string(headway::name(type));
    if (to_host) {
      offload::to_host(builder_, list, name, std::move(on_device), std::move(on_host), elements,
                       type, Cause::kOther);
    } else {
      offload::to_device(builder_, list, name, std::move(on_host), std::move(on_device), elements,
                         type, Cause::kOther);
    }
  }
  list.at(0).joins = {0};
}

const ActivationOffload::Copies& ActivationOffload::copies(const std::vector<BufferRef>& saved) {
  std::vector<int> key;
  for (const BufferRef& buffer : saved) key.push_back(buffer.family);
  const auto [found, fresh] = templates_.try_emplace(std::move(key));
  if (!fresh) return found->second;
  Copies& made = found->second;
  const std::string number = templates_.size() == 1 ? "" : std::to_string(templates_.size());
  OperationList down("layer" + number + ".down");
  add_copies(down, saved, true);
  made.down = builder_.add_template(down);
  OperationList release("layer" + number + ".gone_down");
  release.add("await", HostWork{HostKind::kAwait}, saved, {}, Cause::kOther);
  release.last().joins = {offload::down(builder_)};
  made.release = builder_.add_template(release);
  made.port = {builder_.port({"came_up" + number, true, true})};
  OperationList up("layer" + number + ".up");
  add_copies(up, saved, false);
  up.last().releases = {made.port};
  made.up = builder_.add_template(up);
  return made;
}

void ActivationOffload::note(const std::vector<Step>& forward, const std::vector<Step>& backward,
                             int first, int end) {
  for (int layer = first; layer < end; ++layer) {
    std::vector<BufferRef> saved = saved_of(forward, backward, layer);
    if (!saved.empty()) saved_[layer] = std::move(saved);
  }
}

bool ActivationOffload::touches(const TemplateOperation& operation, int step_layer, int layer,
                                bool reads) const {
  const auto found = saved_.find(layer);
  if (found == saved_.end()) return false;
  const std::vector<BufferRef>& saved = found->second;
  const auto is_saved = [&](const BufferRef& reference) {
    return reference.layer + step_layer == layer &&
           std::find(saved.begin(), saved.end(), BufferRef{reference.family, 0}) != saved.end();
  };
  return std::any_of(operation.reads.begin(), operation.reads.end(), is_saved) ||
         (!reads && std::any_of(operation.writes.begin(), operation.writes.end(), is_saved));
}

std::vector<Step> ActivationOffload::going_down(const std::vector<Step>& steps, int first,
                                                int end) {
  std::map<std::size_t, int> leaves;  // the layer, by the last step that touches it
  for (int layer = first; layer < end; ++layer) {
    std::size_t last = steps.size();
    for (std::size_t s = 0; s < steps.size(); ++s) {
      for (const TemplateOperation& operation : builder_.list(steps[s].template_index).operations) {
        if (touches(operation, steps[s].layer, layer, false)) last = s;
      }
    }
    if (last < steps.size()) leaves[last] = layer;
  }
  std::vector<Step> result;
  int going = -1;
  const auto release = [&] {
    if (going >= 0) result.push_back({copies(saved_.at(going)).release, going});
    going = -1;
  };
  for (std::size_t s = 0; s < steps.size(); ++s) {
    result.push_back(steps[s]);
    release();  // the step behind it has hidden the copy
    const auto leaving = leaves.find(s);
    if (leaving == leaves.end()) continue;
    going = leaving->second;
    result.push_back({copies(saved_.at(going)).down, going});
  }
  release();
  return result;
}

std::vector<Step> ActivationOffload::coming_up(const std::vector<Step>& steps, int first, int end) {
  struct Arrival {
    int layer;
    std::size_t needed;
    const Copies* copies;
  };
  std::vector<Arrival> arrivals;  // in the order of need
  std::set<int> known;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (int layer = first; layer < end; ++layer) {
      const auto& operations = builder_.list(steps[s].template_index).operations;
      const bool needs = std::any_of(operations.begin(), operations.end(),
                                     [&](const TemplateOperation& operation) {
                                       return touches(operation, steps[s].layer, layer, true);
                                     });
      if (needs && known.insert(layer).second) {
        arrivals.push_back({layer, s, &copies(saved_.at(layer))});
      }
    }
  }
  std::vector<Step> result;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::vector<PortRef> awaited;
    for (std::size_t a = 0; a < arrivals.size(); ++a) {
      const Copies& of = *arrivals[a].copies;
      // It comes while the layer that is needed before it is at work.
      const std::size_t issued = a == 0 ? 0 : arrivals[a - 1].needed;
      if (issued == s) result.push_back({of.up, arrivals[a].layer});
      if (arrivals[a].needed != s) continue;
      awaited.push_back({of.port.family, arrivals[a].layer - steps[s].layer});
    }
    result.push_back({builder_.with_entry(steps[s].template_index, {}, awaited), steps[s].layer});
  }
  return result;
}

}  // namespace headway
