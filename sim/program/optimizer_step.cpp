#include "sim/program/optimizer_step.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sim/plan/tensor_grid.hpp"
#include "sim/program/data/offload.hpp"
#include "sim/program/weight_versions.hpp"

namespace headway {

OptimizerStep::OptimizerStep(ProgramBuilder& builder, int rank,
                             const std::vector<std::vector<FiredTensor>>& chunks, ParameterId tied,
                             bool owns_tied, int norm, int loss, ShardedUnits* units)
    : builder_(builder),
      shape_(builder.shape()),
      rank_name_("rank" + std::to_string(rank)),
      rank_(rank),
      tied_(tied),
      owns_tied_(owns_tied),
      norm_(norm),
      loss_(loss),
      units_(units) {
  const DataParallelKind kind = builder_.job().plan.dp_kind;
  shared_ = shape_.reduces_gradients() && kind != DataParallelKind::kDdp &&
            kind != DataParallelKind::kHorovod;
  offloaded_ = builder_.job().plan.offload.optimizer;
  make_buckets(rank, chunks);
  make_groups(rank);
  persistent_.push_back({norm_});
  if (loss_ >= 0) persistent_.push_back({loss_});
  if (!post_validated()) return;
  const auto scalar = [&](const char* name, InitialValue initial) {
    const int family = builder_.scalar(name);
    builder_.program().buffers[static_cast<std::size_t>(family)].initial = initial;
    return family;
  };
  partial_norm_ = scalar("norm.partial", InitialValue::kUndefined);
  validated_norm_ = scalar("norm.validated", InitialValue::kZero);
  if (rank_ == shape_.pp - 1) persistent_.push_back({validated_norm_});
}

void OptimizerStep::make_buckets(int rank, const std::vector<std::vector<FiredTensor>>& chunks) {
  if (units_ != nullptr) units_->begin_rank();
  const auto cut = [&](ChunkPlace place, const std::vector<FiredTensor>& tensors) {
    if (units_ != nullptr) return units_->buckets(place, tensors, tied_);
    switch (builder_.job().plan.dp_kind) {
      case DataParallelKind::kZero1:
      case DataParallelKind::kZero2:
        return zero1::buckets(builder_, place, tensors, tied_);
      case DataParallelKind::kHorovod:
        return horovod::buckets(builder_, place, tensors);
      case DataParallelKind::kDistributedOptimizer:
        return distributed_optimizer::buckets(builder_, place, tensors, tied_);
      default:
        return ddp::buckets(builder_, place, tensors, tied_, offloaded_);
    }
  };
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    chunk_buckets_.emplace_back();
    gathered_.emplace_back();
    for (Bucket& bucket : cut({rank, static_cast<int>(c)}, chunks[c])) {
      const std::size_t index = buckets_.size();
      chunk_buckets_.back().push_back(index);
      if (gathers_first() && shared(bucket)) {
        gathered_.back().push_back(
            {index, {builder_.port({"gathered." + bucket.name, false, false})}});
      }
      shards_.emplace_back();
      if (units_ != nullptr) {
        shards_.back() = units_->shard(bucket);
      } else if (shared(bucket)) {
        shards_.back() = distributed_optimizer::make_shard(builder_, bucket);
      }
      buckets_.push_back(std::move(bucket));
      if (offloaded_ && units_ == nullptr) make_host_buffers(index);
    }
  }
}

// What comes down of a bucket's gradients, and its parameters before they go up.
void OptimizerStep::make_host_buffers(std::size_t bucket) {
  const Bucket& of = buckets_[bucket];
  BufferFamily family;
  family.rows = own_elements(bucket);
  family.columns = 1;
  family.on_host = true;
  family.row_group = shared(of) ? builder_.sharing_group(of.expert) : -1;
  const auto make = [&](const char* name, BufferCategory category, DataType type,
                        std::vector<BufferRef> mirrors) {
    family.name = name + of.name;
    family.category = category;
    family.type = type;
    family.mirrors = std::move(mirrors);
    return builder_.buffer(family);
  };
  shards_[bucket].host_gradient = make("host_gradient.", BufferCategory::kGradient, shape_.gradient,
                                       gradients_of(builder_, of.tensors));
  shards_[bucket].host_parameter = make("host_parameter.", BufferCategory::kCommunication, of.type,
                                        parameters_of(builder_, of.tensors));
}

