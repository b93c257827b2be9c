#include "sim/search/explain.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <thread>

#include "sim/commands/command.hpp"
#include "sim/commands/job_options.hpp"

namespace headway {

int explain_command(const CommandLine& line) {
  CLI::App app(
      "Says why a step takes as long as it does, and what more of each resource would buy.",
      "headway explain");
  JobOptions options;
  std::string json;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.add_to(app);
  app.add_option("--json", json, "write the explanation as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--threads", threads, "threads")->check(CLI::Range(1, 1024));
  app.footer("example: headway explain job.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  const JobOptions::Source source = options.source();
  const Explanation explanation = explain(source.document, source.overrides, threads);
  print_notes(explanation.job, line);
  if (!explanation.report.deadlock.empty()) {
    for (const std::string& wait : explanation.report.deadlock)
      line.err << "the schedule deadlocks: " << wait << '\n';
    return kCheckFailed;
  }
  if (!json.empty()) write_answer(json, explanation_json(explanation), line);
  if (json != "-") line.out << explanation_text(explanation);
  return kAnswered;
}

}  // namespace headway
