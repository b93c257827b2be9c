// ZeRO stage 1 as DeepSpeed runs it (arXiv 1910.02054; reduce_bucket_size): the collectives and
// shares of the distributed optimizer, with buckets on every pipeline rank.
#include "sim/program/data/rule.hpp"

namespace headway::zero1 {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors, ParameterId tied) {
  const std::string name =
      "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk);
  return cut_into_buckets(builder, name, tensors, builder.job().plan.bucket_elements, true, tied);
}

}  // namespace headway::zero1
