#include "kernels/execute/routing_record.hpp"

#include <stdexcept>
#include <string>

namespace headway {

void RoutingRecord::add(int layer, const std::vector<std::int64_t>& tokens, std::int64_t per_token,
                        const std::vector<std::int32_t>& choice) {
  auto& of_layer = choices_[layer];
  auto next = choice.begin();
  for (const std::int64_t token : tokens) {
    of_layer[token] = {next, next + per_token};
    next += per_token;
  }
}

void RoutingRecord::add(const RoutingRecord& other) {
  for (const auto& [layer, tokens] : other.choices_) {
    for (const auto& [token, choice] : tokens) choices_[layer][token] = choice;
  }
}

std::vector<std::int32_t> RoutingRecord::find(int layer,
                                              const std::vector<std::int64_t>& tokens) const {
  std::vector<std::int32_t> result;
  const auto of_layer = choices_.find(layer);
  for (const std::int64_t token : tokens) {
    const bool known = of_layer != choices_.end() && of_layer->second.contains(token);
    if (!known) {
      throw std::invalid_argument("no recorded choice of token " + std::to_string(token) +
                                  " in layer " + std::to_string(layer));
    }
    const std::vector<std::int32_t>& choice = of_layer->second.at(token);
    result.insert(result.end(), choice.begin(), choice.end());
  }
  return result;
}

}  // namespace headway
