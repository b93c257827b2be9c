// Distributed data parallelism: every rank holds everything, gradients are all-reduced in buckets.
// Megatron-LM cuts buckets on the first pipeline rank's first chunk only: the other ranks finish
// their backward passes earlier and wait for it anyway (distributed_data_parallel.py). PyTorch's
// DDP cuts them on every rank, in the order in which gradients came in its first step, the first
// one smaller (reducer.hpp: kDefaultFirstBucketBytes 1 MiB, kDefaultBucketBytesCap 25 MiB).
#include "sim/program/data/rule.hpp"

namespace headway::ddp {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied, bool apart) {
  std::optional<std::int64_t> limit = builder.job().plan.bucket_elements;
  const std::optional<std::int64_t> first = builder.job().plan.first_bucket_elements;
  if (!first && (place.rank > 0 || place.chunk > 0)) limit = std::nullopt;
  const std::string name =
      "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk);
  return cut_into_buckets(builder, name, tensors, limit, apart, tied, first);
}

int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket) {
  Collective collective;
  collective.kind = CollectiveKind::kAllReduce;
  collective.elements = bucket.elements;
  collective.type = builder.shape().gradient;
  const std::vector<BufferRef> gradients = gradients_of(builder, bucket.tensors);
  const int index =
      list.add("reduce." + bucket.name, collective, gradients, gradients, Cause::kDataParallel);
  list.at(index).group = builder.reducing_group(bucket.expert);
  list.at(index).stream = builder.stream("dp");
  return index;
}

}  // namespace headway::ddp
