// What the kinds of data parallelism decide: how gradients are cut into buckets, how a bucket is
// reduced, and whether the optimizer works on a share of it. One file implements each kind.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/bucket.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

// Where a bucket's tensors stand: pipeline rank and model chunk (the n-th virtual stage of the
// rank).
struct ChunkPlace {
  int rank = 0;
  int chunk = 0;
};

// The share of a bucket that one data-parallel rank owns; families.
struct BucketShard {
  std::int64_t elements = 0;  // the bucket's, padded, over the ranks
  int gradient = -1;
  int parameter = -1;  // in the parameters' type
};

namespace ddp {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied);
// Adds the all-reduce of the bucket's gradients. Returns its index.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket);

}  // namespace ddp

namespace distributed_optimizer {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied);
BucketShard make_shard(ProgramBuilder& builder, const Bucket& bucket);
// Adds the reduce-scatter of the gradients into the shard, and the all-gather of the parameters out
// of it. Return their index.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard);
int gather(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard);

}  // namespace distributed_optimizer

namespace zero1 {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied);

}  // namespace zero1

}  // namespace headway
