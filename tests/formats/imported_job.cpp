#include "tests/formats/imported_job.hpp"

#include "sim/core/json_reader.hpp"

namespace headway {
namespace {

constexpr const char* kModel[] = {"model.hidden_size",
                                  "model.num_hidden_layers",
                                  "model.num_attention_heads",
                                  "model.num_key_value_heads",
                                  "model.intermediate_size",
                                  "model.vocab_size",
                                  "model.gated_mlp"};

void flatten(const JsonNode& node, const std::string& key, std::string& text) {
  if (!node.is_object()) return;
  if (const auto value = node.find("value"); value && node.find("origin")) {
    text += key + " = " + value->text() + "\n";
    return;
  }
  for (const std::string& name : node.keys())
    flatten(*node.find(name), key.empty() ? name : key + "." + name, text);
}

}  // namespace

RandomPlan::RandomPlan(unsigned seed) : random_(seed) {
  set("model.hidden_size", std::int64_t{1024});
  set("model.num_hidden_layers", std::int64_t{16});
  set("model.num_attention_heads", std::int64_t{16});
  set("model.num_key_value_heads", one_of(std::vector<std::int64_t>{16, 8}));
  set("model.intermediate_size", std::int64_t{4096});
  set("model.vocab_size", std::int64_t{50304});
  set("model.gated_mlp", flip());
  set("cluster.topology", "dgx-h100");
  set("cluster.gpus", std::int64_t{32});
  set("sequence_length", std::int64_t{2048});
  set("global_batch", std::int64_t{128});
}

std::string RandomPlan::one_of(const std::vector<std::string>& words) {
  return words[random_() % words.size()];
}

std::int64_t RandomPlan::one_of(const std::vector<std::int64_t>& values) {
  return values[random_() % values.size()];
}

void RandomPlan::choose_batch() {
  const std::int64_t micro = one_of(std::vector<std::int64_t>{1, 2, 4});
  set("plan.micro_batch", micro);
  set("global_batch", micro * 32 * one_of(std::vector<std::int64_t>{1, 2, 8}));
}

Job job_of(const JobDraft& draft) {
  Problems problems;
  JobReading reading = read_job(JsonNode::parse_text(draft.json(), "draft"), {}, problems);
  problems.throw_if_any();
  for (const NotYetBuilt& missing : reading.not_built)
    throw InvalidInput("draft", missing.pointer, missing.rule + " is not built");
  return std::move(*reading.job);
}

Job RandomPlan::job() const { return job_of(draft_); }

std::string resolved(const Job& job) {
  std::string text;
  flatten(JsonNode::parse_text(resolved_job_json(job, 0), "job"), "", text);
  return text;
}

std::string job_with(const RandomPlan& plan, JobDraft draft) {
  const JsonNode job = JsonNode::parse_text(plan.json(), "plan");
  for (const char* key : kModel) {
    const JsonNode model = *job.find("model");
    if (!draft.has("model") && !draft.has(key))
      draft.set_text(key, model.find(std::string(key).substr(6))->text());
  }
  const JsonNode cluster = *job.find("cluster");
  draft.set_text("cluster.topology", cluster.find("topology")->text());
  draft.set_text("cluster.gpus", cluster.find("gpus")->text());
  if (!draft.has("sequence_length")) draft.set("sequence_length", std::int64_t{2048});
  return resolved(job_of(draft));
}

}  // namespace headway
