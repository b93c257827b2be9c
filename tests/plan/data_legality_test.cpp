#include "sim/plan/data_legality.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/job_text.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// GPT-3 on 16 GPUs with these keys of the plan.
Said said(const std::string& plan, const char* topology = "dgx-a100") {
  return read_text(std::string(R"({"model": "gpt3-1.7b", "cluster": {"topology": ")") + topology +
                   R"(", "gpus": 16}, "sequence_length": 1024, "global_batch": 64, "plan": {)" +
                   plan + "}}");
}
std::vector<std::string> lines(const std::string& plan) { return said(plan).lines; }
Job job(const std::string& plan) {
  Said read = said(plan);
  EXPECT_THAT(read.lines, IsEmpty()) << plan;
  return std::move(read.reading.job.value());
}

TEST(DataLegality, ResolvesTheRanksThatShareOutTheState) {
  EXPECT_EQ(job(R"("dp_kind": "hsdp", "shard": 8)").plan.shard, 8);
  EXPECT_EQ(job(R"("dp_kind": "zero1", "shard": 4, "tp": 2)").plan.shard, 4);
  EXPECT_EQ(job(R"("dp_kind": "zero1")").plan.shard, 0);
  const Job all = job(R"("dp_kind": "zero1", "shard": 16)");
  EXPECT_EQ(all.plan.shard, 0);
  EXPECT_THAT(all.notes, testing::Contains(HasSubstr("plan.shard has no effect: all 16 ranks")));
}

TEST(DataLegality, NamesWhatIsWrongWithAGroup) {
  EXPECT_THAT(lines(R"("dp_kind": "hsdp")"),
              ElementsAre(HasSubstr("/plan/shard: missing; expected how many")));
  EXPECT_THAT(lines(R"("dp_kind": "hsdp", "shard": 3)"),
              ElementsAre(HasSubstr("/plan/shard: 3 does not divide the 16 ranks")));
  EXPECT_THAT(lines(R"("dp_kind": "hsdp", "shard": 1)"),
              ElementsAre(HasSubstr("/plan/shard: 1 shares out nothing")));
  EXPECT_THAT(lines(R"("dp_kind": "zero1", "shard": 2, "cp": 2, "order": "tp-cp-pp-dp")"),
              ElementsAre(HasSubstr("dp and cp are expected side by side")));
}

TEST(DataLegality, NamesWhatCannotBeOffloaded) {
  EXPECT_THAT(lines(R"("dp_kind": "fsdp", "offload": ["optimizer"])"),
              ElementsAre(HasSubstr("fsdp offloads optimizer and parameters together")));
  EXPECT_THAT(lines(R"("dp_kind": "zero3", "offload": ["parameters"])"),
              ElementsAre(HasSubstr("parameters are offloaded where the optimizer is")));
  EXPECT_THAT(lines(R"("dp_kind": "zero1", "offload": ["optimizer", "parameters"])"),
              ElementsAre(HasSubstr("dp_kind zero1 keeps the parameters whole")));
  EXPECT_THAT(lines(R"("offload": ["optimiser"])"),
              ElementsAre(HasSubstr("/plan/offload/0: \"optimiser\" is not allowed")));
  EXPECT_THAT(lines(R"("dp_kind": "zero3", "tp": 2, "sequence_parallel": true,
                       "offload": ["optimizer"])"),
              ElementsAre(HasSubstr("offload of the optimizer with dp_kind zero3 and sequence")));
}

TEST(DataLegality, ReadsWhatIsOffloaded) {
  const Job both = job(R"("dp_kind": "zero3", "offload": ["optimizer", "parameters"])");
  EXPECT_EQ(both.plan.offload, (Offload{true, true, false, 0}));
  const Job some = job(R"("offload": ["activations"], "offload_layers": 3)");
  EXPECT_EQ(some.plan.offload, (Offload{false, false, true, 3}));
  EXPECT_THAT(resolved_job_json(some, 0), HasSubstr("\"offload_layers\""));
}

TEST(DataLegality, GivesHorovodItsOwnBufferAndCycle) {
  // Since 0.21: 128 MiB and 1 ms; up to 0.19: 64 MiB and 5 ms. Gradients in fp32.
  const Job newer = job(R"("dp_kind": "horovod")");
  EXPECT_EQ(newer.plan.bucket_elements, std::int64_t{32} << 20);
  EXPECT_EQ(newer.plan.cycle_time, Time::from_microseconds(1000));
  EXPECT_TRUE(newer.plan.overlap_grad_reduce);
  const Job older = job(R"("dp_kind": "horovod", "bucket": "64 MiB", "cycle_time": "5 ms")");
  EXPECT_EQ(older.plan.bucket_elements, std::int64_t{16} << 20);
  EXPECT_EQ(older.plan.cycle_time, Time::from_microseconds(5000));
}

// PyTorch's DDP as torchtitan runs it: 1 MiB, then 25 MiB, of gradients in fp32; Megatron's own has
// no smaller first bucket.
TEST(DataLegality, GivesPyTorchsDdpItsFirstBucket) {
  const auto buckets = [](const std::string& framework, const std::string& plan) {
    const Said read = read_text(
        R"({"model": "gpt3-1.7b", "cluster": {"topology": "dgx-a100", "gpus": 16},
            "sequence_length": 1024, "global_batch": 64, "software": {"framework": ")" +
        framework + R"("}, "plan": {"dp_kind": "ddp")" + plan + "}}");
    EXPECT_THAT(read.lines, IsEmpty());
    const ParallelPlan& found = read.reading.job.value().plan;
    return std::pair(found.first_bucket_elements.value_or(0), found.bucket_elements.value_or(0));
  };
  EXPECT_EQ(buckets("torchtitan", ""), std::pair(std::int64_t{1} << 18, std::int64_t{25} << 18));
  EXPECT_EQ(buckets("torchtitan", R"(, "bucket_elements": 5000)"),
            std::pair(std::int64_t{5000}, std::int64_t{5000}));
  EXPECT_EQ(buckets("megatron-core", "").first, 0);
}

TEST(DataLegality, NamesWhatGoesWithNoVersionsOfWeights) {
  const std::string pipedream = R"("pp": 4, "schedule": "pipedream")";
  EXPECT_THAT(said(pipedream + R"(, "dp_kind": "zero1")").lines,
              testing::Contains(HasSubstr("pipedream with dp_kind zero1")));
  EXPECT_THAT(lines(pipedream), ElementsAre(HasSubstr("pipedream with tied word embeddings")));
}

}  // namespace
}  // namespace headway
