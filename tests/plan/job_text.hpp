// The job that the tests of this folder vary: GPT-3 175B on 1,024 A100s, as the README runs it.
#pragma once

#include <string>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/plan/job.hpp"

namespace headway {

inline const char* const kGpt3Job = R"({
  "model": "gpt3-175b",
  "cluster": {"topology": "dgx-a100", "nodes": 128, "profile": "a100-sxm-80gb"},
  "precision": "bf16",
  "sequence_length": 2048,
  "global_batch": 1536,
  "software": {"framework": "megatron-2022"},
  "plan": {"tp": 8, "pp": 16, "micro_batch": 1, "schedule": "interleaved", "vpp": 3,
           "sequence_parallel": true, "recompute": "selective"}
})";

// What a reading of the text says, one line per problem, then one per thing not built.
struct Said {
  JobReading reading;
  std::vector<std::string> lines;
};
inline Said read_text(const std::string& text, const std::vector<JobOverride>& overrides = {}) {
  Said said;
  Problems problems;
  try {
    said.reading = read_job(JsonNode::parse_text(text, "job.json"), overrides, problems);
  } catch (const InvalidInput& error) {  // not even JSON
    for (const Problem& problem : error.problems()) said.lines.push_back(problem.text());
  }
  for (const Problem& problem : problems.list()) said.lines.push_back(problem.text());
  for (const NotYetBuilt& rule : said.reading.not_built) {
    said.lines.push_back("not built: " + rule.pointer + ": " + rule.rule);
  }
  return said;
}

// The text with one piece replaced. REQUIRES: the piece stands in it.
inline std::string replaced(std::string text, const std::string& piece, const std::string& by) {
  const std::size_t at = text.find(piece);
  if (at == std::string::npos) return "the piece is not there: " + piece;
  return text.replace(at, piece.size(), by);
}

}  // namespace headway
