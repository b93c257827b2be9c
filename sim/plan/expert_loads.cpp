#include "sim/plan/expert_loads.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/core/json_reader.hpp"

namespace headway {

namespace {

// Scaled to a mean of 1.
std::vector<double> scaled(std::vector<double> shares) {
  const double mean =
      std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  for (double& share : shares) share /= mean;
  return shares;
}

std::vector<double> row_of(const JsonNode& node, std::int64_t experts, Problems& problems) {
  std::vector<double> counts;
  if (node.is_array()) {
    for (const JsonNode& count : node.elements()) {
      if (!count.is_number() || count.number() < 0) {
        problems.add(count.file(), count.pointer(), count.text() + " is no count of choices");
        return {};
      }
      counts.push_back(count.number());
    }
  }
  if (static_cast<std::int64_t>(counts.size()) != experts) {
    problems.add(node.file(), node.pointer(),
                 "expected a count for each of the " + std::to_string(experts) + " experts");
    return {};
  }
  if (std::accumulate(counts.begin(), counts.end(), 0.0) <= 0) {
    problems.add(node.file(), node.pointer(), "no expert of this layer was chosen");
    return {};
  }
  return scaled(std::move(counts));
}

}  // namespace

std::vector<double> zipf_loads(std::int64_t experts, double exponent) {
  std::vector<double> loads;
  for (std::int64_t e = 1; e <= experts; ++e) {
    loads.push_back(std::pow(static_cast<double>(e), -exponent));
  }
  return scaled(std::move(loads));
}

std::vector<std::vector<double>> histogram_loads(const std::string& file, const Transformer& model,
                                                 Problems& problems) {
  JsonNode node = JsonNode::parse_file(file);
  const std::size_t before = problems.size();
  std::vector<std::vector<double>> rows;
  if (node.is_array()) {
    for (const JsonNode& row : node.elements()) {
      rows.push_back(row_of(row, model.num_experts, problems));
    }
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t with_experts = model.expert_layer_count();
  if (count != 1 && count != model.num_hidden_layers && count != with_experts) {
    problems.add(file, "",
                 std::to_string(count) + " rows of counts; expected one, one for each of the " +
                     std::to_string(with_experts) + " layers with experts, or for each of the " +
                     std::to_string(model.num_hidden_layers) + " layers");
  }
  if (problems.size() != before) return {};
  if (count == 1 || count == model.num_hidden_layers) return rows;
  std::vector<std::vector<double>> of_layers;
  std::size_t next = 0;
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    const bool has = model.is_expert_layer(layer);
    of_layers.push_back(has ? rows[next++]
                            : std::vector<double>(static_cast<std::size_t>(model.num_experts), 1));
  }
  return of_layers;
}

std::vector<std::vector<double>> kept_loads(std::vector<std::vector<double>> loads,
                                            std::optional<double> capacity_factor) {
  if (!capacity_factor) return loads;
  for (std::vector<double>& layer : loads) {
    for (double& load : layer) load = std::min(load, *capacity_factor);
  }
  return loads;
}

double dropped_share(const std::vector<std::vector<double>>& loads,
                     std::optional<double> capacity_factor) {
  if (!capacity_factor) return 0;
  if (loads.empty()) return std::max(0.0, 1 - *capacity_factor);
  double kept = 0;
  for (const std::vector<double>& layer : kept_loads(loads, capacity_factor)) {
    kept += std::accumulate(layer.begin(), layer.end(), 0.0) / static_cast<double>(layer.size());
  }
  return 1 - kept / static_cast<double>(loads.size());
}

}  // namespace headway
