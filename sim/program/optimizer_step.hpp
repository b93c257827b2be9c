// What a pipeline rank does once per step: gradients are cleared, reduced over the data-parallel
// ranks (and those of replicated parameters over the tensor-parallel group, and those of tied
// embeddings over first and last stage), their norm is taken over the whole model, they are
// clipped, and the optimizer updates the parameters, or this rank's share of them. A post-validated
// step (Qi et al., arXiv 2401.10241, section 4) does not wait for the whole norm: each rank adds
// its share to what the rank before it sends, updates, and goes on; in its next step the whole norm
// comes back from the last rank and is validated. What is lowered is the usual case, in which
// nothing had to be clipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/program/bucket.hpp"
#include "sim/program/data/fsdp.hpp"
#include "sim/program/data/rule.hpp"
#include "sim/program/matrix_update.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

class OptimizerStep {
 public:
  // `chunks`: for each virtual stage of the rank, its tensors in firing order. `tied`: the word
  // table where two stages hold it; its gradient counts in the norm only where `owns_tied`. `norm`:
  // the squared norm of the whole gradient. `loss`: the sum of the losses on the last stage, else
  // -1. `units`: where the parameters are sharded, else null; it outlives the step.
  OptimizerStep(ProgramBuilder& builder, int rank,
                const std::vector<std::vector<FiredTensor>>& chunks, ParameterId tied,
                bool owns_tied, int norm, int loss, ShardedUnits* units = nullptr);

  // The buckets of a chunk, and the step that reduces one of them: once it is complete (the port is
  // released), or after all that the compute stream has been given. With `adds` it is added to what
  // earlier micro-batches have brought.
  const std::vector<std::size_t>& buckets_of(int chunk) const {
    return chunk_buckets_[static_cast<std::size_t>(chunk)];
  }
  const Bucket& bucket(std::size_t index) const { return buckets_[index]; }
  Step reduce(std::size_t bucket, PortRef complete, bool adds = false);
  Step reduce(std::size_t bucket);
  bool reduces() const { return leaves() || builder_.shape().reduces_gradients(); }
  // Whether anything is reduced, or taken to the host, of a bucket.
  bool reduces(std::size_t bucket) const {
    return leaves() || shared(buckets_[bucket]) ||
           builder_.shape().reducing_ranks(buckets_[bucket].expert) > 1;
  }
  // Whether gradients leave their buffers on a single rank too: to the host, or to be rounded as
  // the ranks of which this is the reference run round theirs.
  bool leaves() const { return offloaded_ || builder_.job().plan.rounded_ranks > 0; }
  // Another rank holds the same parameters and counts them in the norm.
  void leave_norm_to_the_other_copy() { counts_in_norm_ = false; }

  // Templates; -1 where there is nothing to do.
  int begin();         // host work of the step, cleared gradients
  int gather_first();  // parameters gathered at the step's beginning, where that is how it is done
  int finish();        // reductions over other groups than the data-parallel one
  int update();
  // Behind that, of tensors that are updated as matrices: each has a step of its own.
  std::vector<Step> update_matrices();
  // Where there are versions of the weights: the template that makes one of those that an update
  // reaches so many mini-batches late (in a pipeline 0: of all); -1 where there are none. And the
  // one that clears the gradients of a mini-batch.
  int version(std::int64_t delay);
  int clear();
  // Of a post-validated step: the norm of the step before comes back from the next rank and goes on
  // to the one before; -1 for the last rank, which has it, alone.
  int validate();

  // Released when the parameters of a chunk's bucket have arrived (gather_first).
  struct Gathered {
    std::size_t bucket = 0;
    PortRef port;
  };
  const std::vector<Gathered>& gathered(int chunk) const {
    return gathered_[static_cast<std::size_t>(chunk)];
  }
  // Optimizer state and accumulators that live throughout.
  const std::vector<BufferRef>& persistent() const { return persistent_; }

 private:
  // Tensors updated by one kernel.
  struct Group {
    std::string name;
    std::vector<Tensor> tensors;
    std::size_t bucket = 0;  // where the optimizer works on shares
    bool shared = false;     // whether on a share of this one
    std::int64_t elements = 0;
    DataType type = DataType::kBf16;  // of the parameters
    std::vector<BufferRef> masters;
    int first_moment = -1, second_moment = -1;
    std::int64_t delay = 0;
  };
  // Gradients that equally many ranks hold.
  struct NormPart {
    std::string name;
    int copies = 1;
    std::vector<BufferRef> gradients;
    std::int64_t elements = 0;
  };