// All units are updated by one kernel over many tensors, as PyTorch's optimizers run.
void OptimizerStep::make_unit_group(int rank) {
  Group group;
  group.name = "rank" + std::to_string(rank);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const BucketShard& shard = shards_[b];
    const int layer = buckets_[b].layer;
    group.elements += shard.elements;
    if (shard.parameter_lives) persistent_.push_back({shard.parameter, layer});
    if (shard.master >= 0) persistent_.push_back({shard.master, layer});
    group.masters.push_back({shard.master >= 0 ? shard.master : shard.parameter, layer});
  }
  if (buckets_.empty()) return;
  make_state(group, -1);
  groups_.push_back(std::move(group));
}

void OptimizerStep::make_groups(int rank) {
  if (units_ != nullptr) return make_unit_group(rank);
  if (keeps_weight_versions(builder_.job().plan)) return make_delayed_groups(rank);
  if (shared_ || offloaded_) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      Group group;
      group.name = buckets_[b].name;
      group.tensors = buckets_[b].tensors;
      group.bucket = b;
      group.type = buckets_[b].type;
      group.shared = shared(buckets_[b]);
      group.elements = own_elements(b);
      make_state(group, group.shared ? builder_.sharing_group(buckets_[b].expert) : -1);
      groups_.push_back(std::move(group));
    }
    return;
  }
  make_matrices();
  make_whole_group(rank, shape_.storage, "");
  if (shape_.weight != shape_.storage) make_whole_group(rank, shape_.weight, ".narrow");
}

void OptimizerStep::make_matrices() {
  std::vector<Tensor> tensors;
  for (const Bucket& bucket : buckets_) {
    for (const Tensor& tensor : bucket.tensors) {
      if (updated_as_matrix(builder_, tensor.parameter)) tensors.push_back(tensor);
    }
  }
  if (tensors.empty()) return;
  matrices_.emplace(builder_, rank_name_, std::move(tensors));
  persistent_.insert(persistent_.end(), matrices_->persistent().begin(),
                     matrices_->persistent().end());
}

std::vector<Step> OptimizerStep::update_matrices() {
  return matrices_ ? matrices_->steps() : std::vector<Step>{};
}

// All parameters of one type, but those that are updated as matrices.
void OptimizerStep::make_whole_group(int rank, DataType type, const char* suffix) {
  Group group;
  group.name = "rank" + std::to_string(rank) + suffix;
  group.type = type;
  for (const Bucket& bucket : buckets_) {
    for (const Tensor& tensor : bucket.tensors) {
      if (builder_.parameter_type(tensor.parameter) != type) continue;
      if (updated_as_matrix(builder_, tensor.parameter)) continue;
      group.tensors.push_back(tensor);
      group.elements += builder_.parameter(tensor.parameter).elements();
    }
  }
  if (group.tensors.empty()) return;
  make_state(group, -1);
  groups_.push_back(std::move(group));
}

// What is in no layer belongs to the first stage (the embedding) or the last (the head).
std::int64_t OptimizerStep::delay_of(const Tensor& tensor) const {
  const std::vector<std::int64_t>& delays = builder_.job().plan.weight_delays;
  if (delays.empty()) return 0;
  const int family = builder_.parameter(tensor.parameter).family;
  if (builder_.per_layer(family)) return delays[static_cast<std::size_t>(tensor.layer)];
  const BufferFamily& buffer = builder_.program().buffers[static_cast<std::size_t>(family)];
  return buffer.name.starts_with("embedding") ? delays.front() : delays.back();
}

