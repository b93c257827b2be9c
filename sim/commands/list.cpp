#include <CLI/CLI.hpp>
#include <ostream>

#include "sim/cluster/topology.hpp"
#include "sim/commands/command.hpp"
#include "sim/cost/profile.hpp"
#include "sim/model/transformer.hpp"
#include "sim/plan/software.hpp"
#include "sim/program/schedule.hpp"

namespace headway {

namespace {

constexpr std::size_t kNameWidth = 26;

void row(std::ostream& out, const std::string& name, const std::string& what,
         const std::string& source) {
  out << name << std::string(name.size() < kNameWidth ? kNameWidth - name.size() : 1, ' ') << what;
  if (!source.empty()) out << (what.empty() ? "" : "  ") << '[' << source << ']';
  out << '\n';
}

void list_clusters(std::ostream& out) {
  for (const TopologyName& one : topology_presets()) {
    std::string profiles;
    for (const std::string& profile : one.profiles)
      profiles += (profiles.empty() ? "" : ", ") + profile;
    row(out, one.name, one.summary + "; profiles: " + profiles, one.source);
  }
}

}  // namespace

int list_command(const CommandLine& line) {
  CLI::App app("Lists what ships with the program, with sources.", "headway list");
  std::string what;
  app.add_option("what", what, "models, clusters, profiles, schedules or frameworks")
      ->required()
      ->check(CLI::IsMember({"models", "clusters", "profiles", "schedules", "frameworks"}));
  app.footer("example: headway list models");
  if (const ParseResult parsed = parse(app, line); !parsed.proceed) return parsed.exit_code;
  if (what == "models") {
    for (const PresetName& one : transformer_presets()) row(line.out, one.name, "", one.source);
  } else if (what == "clusters") {
    list_clusters(line.out);
  } else if (what == "profiles") {
    for (const ProfileName& one : shipped_profiles()) {
      row(line.out, one.name, one.title + ", " + std::to_string(one.gemm_points) + " GEMM points",
          one.source);
    }
  } else if (what == "schedules") {
    for (const Schedule& one : schedules()) row(line.out, one.name, "", one.source);
  } else {
    for (const FrameworkName& one : framework_presets())
      row(line.out, one.name, one.summary, one.source);
  }
  return kAnswered;
}

}  // namespace headway
