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
  family.row_group = builder.sharing_group(bucket.expert);
  return builder.buffer(std::move(family));
}

// Where a rank alone holds the tensors, its share is all of them.
Kernel copy(KernelKind kind, std::int64_t elements, DataType type) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = elements;
  kernel.columns = 1;
  kernel.type = kernel.output = type;
  return kernel;
}

int add(ProgramBuilder& builder, OperationList& list, const std::string& name, bool expert,
        CollectiveKind kind, DataType type, std::int64_t share, std::vector<BufferRef> reads,
        std::vector<BufferRef> writes) {
  const int ranks = builder.shape().sharing_ranks(expert);
  const bool gathers = kind == CollectiveKind::kAllGather;
  Operation operation =
      copy(gathers ? KernelKind::kCastParameters : KernelKind::kSplitSequence, share, type);
  if (ranks > 1) {
    Collective collective;
    collective.kind = kind;
    collective.elements = share * ranks;
    collective.type = type;
    operation = collective;
  }
  const int index = list.add(name, std::move(operation), std::move(reads), std::move(writes),
                             Cause::kDataParallel);
  if (ranks > 1) list.at(index).group = builder.sharing_group(expert);
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
  const std::int64_t ranks = builder.shape().sharing_ranks(bucket.expert);
  shard.elements = (bucket.elements + ranks - 1) / ranks;
  shard.gradient =
      shard_buffer(builder, "gradient_shard.", bucket, BufferCategory::kGradient, shape.gradient,
                   shard.elements, gradients_of(builder, bucket.tensors));
  shard.parameter =
      shard_buffer(builder, "parameter_shard.", bucket, BufferCategory::kCommunication, bucket.type,
                   shard.elements, parameters_of(builder, bucket.tensors));
  return shard;
}

int reduce_share(ProgramBuilder& builder, OperationList& list, const std::string& name, bool expert,
                 std::int64_t share, std::vector<BufferRef> gradients, BufferRef target) {
  return add(builder, list, name, expert, CollectiveKind::kReduceScatter, builder.shape().gradient,
             share, std::move(gradients), {target});
}

int gather_share(ProgramBuilder& builder, OperationList& list, const std::string& name, bool expert,
                 DataType type, std::int64_t share, BufferRef source,
                 std::vector<BufferRef> parameters) {
  return add(builder, list, name, expert, CollectiveKind::kAllGather, type, share, {source},
             std::move(parameters));
}

int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard) {
  const std::vector<BufferRef> own = {{shard.gradient}};
  const int index =
      reduce_share(builder, list, "reduce." + bucket.name, bucket.expert, shard.elements,
                   gradients_of(builder, bucket.tensors), own.front());
  if (bucket.expert || builder.replica_group() < 0) return index;
  Collective sum;
  sum.elements = shard.elements;
  sum.type = builder.shape().gradient;
  list.add("sum." + bucket.name, sum, own, own, Cause::kDataParallel);
  list.last().stream = builder.stream("dp");
  list.last().group = builder.replica_group();
  return index;
}

int gather(ProgramBuilder& builder, OperationList& list, const Bucket& bucket,
           const BucketShard& shard) {
  return gather_share(builder, list, "gather." + bucket.name, bucket.expert, bucket.type,
                      shard.elements, {shard.parameter}, parameters_of(builder, bucket.tensors));
}

}  // namespace headway::distributed_optimizer