// Parameters of equal delay, in the order of the buckets.
void OptimizerStep::make_delayed_groups(int rank) {
  for (const Bucket& bucket : buckets_) {
    for (const Tensor& tensor : bucket.tensors) {
      const std::int64_t delay = delay_of(tensor);
      auto group = std::find_if(groups_.begin(), groups_.end(),
                                [&](const Group& other) { return other.delay == delay; });
      if (group == groups_.end()) {
        groups_.emplace_back();
        group = groups_.end() - 1;
        group->name = "rank" + std::to_string(rank) + ".late" + std::to_string(delay);
        group->type = shape_.storage;
        group->delay = delay;
      }
      group->tensors.push_back(tensor);
      group->elements += builder_.parameter(tensor.parameter).elements();
    }
  }
  for (Group& group : groups_) make_state(group, -1);
}

int OptimizerStep::version(std::int64_t delay) {
  OperationList list("step.version." + rank_name_ + ".late" + std::to_string(delay));
  for (const Group& group : groups_) {
    if (group.delay == delay) cast(list, group);
  }
  return list.empty() ? -1 : builder_.add_template(list);
}

int OptimizerStep::clear() {
  OperationList list("step.clear." + rank_name_);
  zero_gradients(list);
  return builder_.add_template(list);
}

void OptimizerStep::make_state(Group& group, int row_group) {
  BufferFamily family;
  family.category = BufferCategory::kOptimizer;
  family.on_host = offloaded_;
  family.rows = group.elements;
  family.columns = 1;
  family.mirrors = parameters_of(builder_, group.tensors);
  family.row_group = row_group;
  const auto make = [&](const char* name, DataType type, InitialValue initial) {
    family.name = name + group.name;
    family.type = type;
    family.initial = initial;
    const int index = builder_.buffer(family);
    persistent_.push_back({index});
    return index;
  };
  if (keeps_master(group) && units_ == nullptr) {
    group.masters = {{make("master.", shape_.masters ? DataType::kFp32 : shape_.storage,
                           InitialValue::kMirror)}};
  }
  const std::string& optimizer = builder_.job().plan.optimizer;
  if (optimizer == "sgd") return;
  group.first_moment = make("first_moment.", shape_.moment, InitialValue::kZero);
  if (optimizer != "lion") {
    group.second_moment = make("second_moment.", shape_.moment, InitialValue::kZero);
  }
}

bool OptimizerStep::gathers_first() const {
  return shared_ && units_ == nullptr && builder_.job().plan.overlap_param_gather;
}

// Where the gather waits for the next step, the updated share must live until then.
bool OptimizerStep::keeps_master(const Group& group) const {
  if (keeps_weight_versions(builder_.job().plan)) return true;
  return shape_.masters || offloaded_ || (gathers_first() && group.shared);
}

Kernel OptimizerStep::kernel(KernelKind kind, std::int64_t elements, DataType type,
                             DataType output) const {
  Kernel result;
  result.kind = kind;
  result.rows = elements;
  result.columns = 1;
  result.type = type;
  result.output = output;
  return result;
}

std::vector<BufferRef> OptimizerStep::gradients(const Group& group) const {
  if (units_ != nullptr) {
    std::vector<BufferRef> own;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      own.push_back(offloaded_ ? host_gradient(b) : shard_gradient(b));
    }
    return own;
  }
  if (offloaded_) return {host_gradient(group.bucket)};
  if (group.shared) return {shard_gradient(group.bucket)};
  return gradients_of(builder_, group.tensors);
}

// -- Once at the beginning
// --------------------------------------------------------------------------

int OptimizerStep::begin() {
  OperationList list("step.begin." + rank_name_);
  list.add("host", HostWork{HostKind::kStep}, {}, {}, Cause::kHost);
  if (!shape_.fresh_gradients) zero_gradients(list);
  if (loss_ >= 0) {
    list.add("loss.zero", kernel(KernelKind::kZero, 1, DataType::kFp64, DataType::kFp64), {},
             {{loss_}});
  }
  return builder_.add_template(list);
}

