#include "tests/kernels/execute/executed_plans.hpp"

#include "sim/program/training_step.hpp"
#include "tests/support/folders.hpp"

namespace headway {

Job small_job(const std::string& model, int gpus, const std::string& other_keys) {
  const std::string text = R"({"model": )" + model +
                           R"(, "cluster": {"topology": "host-cpu", "gpus": )" +
                           std::to_string(gpus) + "}, " + other_keys + "}";
  Problems problems;
  const JobReading reading = read_job(JsonNode::parse_text(text, "executed plan"), {}, problems);
  for (const NotYetBuilt& rule : reading.not_built) {
    problems.add("executed plan", rule.pointer, rule.rule + " is not built yet");
  }
  problems.throw_if_any();
  return *reading.job;
}

Job ExecutedPlan::job() const { return small_job(model, gpus, keys); }

Program ExecutedPlan::program() const {
  Program lowered = lower(job());
  lowered.clip_norm = clip_norm.value_or(lowered.clip_norm);
  return lowered;
}

Program ExecutedPlan::reference() const {
  Program lowered = lower(reference_job(job()));
  lowered.clip_norm = clip_norm.value_or(lowered.clip_norm);
  return lowered;
}

std::vector<ExecutedPlan> executed_plans() {
  Problems problems;
  ObjectReader table(JsonNode::parse_file(source_dir() + "/tests/executed_plans.json"), problems);
  table.require_string("about");
  const auto models = table.object("models");
  const auto rows = table.array("plans");
  table.finish();
  problems.throw_if_any();
  // A second step, because only that computes with the parameters that the first has updated.
  constexpr std::int64_t kSteps = 2;
  std::vector<ExecutedPlan> plans;
  for (const JsonNode& row : rows->elements()) {
    ObjectReader reader(row, problems);
    const std::string name = reader.require_string("name");
    const bool every_run = reader.boolean("every_run").value_or(false);
    const bool mutated = reader.boolean("mutated").value_or(false);
    const auto steps = static_cast<int>(reader.integer("steps", {.min = 1}).value_or(kSteps));
    const auto gpus = static_cast<int>(reader.require_integer("gpus", {.min = 1}));
    const std::string model = reader.require_string("model");
    const std::string precision = reader.string("precision").value_or("fp64");
    const std::int64_t sequence = reader.integer("sequence_length").value_or(16);
    const auto documents = reader.string("documents");  // a histogram of lengths
    const std::int64_t batch = reader.require_integer("global_batch");
    const auto clip_norm = reader.number("clip_norm");
    const auto software = reader.object("software");
    const auto degrees = reader.object("plan");
    reader.finish();
    problems.throw_if_any();
    const std::string lengths = documents ? R"("sequence_lengths": {"histogram": ")" +
                                                source_dir() + "/" + *documents + "\"}"
                                          : R"("sequence_length": )" + std::to_string(sequence);
    std::string keys = R"("precision": ")" + precision + R"(", )" + lengths +
                       R"(, "global_batch": )" + std::to_string(batch);
    if (software) keys += R"(, "software": )" + software->text();
    if (degrees) keys += R"(, "plan": )" + degrees->text();
    const JsonNode of_model = *models->find(model);
    const bool routes_freely = precision == "fp64" && of_model.find("num_experts").has_value();
    plans.push_back(
        {name, every_run, mutated, routes_freely, steps, gpus, of_model.text(), keys, clip_norm});
  }
  return plans;
}

}  // namespace headway