  void make_buckets(int rank, const std::vector<std::vector<FiredTensor>>& chunks);
  void make_groups(int rank);
  void make_matrices();
  void make_whole_group(int rank, DataType type, const char* suffix);
  void make_delayed_groups(int rank);
  std::int64_t delay_of(const Tensor& tensor) const;
  void zero_gradients(OperationList& list) const;
  void make_state(Group& group, int row_group);
  bool gathers_first() const;
  bool keeps_master(const Group& group) const;
  // Whether the optimizer works on a share of the bucket, over the ranks that reduce it. Where
  // parameters live in shares, or every micro-batch begins new gradients, that of a single rank is
  // one too.
  bool shared(const Bucket& bucket) const {
    const bool always =
        units_ != nullptr ||
        (shape_.fresh_gradients && builder_.job().plan.dp_kind == DataParallelKind::kZero2);
    return shared_ && (always || shape_.reducing_ranks(bucket.expert) > 1);
  }
  Step reduce(std::size_t bucket, const std::vector<PortRef>& awaits, const std::vector<int>& joins,
              bool adds);
  void make_unit_group(int rank);
  BufferRef shard_gradient(std::size_t bucket) const {
    return {shards_[bucket].gradient, buckets_[bucket].layer};
  }
  // Where the optimizer is offloaded.
  BufferRef host_gradient(std::size_t bucket) const {
    return {shards_[bucket].host_gradient, buckets_[bucket].layer};
  }
  std::int64_t own_elements(std::size_t bucket) const {
    return units_ != nullptr || shared(buckets_[bucket]) ? shards_[bucket].elements
                                                         : buckets_[bucket].elements;
  }
  // Whether its gradient is not complete before the step ends.
  static bool late(const Bucket& bucket) { return !bucket.partial_over.empty() || bucket.tied; }
  void make_host_buffers(std::size_t bucket);
  void take_down(OperationList& list, std::size_t bucket, std::vector<int> after);
  void bring_up(OperationList& list, std::size_t bucket);
  std::vector<BufferRef> device_parameters(std::size_t bucket) const;
  DataType gradient_type() const;
  void sum_partial(OperationList& list);
  void sum_partial(OperationList& list, const std::string& axis, const std::string& name);
  void sum_tied(OperationList& list);
  void norm(OperationList& list);
  void clip(OperationList& list);
  void pass_on_norm(OperationList& list);
  int message(OperationList& list, const char* name, int buffer, int offset);
  bool post_validated() const { return !builder_.job().plan.synchronous_optimizer; }
  std::vector<NormPart> norm_parts() const;
  void update(OperationList& list, const Group& group);
  void update_on_host(OperationList& list);
  void cast(OperationList& list, const Group& group);
  void gather(OperationList& list, const Group& group);
  void loss(OperationList& list);
  Kernel kernel(KernelKind kind, std::int64_t elements, DataType type, DataType output) const;
  std::vector<BufferRef> gradients(const Group& group) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  std::string rank_name_;
  int rank_ = 0;
  ParameterId tied_ = kNoParameter;
  bool owns_tied_ = true, counts_in_norm_ = true;
  int norm_ = -1, loss_ = -1;
  // Post-validated: the norm up to this rank's share, and the whole one of the step before.
  int partial_norm_ = -1, validated_norm_ = -1;
  bool shared_ = false;     // the optimizer works on shares of what is reduced
  bool offloaded_ = false;  // its state is the host's, and its work
  ShardedUnits* units_ = nullptr;
  std::vector<Bucket> buckets_;
  std::vector<BucketShard> shards_;
  std::vector<int> reduced_;  // stage 2: of each bucket, a micro-batch's share; -1: none yet
  std::vector<std::vector<std::size_t>> chunk_buckets_;
  std::vector<Group> groups_;
  std::optional<MatrixUpdate> matrices_;
  std::vector<std::vector<Gathered>> gathered_;
  std::vector<BufferRef> persistent_;
};

}  // namespace headway