void OptimizerStep::zero_gradients(OperationList& list) const {
  std::vector<BufferRef> cleared;
  std::int64_t elements = 0;
  for (const Bucket& bucket : buckets_) {
    const std::vector<BufferRef> gradients = gradients_of(builder_, bucket.tensors);
    cleared.insert(cleared.end(), gradients.begin(), gradients.end());
    elements += bucket.elements;
  }
  if (cleared.empty()) return;
  list.add("gradients.zero", kernel(KernelKind::kZero, elements, shape_.gradient, shape_.gradient),
           {}, std::move(cleared), Cause::kOptimizer);
}

int OptimizerStep::gather_first() {
  if (!gathers_first()) return -1;
  OperationList list("step.gather." + rank_name_);
  for (const std::vector<Gathered>& chunk : gathered_) {
    for (const Gathered& gathered : chunk) {
      cast(list, groups_[gathered.bucket]);
      gather(list, groups_[gathered.bucket]);
      list.last().releases = {gathered.port};
    }
  }
  return list.empty() ? -1 : builder_.add_template(list);
}

// -- Reductions
// -------------------------------------------------------------------------------------

Step OptimizerStep::reduce(std::size_t bucket, PortRef complete, bool adds) {
  return reduce(bucket, {complete}, {}, adds);
}
Step OptimizerStep::reduce(std::size_t bucket) { return reduce(bucket, {}, {0}, false); }

Step OptimizerStep::reduce(std::size_t bucket, const std::vector<PortRef>& awaits,
                           const std::vector<int>& joins, bool adds) {
  if (units_ != nullptr) return units_->reduce(buckets_[bucket], awaits, joins, adds);
  OperationList list((adds ? "reduce_and_add." : "reduce.") + buckets_[bucket].name);
  int index = 0, earlier = -1;
  if (offloaded_ && adds) {
    earlier = offload::to_device(builder_, list, "earlier." + buckets_[bucket].name,
                                 {host_gradient(bucket)}, {shard_gradient(bucket)},
                                 own_elements(bucket), shape_.gradient, Cause::kDataParallel);
    list.last().joins = {offload::down(builder_)};
  }
  if (shape_.fresh_gradients && shared(buckets_[bucket])) {
    reduced_.resize(buckets_.size(), -1);
    int& reduced = reduced_[bucket];
    if (adds && reduced < 0) {
      reduced = zero2::make_reduced(builder_, buckets_[bucket], shards_[bucket]);
    }
    index = zero2::reduce(builder_, list, buckets_[bucket], shards_[bucket], reduced, adds);
  } else if (shared(buckets_[bucket])) {
    index = distributed_optimizer::reduce(builder_, list, buckets_[bucket], shards_[bucket]);
  } else if (shape_.reducing_ranks(buckets_[bucket].expert) > 1) {
    const bool horovod = builder_.job().plan.dp_kind == DataParallelKind::kHorovod;
    index = horovod ? horovod::reduce(builder_, list, buckets_[bucket])
                    : ddp::reduce(builder_, list, buckets_[bucket]);
  }
  if (earlier >= 0) list.last().after.push_back(earlier);
  if (offloaded_ && !late(buckets_[bucket])) {
    take_down(list, bucket, list.empty() ? std::vector<int>{} : std::vector<int>{list.size() - 1});
  } else if (list.empty()) {
    list.add("await." + buckets_[bucket].name, HostWork{HostKind::kAwait}, {}, {});
  }
  list.at(index).awaits = awaits;
  list.at(index).joins = joins;
  return {builder_.add_template(list), 0};
}

void OptimizerStep::take_down(OperationList& list, std::size_t bucket, std::vector<int> after) {
  const Bucket& of = buckets_[bucket];
  offload::to_host(builder_, list, "down." + of.name,
                   shared(of) ? std::vector<BufferRef>{shard_gradient(bucket)}
                              : gradients_of(builder_, of.tensors),
                   {host_gradient(bucket)}, own_elements(bucket), shape_.gradient,
                   Cause::kOptimizer, std::move(after));
}

