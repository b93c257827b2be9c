// Jobs of the oracle tests: a Megatron-style GPT of a given shape on A100s, read and lowered for
// real.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sim/core/error.hpp"
#include "sim/plan/job.hpp"
#include "sim/program/program.hpp"
#include "sim/program/training_step.hpp"

namespace headway {

struct GptShape {
  std::int64_t hidden = 0, heads = 0, layers = 0;
  std::int64_t sequence = 2048;
  std::int64_t vocabulary = 51200;
};

// `plan`: the keys of a job's plan, as JSON without its braces; `software` likewise, beside the
// framework.
inline Job gpt_job(const GptShape& shape, int gpus, std::int64_t global_batch,
                   const std::string& plan, const std::string& software = "") {
  const std::string text =
      R"({"model": {"hidden_size": )" + std::to_string(shape.hidden) +
      R"(, "num_attention_heads": )" + std::to_string(shape.heads) + R"(, "num_hidden_layers": )" +
      std::to_string(shape.layers) + R"(, "intermediate_size": )" +
      std::to_string(4 * shape.hidden) + R"(, "vocab_size": )" + std::to_string(shape.vocabulary) +
      R"(, "gated_mlp": false, "hidden_act": "gelu"},
      "cluster": {"topology": "dgx-a100", "gpus": )" +
      std::to_string(gpus) +
      R"(, "profile": "a100-sxm-80gb"}, "precision": "bf16", "sequence_length": )" +
      std::to_string(shape.sequence) + R"(, "global_batch": )" + std::to_string(global_batch) +
      R"(, "software": {"framework": "megatron-2022")" + (software.empty() ? "" : ", " + software) +
      R"(}, "plan": {)" + plan + "}}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "job.json"), {}, problems);
  problems.throw_if_any();
  for (const NotYetBuilt& missing : reading.not_built) ADD_FAILURE() << missing.rule;
  return reading.job.value();
}

inline const RankKind& kind_at(const Program& program, int pipeline_coordinate) {
  int rank = 0;
  while (program.grid.coordinate(rank, "pp") != pipeline_coordinate) ++rank;
  return program.kinds[static_cast<std::size_t>(program.kind_of(rank))];
}

}  // namespace headway
