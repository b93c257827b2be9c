// Megatron's distributed optimizer: gradients are reduce-scattered in buckets, each rank updates
// its share of every bucket, and the parameters are all-gathered (Megatron-LM,
// distrib_optimizer.py; the idea is ZeRO stage 1, arXiv 1910.02054). The word table of tied
// embeddings has a bucket of its own, so that first and last stage share it out alike and may sum
// their shares. Where groups of ranks share out the state and replicate it (plan.shard), shares are
// summed over the replicas (Megatron-LM, --num-distributed-optimizer-instances; MiCS, arXiv
// 2205.00119).
#include "sim/program/data/rule.hpp"

namespace headway::distributed_optimizer {

namespace {

// Ranks that share out a bucket, and their group.
std::int64_t sharing_ranks(const ProgramBuilder& builder, const Bucket& bucket) {
  return bucket.expert ? builder.shape().edp : builder.shape().shard_ranks;
}
int sharing_group(ProgramBuilder& builder, const Bucket& bucket) {
  return bucket.expert ? builder.reducing_group(true) : builder.shard_group();
}

int shard_buffer(ProgramBuilder& builder, const std::string& name, const Bucket& bucket,
                 BufferCategory category, DataType type, std::int64_t elements,
                 std::vector<BufferRef> mirrors) {
  BufferFamily family;
  family.name = name + bucket.name;
  family.category = category;
  family.type = type;
  family.rows = elements;
  family.columns = 1;
  family.mirrors = std::move(mirrors);
  family.row_group = sharing_group(builder, bucket);
  return builder.buffer(std::move(family));
}

int add(ProgramBuilder& builder, OperationList& list, const std::string& name, const Bucket& bucket,
        CollectiveKind kind, DataType type, std::int64_t elements, std::vector<BufferRef> reads,
        std::vector<BufferRef> writes) {
  Collective collective;
  collective.kind = kind;
  collective.elements = elements;
  collective.type = type;
  const int index = list.add(name + bucket.name, collective, std::move(reads), std::move(writes),
                             Cause::kDataParallel);
  list.at(index).group = sharing_group(builder, bucket);
  list.at(index).stream = builder.stream("dp");
  return index;
}

}  // namespace

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied) {
  std::optional<std::int64_t> limit = builder.job().plan.bucket_elements;
  if (place.rank > 0 || place.chunk > 0) limit = std::nullopt;
  const std::string name =
      "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk);
  return cut_into_buckets(builder, name, tensors, limit, true, tied);
}

BucketShard make_shard(ProgramBuilder& builder, const Bucket& bucket) {
  const StepShape& shape = builder.shape();
  BucketShard shard;
  const std::int64_t ranks = sharing_ranks(builder, bucket);
  shard.elements = (bucket.elements + ranks - 1) / ranks;
  shard.gradient =
      shard_buffer(builder, "gradient_shard.", bucket, BufferCategory::kGradient, shape.gradient,
                   shard.elements, gradients_of(builder, bucket.tensors));
  shard.parameter =
      shard_buffer(builder, "parameter_shard.", bucket, BufferCategory::kCommunication, bucket.type,
                   shard.elements, parameters_of(builder, bucket.tensors));
  return shard;
}

int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard) {
  const DataType type = builder.shape().gradient;
  const std::vector<BufferRef> own = {{shard.gradient}};
  const int index = add(builder, list, "reduce.", bucket, CollectiveKind::kReduceScatter, type,
                        shard.elements * sharing_ranks(builder, bucket),
                        gradients_of(builder, bucket.tensors), own);
  if (bucket.expert || builder.replica_group() < 0) return index;
  const int sum = add(builder, list, "sum.", bucket, CollectiveKind::kAllReduce, type,
                      shard.elements, own, own);
  list.at(sum).group = builder.replica_group();
  return index;
}

int gather(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard) {
  return add(builder, list, "gather.", bucket, CollectiveKind::kAllGather, bucket.type,
             shard.elements * sharing_ranks(builder, bucket), {{shard.parameter}},
             parameters_of(builder, bucket.tensors));
}

}  // namespace headway::distributed_optimizer