// What the update writes on the device: the share that is gathered, or the parameters.
std::vector<BufferRef> OptimizerStep::device_parameters(std::size_t bucket) const {
  if (shared(buckets_[bucket])) return {{shards_[bucket].parameter, buckets_[bucket].layer}};
  return parameters_of(builder_, buckets_[bucket].tensors);
}

void OptimizerStep::bring_up(OperationList& list, std::size_t bucket) {
  const Bucket& of = buckets_[bucket];
  offload::to_device(builder_, list, "up." + of.name, {{shards_[bucket].host_parameter, of.layer}},
                     device_parameters(bucket), own_elements(bucket), of.type, Cause::kOptimizer);
}

DataType OptimizerStep::gradient_type() const {
  return units_ != nullptr ? units_->gradient_type() : shape_.gradient;
}

int OptimizerStep::finish() {
  OperationList list("step.finish." + rank_name_);
  if (!keeps_weight_versions(builder_.job().plan)) {
    sum_partial(list);
    sum_tied(list);
  }
  loss(list);
  if (list.empty()) return -1;
  const int index = builder_.add_template(list);
  return shape_.reduces_gradients() ? builder_.with_entry(index, {builder_.stream("dp")}, {})
                                    : index;
}

// Gradients of copied parameters that this rank's tokens, or its queries, alone have contributed
// to: one message for all of a group (Megatron-LM, finalize_model_grads.py).
void OptimizerStep::sum_partial(OperationList& list) {
  sum_partial(list, "tp", "sequence_parallel.all_reduce");
  sum_partial(list, kKeyValueCopyAxis, "key_value.all_reduce");
  sum_partial(list, kTensorTokensAxis, "tensor_rows.all_reduce");
  sum_partial(list, kTensorDepthAxis, "tensor_depth.all_reduce");
}

void OptimizerStep::sum_partial(OperationList& list, const std::string& axis,
                                const std::string& name) {
  std::vector<BufferRef> buffers;
  std::int64_t elements = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (shared(buckets_[b])) {
      if (buckets_[b].partial_over != axis) continue;
      buffers.push_back(shard_gradient(b));
      elements += shards_[b].elements;
      continue;
    }
    for (const Tensor& tensor : buckets_[b].tensors) {
      const Parameter& parameter = builder_.parameter(tensor.parameter);
      if (parameter.partial_over != axis) continue;
      buffers.push_back({parameter.gradient, tensor.layer});
      elements += parameter.elements();
    }
  }
  const int group = builder_.group({axis});
  if (buffers.empty() || group < 0) return;
  Collective collective;
  collective.elements = elements;
  collective.type = gradient_type();
  list.add(name, collective, buffers, buffers, Cause::kTensorParallel);
  list.last().group = group;
}

void OptimizerStep::sum_tied(OperationList& list) {
  if (tied_ == kNoParameter) return;
  BufferRef gradient{builder_.parameter(tied_).gradient};
  std::int64_t elements = builder_.parameter(tied_).elements();
  bool held = false;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const Tensor& tensor : buckets_[b].tensors) {
      if (tensor.parameter != tied_) continue;
      held = true;
      if (!shared(buckets_[b])) continue;
      gradient = shard_gradient(b);
      elements = shards_[b].elements;
    }
  }
  if (!held) return;
  Collective collective;
  collective.elements = elements;
  collective.type = gradient_type();
  list.add("embedding.all_reduce", collective, {gradient}, {gradient}, Cause::kPipelineParallel);
  list.last().group = builder_.add_group(GroupFamily{"embedding", {"pp"}, {0, shape_.pp - 1}});
}

void OptimizerStep::loss(OperationList& list) {
  if (loss_ < 0) return;
  if (shape_.data_ranks > 1) {
    Collective collective;
    collective.elements = 1;
    collective.type = DataType::kFp64;
    list.add("loss.all_reduce", collective, {{loss_}}, {{loss_}}, Cause::kDataParallel);
    list.last().group = builder_.data_group();
  }
  Kernel scale = kernel(KernelKind::kScale, 1, DataType::kFp64, DataType::kFp64);
  scale.scale = shape_.loss_scale;
  if (keeps_weight_versions(builder_.job().plan)) {  // the mean over all mini-batches
    const Job& job = builder_.job();
    scale.scale = 1.0 / static_cast<double>(job.global_batch * job.sequence_length);
  }
  list.add("loss.mean", scale, {{loss_}}, {{loss_}});
}

