#include "kernels/execute/global_tensors.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "kernels/execute/byte_text.hpp"
#include "kernels/execute/rank_memory.hpp"

namespace headway {
namespace {

using testing::ElementsAre;

// tp 2 x dp 2. A matrix of two parts sharded by rows, one sharded by columns, and a flat group of
// both shared out over dp.
Program program() {
  Program made;
  made.grid = RankGrid({{"tp", 2}, {"dp", 2}});
  made.streams = {"compute"};
  made.groups = {{"tp", {"tp"}, {}}, {"dp", {"dp"}, {}}};
  BufferFamily rows;
  rows.name = "rows";
  rows.category = BufferCategory::kParameter;
  rows.type = DataType::kFp64;
  rows.rows = 3;
  rows.columns = 2;
  rows.per_layer = true;
  rows.initial = InitialValue::kNormal;
  rows.initial_scale = 1;
  rows.parts = {{"a", 4, 2, 0, 0}, {"b", 2, 2, 0, 0}};
  BufferFamily columns = rows;
  columns.name = "columns";
  columns.per_layer = false;
  columns.columns = 1;
  columns.parts = {{"c", 3, 2, 1, 0}};
  BufferFamily flat;
  flat.name = "flat";
  flat.type = DataType::kFp64;
  flat.rows = 5;  // 6 + 3 elements over 2 ranks, one of padding
  flat.columns = 1;
  flat.initial = InitialValue::kMirror;
  flat.mirrors = {{0, 7}, {1, 0}};
  flat.row_group = 1;
  made.buffers = {rows, columns, flat};
  RankKind kind;
  kind.stages = {0};
  kind.persistent = {{0, 7}, {1, 0}, {2, 0}};
  made.kinds = {kind};
  return made;
}

std::string text(const Fragment& f) {
  return f.tensor + " " + std::to_string(f.local) + "<-" + std::to_string(f.global) + " x" +
         std::to_string(f.count);
}

std::vector<std::string> texts(const std::vector<Fragment>& all) {
  std::vector<std::string> out;
  for (const Fragment& fragment : all) out.push_back(text(fragment));
  return out;
}

TEST(Fragments, PartsShardedByRowsAreRunsOfEach) {
  // Rank 1 is the second of tp: rows 2 and 3 of a, row 1 of b.
  EXPECT_THAT(texts(fragments(program(), 1, {0, 7, -1})),
              ElementsAre("layers.7.a 0<-4 x4", "layers.7.b 4<-2 x2"));
}

TEST(Fragments, PartsShardedByColumnsAreARunForEachRow) {
  EXPECT_THAT(texts(fragments(program(), 1, {1, 0, -1})),
              ElementsAre("c 0<-1 x1", "c 1<-3 x1", "c 2<-5 x1"));
}

TEST(Fragments, AFlatGroupIsCutWhereItsShareEnds) {
  // Flat on tp rank 1: a's rows (4), b's row (2), c's column (3), padding (1); 5 each over dp.
  EXPECT_THAT(texts(fragments(program(), 1, {2, 0, -1})),
              ElementsAre("layers.7.a 0<-4 x4", "layers.7.b 4<-2 x1"));
  EXPECT_THAT(texts(fragments(program(), 3, {2, 0, -1})),
              ElementsAre("layers.7.b 0<-3 x1", "c 1<-1 x1", "c 2<-3 x1", "c 3<-5 x1"));
}

TEST(GlobalTensors, PutsShardsTogetherAndSeesDisagreement) {
  const Program of = program();
  GlobalTensors whole;
  whole.add(fragments(of, 0, {1, 0, -1}), {1, 2, 3});
  EXPECT_FALSE(whole.tensors().at("c").known[1]);
  whole.add(fragments(of, 1, {1, 0, -1}), {10, 20, 30});
  EXPECT_THAT(whole.tensors().at("c").values, ElementsAre(1, 10, 2, 20, 3, 30));
  EXPECT_EQ(whole.tensors().at("c").disagreement, 0.0);
  whole.add(fragments(of, 2, {1, 0, -1}), {1, 2.5, 3});
  EXPECT_EQ(whole.tensors().at("c").disagreement, 0.5);
  EXPECT_NEAR(whole.norm(), std::sqrt(1 + 100 + 4 + 400 + 9 + 900), 1e-12);
}

TEST(RankMemory, EveryShardingBeginsWithTheSameModel) {
  const Program of = program();
  const ExecutionPlan plan(of);
  GlobalTensors tensors, mirrored;
  for (int rank = 0; rank < 4; ++rank) {
    const RankMemory memory(plan, rank, 1, {}, true);
    for (const int allocation : {0, 1, 2}) {
      const BufferInstance& buffer =
          plan.ranks[0].allocations[static_cast<std::size_t>(allocation)].buffer;
      (allocation == 2 ? mirrored : tensors)
          .add(fragments(of, rank, buffer), memory.values(allocation));
    }
  }
  ASSERT_EQ(tensors.tensors().size(), 3U);
  for (const auto& [name, tensor] : tensors.tensors()) {
    EXPECT_EQ(tensor.disagreement, 0.0) << name;
    EXPECT_EQ(mirrored.tensors().at(name).values, tensor.values) << name;
  }
  const RankMemory other(plan, 0, 2, {}, true);
  EXPECT_NE(other.values(0), RankMemory(plan, 0, 1, {}, true).values(0));
}

TEST(ByteText, IsTheSameForEveryReaderAndUsesTheWholeVocabulary) {
  EXPECT_EQ(sample_tokens(1, 5, 16, 500), sample_tokens(1, 5, 16, 500));
  EXPECT_NE(sample_tokens(1, 5, 16, 500), sample_tokens(1, 6, 16, 500));
  EXPECT_NE(sample_tokens(1, 5, 16, 500), sample_tokens(2, 5, 16, 500));
  std::int64_t lowest = 500, highest = 0;
  for (int sample = 0; sample < 100; ++sample) {
    const auto tokens = sample_tokens(1, sample, 16, 500);
    ASSERT_EQ(tokens.size(), 17U);
    for (const std::int64_t token : tokens) {
      lowest = std::min(lowest, token);
      highest = std::max(highest, token);
    }
  }
  EXPECT_EQ(lowest, 0);               // the space
  EXPECT_EQ(highest, 25 * 500 / 27);  // y; no word has a z
  for (const std::int64_t token : sample_tokens(1, 0, 16, 3)) EXPECT_LT(token, 3);
}

}  // namespace
}  // namespace headway
