#include <CLI/CLI.hpp>
#include <ostream>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/core/error.hpp"
#include "sim/formats/deepspeed.hpp"
#include "sim/formats/huggingface.hpp"
#include "sim/formats/megatron.hpp"
#include "sim/formats/torchtitan.hpp"
#include "sim/program/pipeline/schedule_csv.hpp"

namespace headway {

namespace {

// A row per pipeline rank, as torch.distributed.pipelining reads it.
std::string export_schedule(const Job& job, const std::string& name) {
  const ParallelPlan& plan = job.plan;
  const Schedule& schedule = *schedule_of(plan);
  if (schedule.copies > 1) {
    throw InvalidInput(
        name, "/plan/schedule",
        schedule.name + " runs two copies of the model, which a schedule CSV cannot state");
  }
  return to_csv(schedule,
                {plan.pp, plan.vpp, static_cast<int>(plan.micro_batches), plan.vpp_group});
}

std::string exported(const std::string& format, const Job& job, const std::string& name,
                     const CommandLine& line) {
  if (format == "megatron") return export_megatron(job, name);
  if (format == "deepspeed") return export_deepspeed(job, name);
  if (format == "torchtitan") return export_torchtitan(job, name);
  if (format == "schedule-csv") return export_schedule(job, name);
  const InlineModel model = inline_model(job.model);
  for (const std::string& what : model.left_out)
    line.err << "note: a config.json of these keys cannot state: " << what << '\n';
  return model.json;
}

}  // namespace

int export_command(const CommandLine& line) {
  CLI::App app("Writes a job as another tool's file, or says what that tool cannot do.",
               "headway export");
  std::string format, output = "-";
  app.add_option("format", format, "megatron, deepspeed, torchtitan, hf, schedule-csv")
      ->required()
      ->check(CLI::IsMember({"megatron", "deepspeed", "torchtitan", "hf", "schedule-csv"}));
  JobOptions options;
  options.add_to(app);
  app.add_option("-o,--output", output, "where to write; - is standard output");
  app.footer("example: headway export megatron job.json -o launch.sh");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  const Job job = options.read();
  write_answer(output, exported(format, job, options.name(), line), line);
  return kAnswered;
}

}  // namespace headway