// -- Update
// -----------------------------------------------------------------------------------------

int OptimizerStep::update() {
  OperationList list("step.update." + rank_name_);
  if (offloaded_) {
    update_on_host(list);
  } else if (keeps_weight_versions(builder_.job().plan)) {
    // Of one mini-batch; nobody waits for a norm of the whole gradient.
    sum_partial(list);
    for (const Group& group : groups_) update(list, group);
  } else {
    if (builder_.program().clip_norm > 0) norm(list);
    for (const Group& group : groups_) update(list, group);
    for (const Group& group : groups_) {
      if (gathers_first() && group.shared) continue;
      if (keeps_master(group)) cast(list, group);
      if (group.shared) gather(list, group);
    }
  }
  if (list.empty()) return -1;
  const int index = builder_.add_template(list);
  return shape_.reduces_gradients() ? builder_.with_entry(index, {builder_.stream("dp")}, {})
                                    : index;
}

// While the parameters of one group go up, the cores are at the next one.
void OptimizerStep::update_on_host(OperationList& list) {
  for (std::size_t b = 0; units_ == nullptr && b < buckets_.size(); ++b) {
    if (!late(buckets_[b])) continue;
    take_down(list, b, {});
    list.last().joins = {0};
  }
  if (builder_.program().clip_norm > 0) norm(list);
  for (const Group& group : groups_) {
    update(list, group);
    cast(list, group);
    if (group.shared) gather(list, group);
  }
  offload::move_to_cores(builder_, list, 0);
}

// Parts of the gradient by how many ranks of the group that sums the squares hold them: those held
// by more come first. The second copy of a tied word table, or of the whole model, counts nowhere.
std::vector<OptimizerStep::NormPart> OptimizerStep::norm_parts() const {
  if (!counts_in_norm_) return {};
  std::vector<NormPart> parts;
  const bool every_rank = builder_.job().model.num_experts > 0;
  const auto part_of = [&](int copies, bool expert) -> NormPart& {
    const std::string name = expert                ? "experts"
                             : copies == 1         ? "own"
                             : copies == shape_.tp ? "replicated"
                                                   : "shared_by_" + std::to_string(copies);
    for (NormPart& part : parts) {
      if (part.name == name) return part;
    }
    parts.emplace_back().name = name;
    return parts.back();
  };
  const auto add = [&](int copies, bool expert, bool shared, BufferRef gradient,
                       std::int64_t elements) {
    NormPart& part = part_of(copies, expert);
    part.copies = copies;
    if (every_rank && !shared) part.copies *= shape_.reducing_ranks(expert);
    part.gradients.push_back(gradient);
    part.elements += elements;
  };
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (shared(bucket) || offloaded_ || units_ != nullptr) {
      if (bucket.tied && !owns_tied_) continue;
      add(bucket.copies, bucket.expert, shared(bucket),
          offloaded_ ? host_gradient(b) : shard_gradient(b), own_elements(b));
      continue;
    }
    for (const Tensor& tensor : bucket.tensors) {
      if (tensor.parameter == tied_ && !owns_tied_) continue;
      const Parameter& parameter = builder_.parameter(tensor.parameter);
      add(parameter.copies, parameter.expert, false, {parameter.gradient, tensor.layer},
          parameter.elements());
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const NormPart& a, const NormPart& b) {
    return std::tie(b.copies, a.name) < std::tie(a.copies, b.name);
  });
  return parts;
}

