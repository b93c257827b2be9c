// Who may include whom: the one place where the order of the house stands as data. Every #include
// of sim/ and kernels/ is read from the sources and held against it.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::IsEmpty;
namespace fs = std::filesystem;

// Folder of sim -> what it may include of sim besides itself: folders, or single headers. The
// schedules (program/schedule and its leaves in program/pipeline) are a layer of their own at the
// bottom, because whether a plan is legal is theirs to say.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"core", {}},
    {"schedule", {}},
    {"model", {"core"}},
    {"cluster", {"core", "model/precision"}},
    {"plan", {"core", "model", "cluster", "schedule"}},
    {"program", {"core", "model", "cluster", "plan"}},
    {"price", {"core", "model", "cluster", "plan", "program"}},
    {"cost", {"core", "model", "cluster"}},
    {"engine", {"core", "cluster"}},
    {"simulate", {"core", "model", "cluster", "plan", "program", "cost", "engine"}},
    {"report",
     {"core", "model", "cluster", "plan", "program", "price", "cost", "engine", "simulate"}},
    {"search",
     {"core", "model", "cluster", "plan", "program", "price", "cost", "engine", "simulate",
      "report"}},
    {"validate",
     {"core", "model", "cluster", "plan", "program", "price", "cost", "engine", "simulate",
      "report"}},
    {"formats", {"core", "model", "cluster", "plan", "program", "engine", "cost"}},
    {"commands",
     {"core", "model", "cluster", "plan", "program", "price", "cost", "engine", "simulate",
      "report", "search", "validate", "formats"}},
};

// What kernels/ sees of sim. A Program names its groups by axes of the rank grid.
const std::set<std::string> kKernelsMayInclude = {
    "core",           "model/operation", "model/precision",     "program",
    "plan/rank_grid", "engine/timeline", "engine/timeline_json"};

// Five to twelve seconds of compile time for each file that sees them: sources only.
const std::vector<std::string> kOnlyInSources = {"nlohmann/", "boost/", "CLI/"};

struct Include {
  std::string from;  // "sim/core/file.cpp"
  std::string of;    // "sim/core/file.hpp", "nlohmann/json.hpp"
};

bool is_header(const std::string& file) { return file.ends_with(".hpp"); }

bool is_source(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".cuh";
}

std::vector<Include> includes_in(const std::string& text, const std::string& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*["<]([^">]+)[">])re");
  std::vector<Include> includes;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) includes.push_back({file, match[1]});
  }
  return includes;
}

std::vector<Include> read_includes() {
  std::vector<Include> includes;
  const fs::path root = source_dir();
  for (const char* top : {"sim", "kernels"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string file = fs::relative(entry.path(), root).generic_string();
      const auto found = includes_in(read_file(entry.path().string()), file);
      includes.insert(includes.end(), found.begin(), found.end());
    }
  }
  std::sort(includes.begin(), includes.end(), [](const Include& a, const Include& b) {
    return a.from != b.from ? a.from < b.from : a.of < b.of;
  });
  return includes;
}

const std::vector<Include>& all_includes() {
  static const std::vector<Include> kIncludes = read_includes();
  return kIncludes;
}

// "program/pipeline/gpipe.hpp" -> "program"
std::string folder_of(const std::string& file) { return file.substr(0, file.find('/')); }

// "program/pipeline/gpipe.hpp" -> "schedule"; otherwise the folder.
std::string layer_of(const std::string& file) {
  const bool schedule =
      file.starts_with("program/schedule.") || file.starts_with("program/pipeline/");
  return schedule ? "schedule" : folder_of(file);
}

// Whether `allowed` names the file of sim ("model/precision.hpp"), by its layer, its folder or
// itself.
bool allows(const std::set<std::string>& allowed, const std::string& file) {
  return allowed.contains(layer_of(file)) || allowed.contains(folder_of(file)) ||
         allowed.contains(file.substr(0, file.rfind('.')));
}

// Nothing where the include keeps to the table; else why not.
std::string fault(const Include& include) {
  const std::string what = include.from + " includes " + include.of;
  const bool of_kernels = include.of.starts_with("kernels/");
  if (!include.of.starts_with("sim/") && !of_kernels) return "";
  if (include.from.starts_with("kernels/")) {
    return of_kernels || allows(kKernelsMayInclude, include.of.substr(4)) ? "" : what;
  }
  if (of_kernels) return what;
  const std::string from = layer_of(include.from.substr(4));
  const std::string of = include.of.substr(4);
  const auto row = kMayInclude.find(from);
  if (row == kMayInclude.end()) return what + ": " + from + " is no folder of the house";
  return from == layer_of(of) || from == folder_of(of) || allows(row->second, of) ? "" : what;
}

