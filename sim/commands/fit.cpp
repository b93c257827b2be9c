#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <ostream>
#include <set>

#include "sim/commands/command.hpp"
#include "sim/core/file.hpp"
#include "sim/cost/collective_check.hpp"
#include "sim/cost/fit.hpp"
#include "sim/cost/point_check.hpp"
#include "sim/formats/nccl_tests.hpp"
#include "sim/formats/pytorch_trace.hpp"

namespace headway {

namespace {

// Points of files of any known kind; their content says which.
PointSet read_all(const std::vector<std::string>& files, std::ostream& notes) {
  PointSet set;
  Problems problems;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    if (is_nccl_tests_log(text)) {
      const auto rows = read_nccl_tests(text, file, problems);
      set.collectives.insert(set.collectives.end(), rows.begin(), rows.end());
    } else if (is_pytorch_trace(text)) {
      const PyTorchTracePoints added = read_pytorch_trace(text, file, set, problems);
      if (added.without_shape > 0) {
        notes << "note: " << file << ": " << added.without_shape
              << " kernels of multiplications without a shape are left out\n";
      }
    } else {
      read_points_file(file, set, problems);
    }
  }
  problems.throw_if_any();
  return set;
}

// The one device that the points are of.
std::string device_of(const PointSet& points) {
  std::set<std::string> devices;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (const auto device = device_of_gpu(row.gpu)) devices.insert(*device);
    }
  };
  add(points.gemm);
  add(points.attention);
  add(points.elementwise);
  add(points.collectives);
  if (devices.size() == 1) return *devices.begin();
  throw InvalidInput("--profile", "",
                     devices.empty()
                         ? "no point is of a device with a profile; --profile names the profile "
                           "that the fit starts from"
                         : "the points are of " + any_of({devices.begin(), devices.end()}) +
                               "; --profile chooses one");
}

int check(const PointSet& points, const std::string& profile, const std::string& json,
          const std::string& collectives, const CommandLine& line) {
  if (!collectives.empty()) {
    write_answer(collectives, collectives_csv(check_collectives(points)), line);
    if (collectives == "-") return kAnswered;
  }
  const PointCheck checked =
      check_points(points, profile.empty() ? std::nullopt : std::optional(profile));
  if (!json.empty()) write_answer(json, check_json(checked), line);
  if (json != "-") line.out << check_text(checked);
  return kAnswered;
}

}  // namespace

int fit_command(const CommandLine& line) {
  CLI::App app("Makes a profile from measured points, or checks the profiles against them.",
               "headway fit");
  std::vector<std::string> files;
  std::string output, profile, json, collectives;
  bool checks = false;
  app.add_option("points", files,
                 "CSV as in calibration/points, logs of nccl-tests, traces of the PyTorch profiler")
      ->required()
      ->type_name("POINTS...");
  auto* const out = app.add_option("-o,--output", output, "where the profile is written");
  auto* const check_flag =
      app.add_flag("--check", checks, "predict the points with the shipped profiles instead");
  app.add_option("--profile", profile,
                 "the profile that the fit starts from (default: that of the points' device); with "
                 "--check: the only one asked");
  app.add_option("--json", json, "with --check: write the errors as JSON; - is standard output")
      ->needs(check_flag);
  app.add_option(
         "--collectives", collectives,
         "with --check: write each collective with its prediction, algorithm and protocol as "
         "CSV; inside a node its own measured curve is left out; - is standard output")
      ->type_name("FILE")
      ->needs(check_flag);
  out->excludes(check_flag);
  app.footer(
      "example: headway fit calibration/points/gemm.csv --profile h100-sxm -o my-h100.json\n"
      "         headway fit --check calibration/points/*.csv --json errors.json");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (!checks && output.empty()) {
    line.err << "headway: --output is required, or --check\n";
    return kBadInput;
  }
  const PointSet points = read_all(files, line.err);
  if (checks) return check(points, profile, json, collectives, line);

  const PointsFit fit =
      fit_points(points, read_profile(profile.empty() ? device_of(points) : profile));
  write_answer(output, profile_text(fit.profile), line);
  if (output != "-") line.out << left_out_text(fit.left_out);
  line.err << "note: " << fit.used << " points used\n";
  for (const auto& [why, count] : fit.ignored) {
    line.err << "note: " << count << " points ignored: " << why << '\n';
  }
  return kAnswered;
}

}  // namespace headway
