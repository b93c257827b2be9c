#include "sim/program/bucket.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace headway {

std::vector<FiredTensor> firing_order(const ProgramBuilder& builder,
                                      const std::vector<Step>& steps) {
  std::map<int, ParameterId> of_gradient;
  for (std::size_t p = 0; p < builder.parameters().size(); ++p) {
    of_gradient[builder.parameters()[p].gradient] = static_cast<ParameterId>(p);
  }
  struct Write {
    int step, operation;
    auto operator<=>(const Write&) const = default;
  };
  std::map<std::pair<ParameterId, int>, Write> last;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Template& list = builder.list(steps[s].template_index);
    for (std::size_t o = 0; o < list.operations.size(); ++o) {
      for (const BufferRef& write : list.operations[o].writes) {
        const auto found = of_gradient.find(write.family);
        if (found == of_gradient.end()) continue;
        const int layer = builder.per_layer(write.family) ? steps[s].layer + write.layer : 0;
        last[{found->second, layer}] = {static_cast<int>(s), static_cast<int>(o)};
      }
    }
  }
  std::vector<std::pair<Write, Tensor>> order;
  order.reserve(last.size());
  for (const auto& [tensor, write] : last) order.push_back({write, {tensor.first, tensor.second}});
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.parameter) < std::tie(b.first, b.second.parameter);
  });
  std::vector<FiredTensor> fired;
  fired.reserve(order.size());
  for (const auto& [write, tensor] : order) fired.push_back({tensor, write.step});
  return fired;
}

std::vector<Bucket> cut_into_buckets(const ProgramBuilder& builder, const std::string& name,
                                     const std::vector<FiredTensor>& tensors,
                                     std::optional<std::int64_t> limit, bool apart,
                                     ParameterId tied, std::optional<std::int64_t> first) {
  std::vector<Bucket> buckets;
  std::vector<std::size_t> open;  // the buckets that still take tensors
  for (const FiredTensor& fired : tensors) {
    const Parameter& parameter = builder.parameter(fired.tensor.parameter);
    Bucket fresh;
    fresh.type = builder.shape().storage;
    fresh.expert = parameter.expert;
    if (apart) {
      fresh.type = builder.parameter_type(fired.tensor.parameter);
      fresh.copies = parameter.copies;
      fresh.partial_over = parameter.partial_over;
      fresh.tied = fired.tensor.parameter == tied;
    }
    const auto found = std::find_if(open.begin(), open.end(), [&](std::size_t index) {
      const Bucket& other = buckets[index];
      return std::tie(other.copies, other.partial_over, other.tied, other.expert, other.type) ==
             std::tie(fresh.copies, fresh.partial_over, fresh.tied, fresh.expert, fresh.type);
    });
    const std::size_t index = found == open.end() ? buckets.size() : *found;
    if (found == open.end()) {
      buckets.push_back(std::move(fresh));
      open.push_back(index);
    }
    Bucket& bucket = buckets[index];
    bucket.tensors.push_back(fired.tensor);
    bucket.step = fired.step;
    bucket.elements += parameter.elements();
    const std::optional<std::int64_t> own = first && index == 0 ? first : limit;
    if (own && bucket.elements >= *own) {
      open.erase(std::remove(open.begin(), open.end(), index), open.end());
    }
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.step < b.step; });
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    buckets[b].name = name + ".bucket" + std::to_string(b);
  }
  return buckets;
}

namespace {

template <typename FamilyOf>
std::vector<BufferRef> buffers_of(const std::vector<Tensor>& tensors, FamilyOf family_of) {
  std::vector<BufferRef> buffers;
  buffers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) buffers.push_back({family_of(tensor), tensor.layer});
  return buffers;
}

}  // namespace

std::vector<BufferRef> parameters_of(const ProgramBuilder& builder,
                                     const std::vector<Tensor>& tensors) {
  return buffers_of(
      tensors, [&](const Tensor& tensor) { return builder.parameter(tensor.parameter).family; });
}

std::vector<BufferRef> gradients_of(const ProgramBuilder& builder,
                                    const std::vector<Tensor>& tensors) {
  return buffers_of(
      tensors, [&](const Tensor& tensor) { return builder.parameter(tensor.parameter).gradient; });
}

}  // namespace headway
