#include "sim/core/shipped_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/core/file.hpp"
#include "sim/core/json_reader.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

TEST(ShippedFiles, HoldTheFilesOfTheTreeByteForByteInOrder) {
  const auto files = shipped_files();
  ASSERT_FALSE(files.empty());
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end(),
                             [](const auto& a, const auto& b) { return a.path < b.path; }));
  for (const ShippedFile& file : files) {
    EXPECT_EQ(read_file(source_dir() + "/" + std::string(file.path)), file.content) << file.path;
  }
}

TEST(ShippedFiles, AreStrictJson) {
  for (const ShippedFile& file : shipped_files()) {
    EXPECT_NO_THROW(JsonNode::parse_text(file.content, std::string(file.path)));
  }
}

TEST(ShippedFiles, AreFoundByPathAndListedByFolder) {
  ASSERT_NE(find_shipped_file("sim/model/presets/gpt3-175b.json"), nullptr);
  EXPECT_EQ(find_shipped_file("sim/model/presets/none.json"), nullptr);
  const auto names = shipped_names("sim/model/presets/");
  EXPECT_NE(std::find(names.begin(), names.end(), "gpt3-175b"), names.end());
}

}  // namespace
}  // namespace headway
