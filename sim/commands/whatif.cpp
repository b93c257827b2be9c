#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <thread>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"
#include "sim/search/what_if.hpp"

namespace headway {

int whatif_command(const CommandLine& line) {
  CLI::App app("Simulates a job for every combination of values of some of its fields.",
               "headway whatif");
  JobOptions job;
  std::vector<std::string> texts;
  std::string csv, json;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  job.add_to(app);
  app.add_option("--vary", texts, "a field of the job and its values: KEY=A,B,C or KEY=FROM..TO")
      ->required()
      ->allow_extra_args(false)
      ->type_name("KEY=VALUES");
  app.add_option("--csv", csv, "write the table as CSV; - is standard output")->type_name("FILE");
  app.add_option("--json", json, "write the table as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, 1024));
  app.footer(
      "FROM..TO is every doubling from the one to the other.\n"
      "example: headway whatif job.json --vary 'plan.micro_batch=1,2,4' "
      "--vary 'cluster.links.nic.bandwidth=100..800 Gbit/s'");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  Problems problems;
  std::vector<Variation> variations;
  for (const std::string& text : texts) {
    if (auto variation = parse_variation(text, problems))
      variations.push_back(std::move(*variation));
  }
  if (csv == "-" && json == "-")
    problems.add("--csv", "", "- is taken by --json already; expected a file");
  problems.throw_if_any();
  const JobOptions::Source source = job.source();
  const WhatIf table = vary(source.document, source.overrides, variations, threads);
  if (!csv.empty()) write_answer(csv, what_if_csv(table), line);
  if (!json.empty()) write_answer(json, what_if_json(table), line);
  if (csv != "-" && json != "-") line.out << what_if_text(table);
  return kAnswered;
}

}  // namespace headway
