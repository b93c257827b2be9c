#include "sim/plan/expert_loads.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

#include "tests/plan/job_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

Transformer model(std::int64_t layers, std::int64_t experts, std::int64_t dense) {
  Transformer made;
  made.num_hidden_layers = layers;
  made.num_experts = experts;
  made.experts.first_dense_layers = dense;
  return made;
}

// A file of counts, removed at the end.
class Histogram {
 public:
  explicit Histogram(const std::string& text) : path_(testing::TempDir() + "counts.json") {
    std::ofstream(path_) << text;
  }
  ~Histogram() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::vector<double>> read(const std::string& text, const Transformer& of,
                                      std::vector<std::string>* faults = nullptr) {
  const Histogram file(text);
  Problems problems;
  auto loads = histogram_loads(file.path(), of, problems);
  for (const Problem& problem : problems.list()) {
    if (faults != nullptr) faults->push_back(problem.pointer + ": " + problem.message);
  }
  return loads;
}

TEST(ExpertLoads, OfZipfFallWithTheExpertsNumber) {
  // 1, 1/2, 1/3, 1/4 add up to 25/12, a mean of 25/48.
  const std::vector<double> loads = zipf_loads(4, 1);
  EXPECT_DOUBLE_EQ(loads[0], 48.0 / 25);
  EXPECT_DOUBLE_EQ(loads[3], 12.0 / 25);
  EXPECT_THAT(zipf_loads(3, 0), ElementsAre(1, 1, 1));
}

TEST(ExpertLoads, AreReadFromCountsOfAllLayersOrOfThoseWithExperts) {
  EXPECT_THAT(read("[[3, 1]]", model(4, 2, 0)), ElementsAre(ElementsAre(1.5, 0.5)));
  EXPECT_THAT(read("[[3, 1], [2, 2]]", model(3, 2, 1)),
              ElementsAre(ElementsAre(1, 1), ElementsAre(1.5, 0.5), ElementsAre(1, 1)));
}

TEST(ExpertLoads, OfAWrongFileSayWhere) {
  std::vector<std::string> faults;
  read("[[1, 2, 3], [0, 0], [1, -1]]", model(3, 2, 0), &faults);
  EXPECT_THAT(faults, ElementsAre("/0: expected a count for each of the 2 experts",
                                  "/1: no expert of this layer was chosen",
                                  "/2/1: -1 is no count of choices"));
  faults.clear();
  read("[[1, 2], [1, 2]]", model(5, 2, 1), &faults);
  EXPECT_THAT(faults, ElementsAre(HasSubstr("2 rows of counts; expected one, one for each of the 4 "
                                            "layers with experts, or for each of the 5 layers")));
}

TEST(ExpertLoads, LoseWhatTheCapacityDrops) {
  EXPECT_THAT(kept_loads({{1.5, 0.5}}, 1.25), ElementsAre(ElementsAre(1.25, 0.5)));
  EXPECT_DOUBLE_EQ(dropped_share({{1.5, 0.5}}, 1.25), 0.125);
  EXPECT_DOUBLE_EQ(dropped_share({}, 0.75), 0.25);
  EXPECT_EQ(dropped_share({{1.5, 0.5}}, std::nullopt), 0);
}

constexpr const char* kMoeJob = R"({
  "model": {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
            "intermediate_size": 4096, "vocab_size": 32000, "hidden_act": "silu",
            "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 768},
  "cluster": {"topology": "dgx-a100", "nodes": 2},
  "sequence_length": 512, "global_batch": 64,
  "plan": {"ep": 4}
})";

