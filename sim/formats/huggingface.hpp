// Models from and to the shape of a Hugging Face config.json. An import keeps what a cost depends
// on, in the keys of a job's inline `model`, and lists what it leaves behind; read back, the text
// gives the same model, but for what `left_out` names.
#pragma once

#include <string>
#include <vector>

#include "sim/model/transformer.hpp"

namespace headway {

struct HuggingFaceImport {
  Transformer model;
  std::string model_json;             // an object with the keys of an inline model, indented
  std::vector<std::string> ignored;   // keys of the file that do not matter to cost
  std::vector<std::string> left_out;  // what the model has and an inline model has no key for
};

// Throws InvalidInput with every problem of the file.
HuggingFaceImport import_huggingface(const std::string& path);

// The model in the keys of a job's inline `model`, each stated. `left_out` as above.
struct InlineModel {
  std::string json;
  std::vector<std::string> left_out;
};
InlineModel inline_model(const Transformer& model, int indent = 2);

}  // namespace headway
