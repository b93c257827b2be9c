// Runs a whole command line in this process, and keeps files for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "sim/commands/command.hpp"
#include "sim/core/file.hpp"

namespace headway {

struct Ran {
  int exit_code = 0;
  std::string out, err;
};

inline Ran run(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  const int exit_code = run_command_line({std::move(arguments), out, err});
  return {exit_code, out.str(), err.str()};
}

inline std::ptrdiff_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// A folder of its own for each test, gone with it.
class InFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("headway-commands-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, const std::string& text) const {
    write_file(path(name), text);
    return path(name);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path folder_;
};

// Two stages of two tensor-parallel ranks, two replicas, eight micro-batches.
inline const std::string kSmallJob = R"({
  "model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 8}, "sequence_length": 2048,
  "global_batch": 16, "software": {"framework": "megatron-2022"},
  "plan": {"tp": 2, "pp": 2, "micro_batch": 1}})";

inline std::string with(std::string text, const std::string& piece, const std::string& by) {
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), by);
}

}  // namespace headway
