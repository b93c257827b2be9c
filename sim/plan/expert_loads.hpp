// How unevenly tokens choose their experts: the share of the choices that each expert takes, over
// an even one. From Zipf's law or from recorded counts; what a capacity drops is cut off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/model/transformer.hpp"

namespace headway {

// The i-th expert takes 1 / (i + 1)^exponent, scaled to a mean of 1.
std::vector<double> zipf_loads(std::int64_t experts, double exponent);

// Counts [layer][expert] of a JSON file, each row scaled to a mean of 1: one row for all layers,
// one for each, or one for each that has experts. Adds to `problems` what does not fit the model.
std::vector<std::vector<double>> histogram_loads(const std::string& file, const Transformer& model,
                                                 Problems& problems);

// What is left of them where no expert takes more than `capacity_factor` even shares.
std::vector<std::vector<double>> kept_loads(std::vector<std::vector<double>> loads,
                                            std::optional<double> capacity_factor);
// The share of all choices that the capacity drops, as a mean over the layers.
double dropped_share(const std::vector<std::vector<double>>& loads,
                     std::optional<double> capacity_factor);

}  // namespace headway
