#include "sim/search/plan_space.hpp"

#include <gmock/gmock.h>

#include "tests/search/small_space.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Space {
 public:
  explicit Space(const std::string& plan, const SpaceOptions& options = {})
      : job_(open_job(small_job(plan))),
        space_(job_, framework_reach("megatron-core"), options, problems_) {}

  const PlanSpace& space() const { return space_; }
  std::vector<std::string> problems() const {
    std::vector<std::string> texts;
    for (const Problem& problem : problems_.list()) texts.push_back(problem.text());
    return texts;
  }
  // Every plan as its text.
  std::vector<std::string> plans() const {
    std::vector<std::string> texts;
    space_.for_each_row([&](const PlanChoice& row) {
      for (const std::string& size : space_.micro_batches(row)) {
        PlanChoice choice = row;
        if (!size.empty()) choice.back() = size;
        texts.push_back(space_.plan_text(choice));
      }
      return true;
    });
    return texts;
  }

 private:
  Problems problems_;
  OpenJob job_;
  PlanSpace space_;
};

TEST(PlanSpace, TakesListsInTheirOrderAndRangesWhole) {
  const Space space(R"({"tp": [4, 2], "prefetch": {"min": 0, "max": 1}, "pp": 2})");
  EXPECT_THAT(space.space().keys(), ElementsAre("tp", "prefetch"));
  EXPECT_THAT(space.plans(),
              ElementsAre(R"({"pp":2,"tp":4,"prefetch":0})", R"({"pp":2,"tp":4,"prefetch":1})",
                          R"({"pp":2,"tp":2,"prefetch":0})", R"({"pp":2,"tp":2,"prefetch":1})"));
}

// Of 24 heads and 8 GPUs a node: 1, 2, 4, 8; a range keeps those within it.
TEST(PlanSpace, AutoTriesDegreesThatDivide) {
  EXPECT_THAT(Space(R"({"tp": "auto"})").plans(),
              ElementsAre(R"({"tp":1})", R"({"tp":2})", R"({"tp":4})", R"({"tp":8})"));
  EXPECT_THAT(Space(R"({"tp": {"min": 2, "max": 5}})").plans(),
              ElementsAre(R"({"tp":2})", R"({"tp":4})"));
}

// 16 GPUs, a batch of 32 and tp 4: four replicas of at most 8 sequences each.
TEST(PlanSpace, AutoTriesMicroBatchesInPowersOfTwo) {
  EXPECT_THAT(Space(R"({"tp": 4, "micro_batch": "auto"})").plans(),
              ElementsAre(R"({"tp":4,"micro_batch":1})", R"({"tp":4,"micro_batch":2})",
                          R"({"tp":4,"micro_batch":4})", R"({"tp":4,"micro_batch":8})"));
}

// Of 24 layers on 2 ranks: what divides 12 layers of a rank, or 13 with embedding and head.
TEST(PlanSpace, AutoTriesVirtualStagesOfEqualSize) {
  EXPECT_THAT(
      Space(R"({"tp": 8, "pp": 2, "schedule": "interleaved", "vpp": "auto"})").plans(),
      ElementsAre(HasSubstr(R"("vpp":2})"), HasSubstr(R"("vpp":3})"), HasSubstr(R"("vpp":4})"),
                  HasSubstr(R"("vpp":6})"), HasSubstr(R"("vpp":12})"), HasSubstr(R"("vpp":13})")));
}

TEST(PlanSpace, DoesNotVaryWhatHasNoSay) {
  const Space space(R"({"tp": [1, 2], "pp": 1, "schedule": "auto", "sequence_parallel": "auto"})");
  EXPECT_THAT(space.plans(),
              ElementsAre(R"({"pp":1,"tp":1})", R"({"pp":1,"tp":2,"sequence_parallel":true})"));
}

// All layers of a stage of 12, or the first 1, 2, 4 and 8 of them.
TEST(PlanSpace, AutoTriesFullRecomputationByLayers) {
  const Space space(
      R"({"tp": 8, "pp": 2, "recompute": ["none", "full"], "recompute_layers": "auto"})");
  EXPECT_THAT(space.plans(),
              ElementsAre(R"({"pp":2,"tp":8,"recompute":"none"})",
                          R"({"pp":2,"tp":8,"recompute":"full","recompute_layers":1})",
                          R"({"pp":2,"tp":8,"recompute":"full","recompute_layers":2})",
                          R"({"pp":2,"tp":8,"recompute":"full","recompute_layers":4})",
                          R"({"pp":2,"tp":8,"recompute":"full","recompute_layers":8})",
                          R"({"pp":2,"tp":8,"recompute":"full"})"));
}

TEST(PlanSpace, OpensTheDefaultKeysWhereNoneIsOpen) {
  const Space space(R"({"tp": 4, "dp_kind": "ddp"})");
  EXPECT_TRUE(space.space().by_default());
  EXPECT_THAT(space.space().keys(), ElementsAre("pp", "schedule", "vpp", "sequence_parallel",
                                                "recompute", "recompute_layers", "micro_batch"));
}

TEST(PlanSpace, FixesAndExcludes) {
  const SpaceOptions options = {{{"pp", "2", "--fix"}}, {{"tp", "8", "--exclude"}}};
  const std::vector<std::string> plans = Space(R"({"tp": "auto", "pp": "auto"})", options).plans();
  EXPECT_THAT(plans, ElementsAre(R"({"pp":2,"tp":1})", R"({"pp":2,"tp":2})", R"({"pp":2,"tp":4})"));
}

TEST(PlanSpace, NamesWhatCannotBeVaried) {
  EXPECT_THAT(Space(R"({"bucket": "auto"})").problems(),
              ElementsAre(HasSubstr("job.json: /plan/bucket: \"auto\" has no rule for bucket")));
  EXPECT_THAT(Space(R"({"tp": []})").problems(),
              ElementsAre(HasSubstr("/plan/tp: [] leaves nothing to choose from")));
  EXPECT_THAT(Space(R"({"tp": {"min": 4, "max": 2}})").problems(),
              ElementsAre(HasSubstr("/plan/tp: min is above max")));
  EXPECT_THAT(Space(R"({"tp": "auto"})", {{}, {{"pp", "2", "--exclude"}}}).problems(),
              ElementsAre("--exclude: plan.pp is not open; open are tp"));
}

TEST(PlanSpace, StopsWhenToldTo) {
  int rows = 0;
  Space(R"({"tp": "auto"})").space().for_each_row([&](const PlanChoice&) { return ++rows < 2; });
  EXPECT_EQ(rows, 2);
}

}  // namespace
}  // namespace headway
