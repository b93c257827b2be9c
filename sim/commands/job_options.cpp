#include "sim/commands/job_options.hpp"

#include <CLI/CLI.hpp>
#include <ostream>

namespace headway {

namespace {

struct OptionKey {
  const char* option;
  const char* key;
  const char* help;
};

constexpr OptionKey kOptions[] = {
    {"--model", "model", "preset or Hugging Face config.json"},
    {"--cluster", "cluster.topology", "preset, topology file, or a GPU's name (h100)"},
    {"--gpus", "cluster.gpus", "GPUs, counted from the start of the cluster"},
    {"--nodes", "cluster.nodes", "servers, instead of --gpus"},
    {"--nic", "cluster.nic", "where --cluster is a GPU's name: NICs of a server, \"8x400 Gbit/s\""},
    {"--oversubscription", "cluster.oversubscription",
     "where --cluster is a GPU's name: of the leaf switches"},
    {"--profile", "cluster.profile", "what the device really reaches: a profile's name or file"},
    {"--precision", "precision", "bf16, fp16, fp32, ..."},
    {"--sequence-length", "sequence_length", "tokens per sequence"},
    {"--global-batch", "global_batch", "sequences per step"},
    {"--framework", "software.framework", "whose kernels and habits"},
    {"--attention", "software.attention", "unfused, flash1, flash2, flash3, cudnn"},
    {"--tp", "plan.tp", "tensor-parallel degree"},
    {"--pp", "plan.pp", "pipeline-parallel degree"},
    {"--cp", "plan.cp", "context-parallel degree"},
    {"--ep", "plan.ep", "expert-parallel degree"},
    {"--dp", "plan.dp", "data-parallel degree; checked, since it is what remains"},
    {"--schedule", "plan.schedule", "pipeline schedule"},
    {"--vpp", "plan.vpp", "virtual stages per rank"},
    {"--micro-batch", "plan.micro_batch", "sequences per micro-batch"},
    {"--dp-kind", "plan.dp_kind", "ddp, zero1, zero2, zero3, fsdp, distributed_optimizer"},
    {"--recompute", "plan.recompute", "none, selective, full"},
    {"--sequence-parallel", "plan.sequence_parallel", "true or false"},
};

}  // namespace

void JobOptions::add_to(CLI::App& app) {
  app.add_option("job", file_, "job file (JSON); options override it")->type_name("JOB.json");
  add_options_to(app);
}

void JobOptions::add_options_to(CLI::App& app) {
  values_.reserve(std::size(kOptions));  // CLI11 keeps pointers to the texts
  for (const OptionKey& option : kOptions) {
    values_.push_back({option.key, option.option, std::nullopt});
    app.add_option(option.option, values_.back().text, option.help)
        ->group("Job")
        ->type_name("VALUE");
  }
  app.add_option("--set", settings_,
                 "any other key of the job, e.g. --set plan.scatter_gather=true")
      ->allow_extra_args(false)  // one value each time, so that a job's file may follow
      ->type_name("KEY=VALUE")
      ->group("Job");
}

std::vector<JobOverride> JobOptions::overrides(Problems& problems) const {
  std::vector<JobOverride> overrides;
  for (const Value& value : values_) {
    if (value.text) overrides.push_back({value.key, *value.text, value.option});
  }
  for (const std::string& setting : settings_) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add("--set", "", "'" + setting + "' is no KEY=VALUE");
      continue;
    }
    overrides.push_back({setting.substr(0, equals), setting.substr(equals + 1), "--set"});
  }
  return overrides;
}

JobOptions::Source JobOptions::source() const {
  Problems problems;
  std::vector<JobOverride> options = overrides(problems);
  if (file_.empty() && options.empty()) {
    problems.add(name(), "",
                 "a job is missing: give a JOB.json or at least --model, --cluster, "
                 "--gpus, --sequence-length and --global-batch");
  }
  problems.throw_if_any();
  return {file_.empty() ? JsonNode::parse_text("{}", name()) : JsonNode::parse_file(file_),
          std::move(options)};
}

Job JobOptions::read() const {
  const Source job = source();
  Problems problems;
  JobReading reading = read_job(job.document, job.overrides, problems);
  for (const NotYetBuilt& missing : reading.not_built) {
    problems.add(name(), missing.pointer, missing.rule + " is not built yet in this version");
  }
  problems.throw_if_any();
  return std::move(*reading.job);
}

std::string JobOptions::name() const { return file_.empty() ? "command line" : file_; }

void print_notes(const Job& job, const CommandLine& line) {
  for (const std::string& note : job.notes) line.err << "note: " << note << '\n';
}

}  // namespace headway
