#include <CLI/CLI.hpp>
#include <iomanip>
#include <optional>
#include <ostream>
#include <sstream>

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

// "174.6 B parameters, 96 layers"
std::string size_words(const std::string& preset) {
  const std::optional<Transformer> model = transformer_preset(preset);
  if (!model) return "";
  // Learned positions whose model leaves their number open are counted for GPT-3's sequence
  // (arXiv 2005.14165, section 2.1).
  constexpr std::int64_t kSequence = 2048;
  constexpr double kBillion = 1e9;
  std::ostringstream words;
  words << std::fixed << std::setprecision(1)
        << static_cast<double>(count_parameters(*model, kSequence).total) / kBillion
        << " B parameters, " << model->num_hidden_layers << " layers";
  return words.str();
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
    for (const PresetName& one : transformer_presets()) {
      row(line.out, one.name, size_words(one.name), one.source);
    }
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
