// What the kinds of data parallelism decide: how gradients are cut into buckets, how a bucket is
// reduced, and whether the optimizer works on a share of it. One file implements each kind.
#pragma once

#include <cstdint>
#include <string>
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
  // Where the parameters themselves are shared out (data/fsdp).
  int master = -1;
  bool parameter_lives = false;  // throughout, rather than from its conversion to the gather
  // Where the optimizer is offloaded (data/offload): what has come down, and what goes up next.
  int host_gradient = -1, host_parameter = -1;
};

namespace ddp {

// With `apart` tensors of different kind never share one (cut_into_buckets).
std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied,
                            bool apart = false);
// Adds the all-reduce of the bucket's gradients. Returns its index.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket);

}  // namespace ddp

namespace horovod {

// Runs of tensors in firing order that fit into the fusion buffer, on every pipeline rank.
std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors);
// Adds the wait for the cycle and the all-reduce through the fusion buffer. Returns the index of
// the wait.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket);

}  // namespace horovod

namespace distributed_optimizer {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied);
BucketShard make_shard(ProgramBuilder& builder, const Bucket& bucket);
// Adds the reduce-scatter of the gradients into a share of so many elements, or the all-gather of
// the parameters out of one, of experts or of all else; copies, where no other rank holds the same
// tensors. Return its index.
int reduce_share(ProgramBuilder& builder, OperationList& list, const std::string& name, bool expert,
                 std::int64_t share, std::vector<BufferRef> gradients, BufferRef target);
int gather_share(ProgramBuilder& builder, OperationList& list, const std::string& name, bool expert,
                 DataType type, std::int64_t share, BufferRef source,
                 std::vector<BufferRef> parameters);
// The same of a bucket: adds the reduce-scatter of the gradients into the shard, and the all-gather
// of the parameters out of it. Return their index.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard);
int gather(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard);

}  // namespace distributed_optimizer

// ZeRO stage 2: the shares of stage 1, into which every micro-batch's gradients are reduced.
namespace zero2 {

// Adds the reduction of a micro-batch's gradients: into the shard, or, with `adds`, into `reduced`
// and from there into the shard. Returns its index.
int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard, int reduced, bool adds);
int make_reduced(ProgramBuilder& builder, const Bucket& bucket, const BucketShard& shard);

}  // namespace zero2

namespace zero1 {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied);

}  // namespace zero1

}  // namespace headway