bool is_heavy(const std::string& included) {
  return std::any_of(kOnlyInSources.begin(), kOnlyInSources.end(),
                     [&](const std::string& prefix) { return included.starts_with(prefix); });
}

TEST(Layers, IncludeOnlyWhatTheyMayLeanOn) {
  std::vector<std::string> faults;
  for (const Include& include : all_includes()) {
    if (const std::string found = fault(include); !found.empty()) faults.push_back(found);
  }
  EXPECT_THAT(faults, IsEmpty());
}

TEST(Layers, KeepHeavyPackagesOutOfHeaders) {
  std::vector<std::string> faults;
  for (const Include& include : all_includes()) {
    if (is_header(include.from) && is_heavy(include.of)) {
      faults.push_back(include.from + " includes " + include.of);
    }
  }
  EXPECT_THAT(faults, IsEmpty());
}

TEST(Layers, IncludeTheirFilesFromTheRoot) {
  std::vector<std::string> faults;
  const fs::path root = source_dir();
  for (const Include& include : all_includes()) {
    if (fs::exists((root / include.from).parent_path() / include.of)) {
      faults.push_back(include.from + " includes " + include.of);
    }
  }
  EXPECT_THAT(faults, IsEmpty());
}

TEST(Layers, AreTheFoldersOfTheHouse) {
  std::vector<std::string> strangers;
  for (const auto& entry : fs::directory_iterator(fs::path(source_dir()) / "sim")) {
    const std::string folder = entry.path().filename().string();
    // The Python module is a guest beside the rooms.
    const bool known = kMayInclude.contains(folder) && folder != "schedule";
    if (entry.is_directory() && folder != "python" && !known) {
      strangers.push_back(folder);
    }
  }
  EXPECT_THAT(strangers, IsEmpty());
}

// The table has an order in which no folder leans on a later one.
TEST(Layers, HaveNoCycle) {
  std::set<std::string> placed;
  for (std::size_t round = 0; round < kMayInclude.size(); ++round) {
    for (const auto& [folder, allowed] : kMayInclude) {
      const bool ready = std::all_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
        return placed.contains(folder_of(name));
      });
      if (ready) placed.insert(folder);
    }
  }
  EXPECT_EQ(placed.size(), kMayInclude.size());
}

// The check itself: what it must see and what it must let pass.
TEST(Layers, CheckSeesAWrongInclude) {
  EXPECT_EQ(fault({"sim/model/transformer.hpp", "sim/core/units.hpp"}), "");
  EXPECT_EQ(fault({"sim/program/pipeline/gpipe.cpp", "sim/program/schedule.hpp"}), "");
  EXPECT_EQ(fault({"sim/plan/plan_reader.cpp", "sim/program/schedule.hpp"}), "");
  EXPECT_EQ(fault({"sim/program/training_step.cpp", "sim/program/pipeline/gpipe.hpp"}), "");
  EXPECT_EQ(fault({"sim/cluster/device.hpp", "sim/model/precision.hpp"}), "");
  EXPECT_EQ(fault({"sim/core/file.cpp", "string"}), "");
  EXPECT_EQ(fault({"kernels/cpu/gemm.cpp", "kernels/cpu/gemm.hpp"}), "");
  EXPECT_EQ(fault({"kernels/cpu/gemm.cpp", "sim/plan/rank_grid.hpp"}), "");
  EXPECT_NE(fault({"sim/core/file.cpp", "sim/model/precision.hpp"}), "");
  EXPECT_NE(fault({"sim/plan/plan_reader.cpp", "sim/program/program.hpp"}), "");
  EXPECT_NE(fault({"sim/program/pipeline/gpipe.cpp", "sim/program/program.hpp"}), "");
  EXPECT_NE(fault({"sim/cluster/device.hpp", "sim/model/transformer.hpp"}), "");
  EXPECT_NE(fault({"sim/engine/simulator.cpp", "sim/model/transformer.hpp"}), "");
  EXPECT_NE(fault({"sim/cost/profile.cpp", "kernels/cpu/gemm.hpp"}), "");
  EXPECT_NE(fault({"kernels/cpu/gemm.cpp", "sim/plan/job.hpp"}), "");
  EXPECT_NE(fault({"sim/util/strings.cpp", "sim/core/error.hpp"}), "");
}

TEST(Layers, CheckReadsIncludesAsTheCompilerDoes) {
  const auto found = includes_in(
      "#include \"sim/core/file.hpp\"\n  #  include <nlohmann/json.hpp>\n"
      "// #include \"sim/plan/job.hpp\"\nint x;\n",
      "sim/core/a.hpp");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].of, "sim/core/file.hpp");
  EXPECT_EQ(found[1].of, "nlohmann/json.hpp");
  EXPECT_TRUE(is_heavy(found[1].of));
  EXPECT_FALSE(all_includes().empty());
}

}  // namespace
}  // namespace headway
