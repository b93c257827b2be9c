#include <unistd.h>

#include <CLI/CLI.hpp>
#include <ostream>
#include <thread>

#include "sim/commands/command.hpp"
#include "sim/validate/scatter.hpp"
#include "sim/validate/validation.hpp"

namespace headway {

int validate_command(const CommandLine& line) {
  CLI::App app("Simulates measured runs and prints how far the predictions are off.",
               "headway validate");
  std::vector<std::string> files;
  std::string json, scatter, anchor;
  ValidationOptions options;
  app.add_option("runs", files, "measured runs")->required()->type_name("RUNS.json...");
  app.add_option("--json", json, "write the error tables as JSON; - is standard output");
  app.add_option("--scatter", scatter, "draw predicted over measured times by source (.svg)");
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 1024));
  app.add_flag("--low", options.low, "count runs of low reliability too");
  app.add_option("--anchor", anchor,
                 "a measured step of your own (one run in a file as the others): corrects every "
                 "prediction by category")
      ->type_name("RUN.json");
  app.footer("example: headway validate results/validation/runs/*.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;

  Problems problems;
  std::vector<MeasuredRun> runs;
  for (const std::string& file : files) {
    std::vector<MeasuredRun> some = read_measured_runs(file, problems);
    runs.insert(runs.end(), some.begin(), some.end());
  }
  if (!anchor.empty()) {
    std::vector<MeasuredRun> own = read_measured_runs(anchor, problems);
    if (own.size() == 1) {
      options.anchor = std::move(own.front());
    } else if (problems.empty()) {
      problems.add("--anchor", "",
                   anchor + " holds " + std::to_string(own.size()) + " runs; expected one");
    }
  }
  problems.throw_if_any();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    options.progress = [&](std::size_t done, std::size_t all) {
      if (done % 50 == 0 || done == all) {
        line.err << '\r' << done << " of " << all << (done == all ? "\n" : "") << std::flush;
      }
    };
  }
  const Validation validation = validate(runs, options);
  if (!json.empty()) write_answer(json, validation_json(validation), line);
  if (!scatter.empty()) write_answer(scatter, scatter_svg(validation.runs, options.low), line);
  if (json != "-") line.out << validation_text(validation);
  return kAnswered;
}

}  // namespace headway
