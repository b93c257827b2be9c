#include <CLI/CLI.hpp>
#include <ostream>
#include <stdexcept>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/core/error.hpp"
#include "sim/core/file.hpp"
#include "sim/core/quantity.hpp"
#include "sim/formats/deepspeed.hpp"
#include "sim/formats/huggingface.hpp"
#include "sim/formats/megatron.hpp"
#include "sim/formats/nccl_topology.hpp"
#include "sim/formats/node_draft.hpp"
#include "sim/formats/nvidia_smi.hpp"
#include "sim/formats/torchtitan.hpp"
#include "sim/program/pipeline/schedule_csv.hpp"

namespace headway {

namespace {

std::string import_model(const std::string& file, const CommandLine& line) {
  const HuggingFaceImport imported = import_huggingface(file);
  for (const std::string& key : imported.ignored)
    line.err << "note: " << file << ": /" << key << " does not matter to cost and is ignored\n";
  for (const std::string& what : imported.left_out)
    line.err << "note: an inline model cannot state, so this is left out: " << what << '\n';
  return imported.model_json;
}

JobDraft import_job(const std::string& format, const std::string& file) {
  if (format == "deepspeed") return import_deepspeed(JsonNode::parse_file(file));
  const std::string text = read_file(file);
  return format == "torchtitan" ? import_torchtitan(text, file) : import_megatron(text, file);
}

// The options that a topology file has room for.
void fill_in(NodeDraft& draft, const std::vector<JobOverride>& given) {
  Problems problems;
  for (const JobOverride& value : given) {
    if (value.key == "cluster.profile") {
      set_profile(draft, value.value);
    } else if (value.key == "cluster.nic") {
      try {
        draft.nic = parse_bandwidth(value.value);
      } catch (const std::invalid_argument& error) {
        problems.add(value.option, "", std::string(error.what()) + ", of one NIC");
      }
    } else {
      problems.add(value.option, "", "a topology has no such key; expected --profile or --nic");
    }
  }
  problems.throw_if_any();
}

int import_node(NodeDraft draft, const std::vector<JobOverride>& given, const std::string& output,
                const CommandLine& line) {
  fill_in(draft, given);
  write_answer(output, draft.json(), line);
  for (const std::string& key : draft.missing()) {
    line.err << "note: " << draft.source << " does not state " << key
             << "; the topology is refused until it is filled in\n";
  }
  for (const std::string& what : draft.left_out) line.err << "note: left out: " << what << '\n';
  line.err << "note: " << draft.source
           << " describes one server: \"network\" and \"max_nodes\" say how servers are joined\n";
  return kAnswered;
}

void print_notes(const JobDraft& draft, const std::string& file, const CommandLine& line) {
  for (const std::string& key : draft.missing())
    line.err << "note: " << file << " does not state " << key << "; options fill it\n";
  for (const std::string& what : draft.lost())
    line.err << "note: matters to cost and is not imported: " << what << '\n';
  if (draft.ignored().empty()) return;
  line.err << "note: does not matter to cost and is ignored:";
  for (const std::string& what : draft.ignored()) line.err << ' ' << what;
  line.err << '\n';
}

// Checked, and without what is not an action.
int import_schedule(const std::string& file, const std::string& output, const CommandLine& line) {
  const CsvSchedule read = parse_schedule_csv(read_file(file), file);
  Problems problems;
  for (const ScheduleFault& fault : read.faults) {
    if (fault.deadlock) {
      line.err << "headway: " << file << ": " << to_text(fault) << '\n';
      return kCheckFailed;
    }
    problems.add(file, "", to_text(fault));
  }
  problems.throw_if_any();
  write_answer(output, to_csv(*read.schedule, read.shape), line);
  return kAnswered;
}

}  // namespace

int import_command(const CommandLine& line) {
  CLI::App app("Turns another tool's file into ours.", "headway import");
  std::string format, file, output = "-";
  app.add_option("format", format,
                 "hf: Hugging Face config.json -> model; megatron: a launch script, its arguments "
                 "or YAML -> job; deepspeed: JSON -> job; torchtitan: TOML -> job; "
                 "schedule-csv: a schedule of torch.distributed.pipelining -> the same, checked; "
                 "nccl-topo: NCCL's topology XML, nvidia-smi: the text of nvidia-smi topo -m -> "
                 "topology of one server")
      ->required()
      ->check(CLI::IsMember({"hf", "megatron", "deepspeed", "torchtitan", "schedule-csv",
                             "nccl-topo", "nvidia-smi"}));
  app.add_option("file", file, "the file")->required();
  app.add_option("-o,--output", output, "where to write; - is standard output");
  JobOptions options;
  options.add_options_to(app);
  app.footer(
      "example: headway import megatron pretrain_gpt.sh --cluster dgx-h100 --gpus 64 -o job.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (format == "schedule-csv") return import_schedule(file, output, line);
  if (format == "hf") {
    write_answer(output, import_model(file, line), line);
    return kAnswered;
  }
  Problems problems;
  const std::vector<JobOverride> filled = options.overrides(problems);
  problems.throw_if_any();
  if (format == "nccl-topo") {
    return import_node(import_nccl_topology(read_file(file), file), filled, output, line);
  }
  if (format == "nvidia-smi") {
    return import_node(import_nvidia_smi(read_file(file), file), filled, output, line);
  }
  JobDraft draft = import_job(format, file);
  for (const JobOverride& value : filled) draft.set_text(value.key, value.value);
  write_answer(output, draft.json(), line);
  print_notes(draft, file, line);
  return kAnswered;
}

}  // namespace headway
