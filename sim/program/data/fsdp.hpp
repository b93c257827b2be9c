// Parameters that live in shares: PyTorch's fully sharded data parallelism (Zhao et al., arXiv
// 2304.11277) and stage 3 of ZeRO (Rajbhandari et al., arXiv 1910.02054). The tensors of a layer,
// and those outside the layers, are units. A unit's parameters are gathered before they are used
// and dropped afterwards; its gradients are reduced into shares as soon as the backward pass has
// completed them. What is alive at once follows from where the gathers are issued. A layer's
// experts are shared out over the ranks that hold the same ones, and gathered with the rest of it;
// where no other rank holds them, they are converted and copied as they would be gathered.
//
// Order. A gather that is issued ahead waits for what the compute stream has been given until then,
// and so holds at most the unit in use and `prefetch` more: what PyTorch's limit of two gathers in
// flight does (_FreeEventQueue). Gathers and reductions share one stream, as they share one NCCL
// communicator. Where groups of ranks share out the parameters and replicate them (HSDP), what has
// been reduced within a group is summed over the replicas behind it.
//
// Limitations: a unit's gradients travel in one message also where DeepSpeed's reduce_bucket_size
// would take several layers, and parameters below its stage3_param_persistence_threshold are
// gathered too; the copies between FSDP2's flat buffers and its tensors take no time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/bucket.hpp"
#include "sim/program/data/rule.hpp"
#include "sim/program/data/zero_plus_plus.hpp"
#include "sim/program/program_builder.hpp"

namespace headway {

class ShardedUnits {
 public:
  // REQUIRES: the plan shards the parameters (StepShape::sharded_parameters).
  explicit ShardedUnits(ProgramBuilder& builder);

  // Forgets the units of the pipeline rank before; what they look like stays known.
  void begin_rank();
  // The units of a chunk as buckets, in the order in which the backward pass completes them.
  // Tensors that are reduced differently (see Bucket) are buckets of their own within a unit.
  std::vector<Bucket> buckets(ChunkPlace place, const std::vector<FiredTensor>& tensors,
                              ParameterId tied);

  // The shares of a bucket's tensors: where it stands, its families are per layer.
  const BucketShard& shard(const Bucket& bucket) const { return form(bucket).shard; }
  DataType gradient_type() const { return gradient_type_; }

  // Where a pass stands: parameters are gathered for each forward pass, and again for the backward
  // pass those that did not stay; or, over a pipeline, once per step.
  enum class Phase { kForward, kBackward, kStep };
  // The steps with the gathers that their parameters need. REQUIRES: a micro-batch's forward pass
  // comes before its backward pass.
  std::vector<Step> gathering(const std::vector<Step>& steps, Phase phase);

  // Reduces the bucket's gradients into its share, when `awaits` are released and the streams
  // `joins` have come here; with `adds` the share holds those of earlier micro-batches.
  Step reduce(const Bucket& bucket, const std::vector<PortRef>& awaits,
              const std::vector<int>& joins, bool adds);

  // Of a reference run of ZeRO++: whose micro-batch is reduced next, of the ranks that share out
  // the parameters there.
  void at_position(std::int64_t position) { position_ = position; }

 private:
  // Buckets that differ in nothing but their layer share families and templates.
  struct Form {
    std::string name;
    bool per_layer = false;
    std::vector<Tensor> tensors;  // layers relative
    int copies = 1;
    std::string partial_over;
    bool tied = false, expert = false;
    DataType type = DataType::kBf16;  // of the whole parameters
    BucketShard shard;
    int reduced = -1;  // a micro-batch's share before it is added or converted
    int up = -1;       // a share of parameters that has come from the host
  };
  struct Unit {
    std::string name;
    int layer = 0;
    std::vector<int> forms;
    std::int64_t elements = 0;
    bool stays = false;  // from the forward to the backward pass
  };
  struct Gather {
    int unit = 0;
    std::size_t needed = 0;    // the step that needs it
    std::size_t earliest = 0;  // the first step after which nothing uses what it replaces
    PortRef port;
  };

  const Form& form(const Bucket& bucket) const {
    return forms_[static_cast<std::size_t>(bucket.form)];
  }
  std::string unit_name(const Tensor& tensor) const;
  int find_or_make_form(const std::string& name, const Bucket& bucket);
  BucketShard make_shard(const Form& form) const;
  int share(const std::string& name, const Form& form, BufferCategory category, DataType type,
            InitialValue initial, bool on_host = false) const;
  int reduced_of(Form& form);
  // Adds what brings a share that lives on the host to the device. Returns the device's.
  BufferRef bring_up(OperationList& list, const Form& form) const;
  std::set<int> units_read(const Step& step) const;
  std::vector<Gather> gathers(const std::vector<Step>& steps, Phase phase);
  std::size_t issued_before(const std::vector<Gather>& gathers, std::size_t index) const;
  Step gather(const Unit& unit, const PortRef& port, Phase phase);
  void gather(OperationList& list, const Form& form);
  void reduce_into(OperationList& list, const Form& form, BufferRef target, int stream);
  RoundedUnit rounded(const Form& form) const;
  std::vector<BufferRef> refs(const Form& form, bool gradients) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  DataType gradient_type_ = DataType::kFp32;  // of the shares
  std::vector<Form> forms_;
  std::map<int, ParameterId> parameter_of_;  // by family
  // Of the rank in hand.
  std::vector<Unit> units_;
  std::map<std::pair<ParameterId, int>, int> unit_of_;  // by tensor
  std::set<int> stayed_;                                // gathered and not dropped since
  // Templates by what they do.
  struct GatherKey {
    std::vector<int> forms;
    int port = 0;
    bool joins = false;
    friend auto operator<=>(const GatherKey&, const GatherKey&) = default;
  };
  std::map<GatherKey, int> gather_templates_;
  struct ReduceKey {
    int form = 0;
    std::vector<std::pair<int, int>> awaits;
    std::vector<int> joins;
    bool adds = false;
    std::int64_t position = 0;
    friend auto operator<=>(const ReduceKey&, const ReduceKey&) = default;
  };
  std::map<ReduceKey, int> reduce_templates_;
  std::optional<ZeroPlusPlus> rounding_;  // where what travels is rounded
  std::int64_t position_ = 0;
};

}  // namespace headway
