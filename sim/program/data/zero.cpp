// ZeRO stages 1 and 2 as DeepSpeed runs them (arXiv 1910.02054; reduce_bucket_size): the
// collectives and shares of the distributed optimizer, with buckets on every pipeline rank. Stage 2
// keeps no whole gradients, so it reduces those of every micro-batch (stage_1_and_2.py,
// reduce_ipg_grads). Stage 3 is data/fsdp's.
#include "sim/program/data/rule.hpp"

namespace headway::zero1 {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied) {
  const std::string name =
      "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk);
  return cut_into_buckets(builder, name, tensors, builder.job().plan.bucket_elements, true, tied);
}

}  // namespace headway::zero1

namespace headway::zero2 {

int make_reduced(ProgramBuilder& builder, const Bucket& bucket, const BucketShard& shard) {
  BufferFamily family;
  family.name = "reduced_shard." + bucket.name;
  family.category = BufferCategory::kCommunication;
  family.type = builder.shape().gradient;
  family.rows = shard.elements;
  family.columns = 1;
  return builder.buffer(std::move(family));
}

int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard, int reduced, bool adds) {
  BucketShard target = shard;
  if (adds) target.gradient = reduced;
  const int index = distributed_optimizer::reduce(builder, list, bucket, target);
  const int stream = builder.job().plan.overlap_grad_reduce ? builder.stream("dp") : 0;
  list.at(index).stream = stream;
  if (!adds) return index;
  Kernel add;
  add.kind = KernelKind::kGradientAccumulate;
  add.rows = shard.elements;
  add.columns = 1;
  add.type = add.output = builder.shape().gradient;
  list.add("add." + bucket.name, add, {{shard.gradient}, {reduced}}, {{shard.gradient}},
           Cause::kDataParallel);
  list.last().stream = stream;
  return index;
}

}  // namespace headway::zero2