void OptimizerStep::norm(OperationList& list) {
  const DataType wide = DataType::kFp64;
  list.add("norm.zero", kernel(KernelKind::kZero, 1, wide, wide), {}, {{norm_}}, Cause::kOptimizer);
  const std::vector<NormPart> parts = norm_parts();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const NormPart& part = parts[p];
    std::vector<BufferRef> reads = part.gradients;
    reads.push_back({norm_});
    list.add("norm." + part.name,
             kernel(KernelKind::kSquaredNorm, part.elements, gradient_type(), wide),
             std::move(reads), {{norm_}}, Cause::kOptimizer);
    const int next = p + 1 < parts.size() ? parts[p + 1].copies : 1;
    if (next == part.copies) continue;
    Kernel share = kernel(KernelKind::kScale, 1, wide, wide);
    share.scale = static_cast<double>(next) / part.copies;
    list.add("norm.share_" + part.name, share, {{norm_}}, {{norm_}}, Cause::kOptimizer);
  }

  std::vector<std::string> axes = {"tp"};
  if (shared_ && shape_.replicas > 1) {
    axes.emplace_back(kShardAxis);
  } else if (shared_ || builder_.job().model.num_experts > 0) {
    axes.insert(axes.end(), {"dp", "cp"});
  }
  if (!post_validated()) axes.emplace_back("pp");
  const int group = builder_.group(axes);
  if (group >= 0) {
    Collective collective;
    collective.elements = 1;
    collective.type = wide;
    list.add("norm.all_reduce", collective, {{norm_}}, {{norm_}}, Cause::kOptimizer);
    list.last().group = group;
  }
  if (post_validated()) return pass_on_norm(list);
  // The framework reads the norm on the host (Megatron-LM, clip_grads.py: total_norm.item()).
  list.last().host_waits = true;
  clip(list);
}

// Receives or sends a norm along the pipeline, on a stream of its own.
int OptimizerStep::message(OperationList& list, const char* name, int buffer, int offset) {
  const bool sends = std::string(name).starts_with("send");
  Collective collective;
  collective.kind = sends ? CollectiveKind::kSend : CollectiveKind::kReceive;
  collective.elements = 1;
  collective.type = DataType::kFp64;
  const std::vector<BufferRef> buffers = {{buffer}}, none;
  const int index =
      list.add(name, collective, sends ? buffers : none, sends ? none : buffers, Cause::kOptimizer);
  list.last().stream = builder_.stream("norm");
  list.last().peer_axis = "pp";
  list.last().peer_offset = offset;
  return index;
}

// The ranks up to this one: what has come from the one before, and this rank's share.
void OptimizerStep::pass_on_norm(OperationList& list) {
  const DataType wide = DataType::kFp64;
  if (rank_ == 0) {
    list.add("norm.begin", kernel(KernelKind::kCopy, 1, wide, wide), {{norm_}}, {{partial_norm_}},
             Cause::kOptimizer);
  } else {
    const int received = message(list, "receive_norm", partial_norm_, -1);
    list.add("norm.add", kernel(KernelKind::kGradientAdd, 1, wide, wide),
             {{partial_norm_}, {norm_}}, {{partial_norm_}}, Cause::kOptimizer);
    list.last().after = {received};
  }
  // The host decides by it whether to take the step.
  list.last().host_waits = true;
  if (rank_ < shape_.pp - 1) {
    message(list, "send_norm", partial_norm_, 1);
    list.last().joins = {0};
    return;
  }
  list.add("norm.validate", kernel(KernelKind::kValidateNorm, 1, wide, wide), {{partial_norm_}},
           {{validated_norm_}}, Cause::kOptimizer);
}

int OptimizerStep::validate() {
  if (!post_validated() || shape_.pp == 1) return -1;
  OperationList list("step.validate." + rank_name_);
  int received = -1;
  if (rank_ < shape_.pp - 1) received = message(list, "receive_validated", validated_norm_, 1);
  if (rank_ > 0) message(list, "send_validated", validated_norm_, -1);
  if (received >= 0) {
    list.add("await", HostWork{HostKind::kAwait}, {}, {}, Cause::kOptimizer);
    list.last().after = {received};
    list.last().host_waits = true;
  } else {
    list.last().joins = {0};
  }
  return builder_.add_template(list);
}

