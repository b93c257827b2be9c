#include "sim/program/bucket.hpp"

#include <gtest/gtest.h>

#include "sim/program/layer.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

std::string names(const ProgramBuilder& builder, const std::vector<Tensor>& tensors,
                  const Program& program) {
  std::string text;
  for (const Tensor& tensor : tensors) {
    const int family = builder.parameter(tensor.parameter).family;
    text += (text.empty() ? "" : " ") + program.buffers[static_cast<std::size_t>(family)].name;
    text += "[" + std::to_string(tensor.layer) + "]";
  }
  return text;
}

class BucketTest : public testing::Test {
 protected:
  BucketTest() : job_(small_llama()), builder_(job_), layer_(builder_) {
    fired_ =
        firing_order(builder_, {{layer_.backward(1).front(), 1}, {layer_.backward(0).front(), 0}});
  }
  std::string names_of(const Bucket& bucket) {
    return names(builder_, bucket.tensors, builder_.program());
  }

  Job job_;
  ProgramBuilder builder_;
  Layer layer_;
  std::vector<FiredTensor> fired_;
};

TEST_F(BucketTest, TensorsFireInBackwardOrder) {
  std::vector<Tensor> tensors;
  for (const FiredTensor& fired : fired_) tensors.push_back(fired.tensor);
  EXPECT_EQ(names(builder_, tensors, builder_.program()),
            "mlp.second_weight[1] mlp.first_weight[1] mlp.norm_weight[1] "
            "attention.projection_weight[1] attention.qkv_weight[1] attention.norm_weight[1] "
            "mlp.second_weight[0] mlp.first_weight[0] mlp.norm_weight[0] "
            "attention.projection_weight[0] attention.qkv_weight[0] attention.norm_weight[0]");
  EXPECT_EQ(fired_[5].step, 0);
  EXPECT_EQ(fired_[6].step, 1);
}

TEST_F(BucketTest, ABucketIsClosedByTheTensorThatFillsIt) {
  // second 16 x 64 = 1024, first 128 x 16 = 2048, norm 16, projection 256, qkv 32 x 16 = 512,
  // norm 16.
  const std::vector<Bucket> buckets =
      cut_into_buckets(builder_, "rank0.chunk0", fired_, 3000, false, kNoParameter);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(names_of(buckets[0]), "mlp.second_weight[1] mlp.first_weight[1]");
  EXPECT_EQ(buckets[0].elements, 3072);
  EXPECT_EQ(buckets[0].step, 0);
  EXPECT_EQ(names_of(buckets[1]),
            "mlp.norm_weight[1] attention.projection_weight[1] attention.qkv_weight[1] "
            "attention.norm_weight[1] mlp.second_weight[0] mlp.first_weight[0]");
  EXPECT_EQ(buckets[1].elements, 16 + 256 + 512 + 16 + 3072);
  EXPECT_EQ(buckets[1].step, 1);
  EXPECT_EQ(buckets[2].elements, 16 + 256 + 512 + 16);
  EXPECT_EQ(buckets[2].name, "rank0.chunk0.bucket2");
}

// PyTorch's DDP, once it has rebuilt its buckets in the order in which gradients come: 1 MiB, then
// 25 MiB each (torch/csrc/distributed/c10d/reducer.hpp; compute_bucket_assignment_by_size closes a
// bucket with the tensor that brings it to its limit).
TEST_F(BucketTest, TheFirstMayBeSmaller) {
  const std::vector<Bucket> buckets =
      cut_into_buckets(builder_, "rank0.chunk0", fired_, 3000, false, kNoParameter, 1000);
  // 1024 | 2048 + 16 + 256 + 512 + 16 + 1024 | 2048 + 16 + 256 + 512 + 16, left open.
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(names_of(buckets[0]), "mlp.second_weight[1]");
  EXPECT_EQ(names_of(buckets[1]),
            "mlp.first_weight[1] mlp.norm_weight[1] attention.projection_weight[1] "
            "attention.qkv_weight[1] attention.norm_weight[1] mlp.second_weight[0]");
  EXPECT_EQ(buckets[2].elements, 2048 + 16 + 256 + 512 + 16);
}

TEST_F(BucketTest, WithoutALimitThereIsOne) {
  const std::vector<Bucket> buckets =
      cut_into_buckets(builder_, "rank0.chunk0", fired_, std::nullopt, false, kNoParameter);
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].elements, 2 * (3072 + 16 + 256 + 512 + 16));
  EXPECT_EQ(buckets[0].tensors.size(), fired_.size());
}

TEST(Bucket, ReplicatedAndShardedTensorsAreKeptApartWhereAsked) {
  const Job job = spread(small_llama(), 2, 1, 1);
  ProgramBuilder builder(job);
  const Layer layer(builder);
  const std::vector<FiredTensor> fired = firing_order(builder, {{layer.backward(0).front(), 0}});
  const std::vector<Bucket> buckets =
      cut_into_buckets(builder, "b", fired, std::nullopt, true, kNoParameter);
  ASSERT_EQ(buckets.size(), 2u);
  for (const Bucket& bucket : buckets) {
    // Both norms, whole; or half of the matrices.
    EXPECT_EQ(bucket.elements, bucket.copies == 1 ? (3072 + 256 + 512) / 2 : 2 * 16);
  }
}

}  // namespace
}  // namespace headway