TEST(ExpertPlan, FoldsItsRanksOverThoseOfAStage) {
  const Said said =
      read_text(kMoeJob, {{"plan.tp", "2", "--tp"}, {"plan.sequence_parallel", "true", "--sp"}});
  ASSERT_TRUE(said.reading.job.has_value()) << testing::PrintToString(said.lines);
  const Job& job = *said.reading.job;
  EXPECT_EQ(job.plan.etp, 2);  // that of tp
  EXPECT_EQ(job.plan.edp, 2);
  const RankGrid grid = job.grid();
  // etp innermost, then ep, then edp (Megatron-LM, core/parallel_state.py).
  EXPECT_THAT(grid.members({"ep", {"ep"}, {}}, 1), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(grid.members({"edp", {"edp"}, {}}, 3), ElementsAre(3, 11));
  EXPECT_THAT(grid.members({"etp-ep", {"etp", "ep"}, {}}, 9),
              ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(grid.index_in_group({"etp-ep", {"etp", "ep"}, {}}, 13), 5);
  EXPECT_EQ(grid.coordinate(13, "ep"), 2);
}

TEST(ExpertPlan, SaysWhatDoesNotFit) {
  const auto lines = [](const std::vector<JobOverride>& overrides) {
    return read_text(kMoeJob, overrides).lines;
  };
  EXPECT_THAT(lines({{"plan.ep", "3", "--ep"}}),
              testing::Contains(HasSubstr("--ep: 3 does not divide the 16 experts")));
  EXPECT_THAT(lines({{"plan.ep", "16", "--ep"}, {"plan.etp", "2", "--etp"}}),
              ElementsAre(HasSubstr("etp 2 x ep 16 does not divide the 16 ranks")));
  EXPECT_THAT(lines({{"plan.tp", "2", "--tp"}}),
              ElementsAre(HasSubstr("experts with tp 2 need it; expected true")));
  EXPECT_THAT(lines({{"plan.moe", R"({"kind": "switch"})", "--moe"}}),
              ElementsAre(HasSubstr("experts of kind switch are 1 a token")));
  EXPECT_THAT(lines({{"plan.moe", R"({"kind": "gshard", "drop": false})", "--moe"}}),
              ElementsAre(HasSubstr("a capacity whose overflow is not dropped")));
  EXPECT_THAT(lines({{"plan.order", "tp-pp-dp", "--order"}, {"plan.pp", "2", "--pp"}}),
              ElementsAre(HasSubstr("pp is expected innermost or outermost")));
}

TEST(ExpertPlan, SaysWhichDispatchersAndSchedulesHaveWhat) {
  const auto lines = [](const char* moe, const std::vector<JobOverride>& others = {}) {
    std::vector<JobOverride> overrides = {{"plan.moe", moe, "--moe"}};
    overrides.insert(overrides.end(), others.begin(), others.end());
    return read_text(kMoeJob, overrides).lines;
  };
  EXPECT_THAT(lines(R"({"dispatch": "allgather", "dispatch_dtype": "fp8"})"),
              ElementsAre(HasSubstr("dispatch allgather has no dispatch_dtype fp8; expected")));
  EXPECT_THAT(lines(R"({"dispatch": "allgather", "shared_overlap": true})"),
              ElementsAre(HasSubstr("dispatch allgather has no shared_overlap; expected")));
  EXPECT_THAT(lines(R"({"overlap": true, "shared_overlap": true})"),
              ElementsAre(HasSubstr("both put work beside the exchange; expected one")));
  EXPECT_THAT(lines(R"({"overlap": true})",
                    {{"plan.pp", "2", "--pp"}, {"plan.schedule", "gpipe", "--schedule"}}),
              ElementsAre(HasSubstr("overlapped passes with schedule gpipe")));
  EXPECT_THAT(lines(R"({"overlap": true})", {{"plan.recompute", "full", "--recompute"}}),
              ElementsAre(HasSubstr("overlap with experts that are recomputed whole")));
  EXPECT_THAT(lines(R"({"overlap": true})", {{"plan.pp", "2", "--pp"}}), testing::IsEmpty());
}

TEST(ExpertPlan, LeavesPassesApartWhereNoTokenTravels) {
  const Said said =
      read_text(kMoeJob, {{"plan.ep", "1", "--ep"}, {"plan.moe", R"({"overlap": true})", "--moe"}});
  ASSERT_TRUE(said.reading.job.has_value()) << testing::PrintToString(said.lines);
  EXPECT_FALSE(said.reading.job->plan.moe.overlap);
  EXPECT_THAT(said.reading.job->notes,
              testing::Contains("plan.moe.overlap has no effect: ep is 1"));
}

}  // namespace
}  // namespace headway