void OptimizerStep::clip(OperationList& list) {
  std::vector<BufferRef> all;
  std::int64_t elements = 0;
  for (const Group& one : groups_) {
    const std::vector<BufferRef> own = gradients(one);
    all.insert(all.end(), own.begin(), own.end());
    elements += one.elements;
  }
  if (matrices_) {
    const std::vector<BufferRef> own = matrices_->gradients();
    all.insert(all.end(), own.begin(), own.end());
    elements += matrices_->elements();
  }
  if (all.empty()) return;
  std::vector<BufferRef> reads = {{norm_}};
  reads.insert(reads.end(), all.begin(), all.end());
  list.add("clip", kernel(KernelKind::kClip, elements, gradient_type(), gradient_type()),
           std::move(reads), std::move(all), Cause::kOptimizer);
}

void OptimizerStep::update(OperationList& list, const Group& group) {
  std::vector<BufferRef> masters = group.masters;
  DataType type = shape_.masters ? DataType::kFp32 : shape_.storage;
  if (!keeps_master(group) && units_ == nullptr) {
    const std::vector<BufferRef> parameters = parameters_of(builder_, group.tensors);
    masters = group.shared ? std::vector<BufferRef>{{shards_[group.bucket].parameter}} : parameters;
    if (group.shared) {
      list.add("share." + group.name,
               kernel(KernelKind::kSplitSequence, group.elements, shape_.storage, shape_.storage),
               parameters, masters, Cause::kOptimizer);
    }
  }
  std::vector<BufferRef> reads = masters, writes = masters;
  const std::vector<BufferRef> gradient = gradients(group);
  reads.insert(reads.end(), gradient.begin(), gradient.end());
  for (const int moment : {group.first_moment, group.second_moment}) {
    if (moment < 0) continue;
    reads.push_back({moment});
    writes.push_back({moment});
  }
  const KernelKind kind = group.second_moment >= 0  ? KernelKind::kAdam
                          : group.first_moment >= 0 ? KernelKind::kLion
                                                    : KernelKind::kSgd;
  list.add("update." + group.name, kernel(kind, group.elements, type, type), std::move(reads),
           std::move(writes), Cause::kOptimizer);
}

void OptimizerStep::cast(OperationList& list, const Group& group) {
  if (units_ != nullptr) {
    const auto target = [&](std::size_t b) {
      const bool goes_up = shards_[b].host_parameter >= 0;
      return BufferRef{goes_up ? shards_[b].host_parameter : shards_[b].parameter,
                       buckets_[b].layer};
    };
    // Where the gathers do not convert the masters themselves.
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!shards_[b].parameter_lives || shards_[b].master < 0) continue;
      list.add("cast." + buckets_[b].name,
               kernel(KernelKind::kCastParameters, shards_[b].elements,
                      shape_.masters ? DataType::kFp32 : shape_.storage, buckets_[b].type),
               {{shards_[b].master, buckets_[b].layer}}, {target(b)}, Cause::kOptimizer);
      if (shards_[b].host_parameter >= 0) bring_up(list, b);
    }
    return;
  }
  std::vector<BufferRef> target = parameters_of(builder_, group.tensors);
  if (group.shared) target = {{shards_[group.bucket].parameter}};
  if (offloaded_) target = {{shards_[group.bucket].host_parameter}};
  list.add("cast." + group.name,
           kernel(KernelKind::kCastParameters, group.elements,
                  shape_.masters ? DataType::kFp32 : shape_.storage, group.type),
           group.masters, std::move(target), Cause::kOptimizer);
  if (offloaded_) bring_up(list, group.bucket);
}

// After the operation that was added last, which has written the share.
void OptimizerStep::gather(OperationList& list, const Group& group) {
  const int index =
      distributed_optimizer::gather(builder_, list, buckets_[group.bucket], shards_[group.bucket]);
  list.at(index).joins = {0};
}

}  // namespace headway
