// Megatron-LM's text for which layers stand on which virtual stage
// (pipeline_parallel_layer_layout): "Et*3|(tt|)*29,m|L": E embedding, t a layer, m a multi-token
// prediction layer, L the loss;
// "|" ends a stage, "*n" repeats what stands before it, commas are for the eye.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headway {

// Transformer layers of each virtual stage, in the order a micro-batch passes them. Throws
// InvalidInput for a text that is none.
std::vector<std::int64_t> layers_of_layout(std::string_view layout);

// The text of such counts: "Et*2|t*3|t*2L".
std::string layout_of_layers(const std::vector<std::int64_t>& stage_layers);

}  // namespace headway
