#include "sim/plan/packing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/core/file.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kShort = source_dir() + "/tests/plan/lengths/short-documents.csv";

std::string written(const std::string& name, const std::string& text) {
  const std::string file = testing::TempDir() + name;
  write_file(file, text);
  return file;
}

std::vector<std::string> problems_of(const std::string& text, std::optional<std::int64_t> length) {
  Problems problems;
  EXPECT_THAT(packed_sequences(written("lengths.csv", text), length, problems), IsEmpty());
  std::vector<std::string> lines;
  for (const Problem& problem : problems.list()) {
    lines.push_back(problem.pointer + ": " + problem.message);
  }
  return lines;
}

TEST(PackedSequences, LayLongDocumentsFirstWhereTheyLeaveTheLeastRoom) {
  Problems problems;
  const auto packs = packed_sequences(kShort, {}, problems);
  problems.throw_if_any();
  // 16; two of 11, to which the 5s fit exactly; the 7s and 3s: 7 7, 7 3 3 3, and what is left.
  EXPECT_THAT(packs, ElementsAre(ElementsAre(16), ElementsAre(11, 5), ElementsAre(11, 5),
                                 ElementsAre(7, 7, 1, 1), ElementsAre(7, 3, 3, 3),
                                 ElementsAre(3, 3, 1, 9)));
}

TEST(PackedSequences, FillWhatRemainsWithADocumentOfPadding) {
  Problems problems;
  const std::string file = written("two.csv", "60,1\n50,1\n");
  EXPECT_THAT(packed_sequences(file, 64, problems),
              ElementsAre(ElementsAre(60, 4), ElementsAre(50, 14)));
}

TEST(PackedSequences, HoldEveryDocumentOnce) {
  Problems problems;
  const std::string file = written("many.csv", "length,count\n512,40\n300,7\n100,90\n37,311\n");
  std::int64_t documents = 0;
  for (const auto& pack : packed_sequences(file, 1024, problems)) {
    EXPECT_EQ(std::accumulate(pack.begin(), pack.end(), std::int64_t{0}), 1024);
    documents += std::count(pack.begin(), pack.end(), 37);
  }
  EXPECT_GE(documents, 311);  // and padding of that length
}

TEST(PackedSequences, CostWhatTheSquaresOfTheirDocumentsDo) {
  EXPECT_EQ(mean_document({{8, 8}}), 8);
  EXPECT_EQ(mean_document({{12, 4}}), 10);       // (144 + 16) / 16
  EXPECT_EQ(mean_document({{16}, {8, 8}}), 12);  // (256 + 64 + 64) / 32
}

TEST(PackedSequences, SayWhatIsWrongWithAHistogram) {
  EXPECT_THAT(problems_of("length,count\n512\n-3,4\n8,x\n", {}),
              ElementsAre("line 2: \"512\" is not allowed; expected a length from 1 up to 16777216 "
                          "and a count up to 65536, like \"512,40\"",
                          testing::StartsWith("line 3: \"-3,4\" is not allowed"),
                          testing::StartsWith("line 4: \"8,x\" is not allowed")));
  EXPECT_THAT(problems_of("length,count\n", {}), ElementsAre(": holds no document"));
  EXPECT_THAT(problems_of("512,1\n", 256),
              ElementsAre(": a document of 512 tokens is longer than the 256 that sequences are "
                          "packed to"));
  EXPECT_THAT(problems_of("1,65536\n2,1\n", {}),
              ElementsAre(": 65537 documents; expected at most 65536"));
}

}  // namespace
}  // namespace headway
