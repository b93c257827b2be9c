#include "sim/formats/pipeline_layout.hpp"

#include <gmock/gmock.h>

#include "sim/core/error.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// docs of --pipeline-model-parallel-layout in megatron/training/arguments.py.
TEST(PipelineLayout, CountsTheLayersOfEachStage) {
  EXPECT_THAT(layers_of_layout("E|t*3|t,t|L"), ElementsAre(0, 3, 2, 0));
  EXPECT_THAT(layers_of_layout("Et|(tt|)*3tL"), ElementsAre(1, 2, 2, 2, 1));
  EXPECT_THAT(layers_of_layout("E|(t|)*3,m|m||L"), ElementsAre(0, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(layers_of_layout("Et*3|(tt|)*29,m|L"), SizeIs(32));
}

TEST(PipelineLayout, WritesCountsThatReadBackEqual) {
  for (const std::vector<std::int64_t>& layers :
       std::vector<std::vector<std::int64_t>>{{1}, {0, 3, 2, 0}, {12, 11, 11, 12}}) {
    EXPECT_EQ(layers_of_layout(layout_of_layers(layers)), layers);
  }
  EXPECT_EQ(layout_of_layers({0, 3, 1}), "E|t*3|tL");
}

TEST(PipelineLayout, RefusesWhatIsNoLayout) {
  for (const char* text : {"Ex", "E(t", "Et)", "t*", "((((((((((t))))))))))", "t*9999999",
                           "(((t*99999)*99999)*99999)"}) {
    EXPECT_THROW(layers_of_layout(text), InvalidInput) << text;
  }
}

}  // namespace
}  // namespace headway
