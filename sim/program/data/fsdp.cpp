#include "sim/program/data/fsdp.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "sim/program/data/offload.hpp"

namespace headway {

ShardedUnits::ShardedUnits(ProgramBuilder& builder) : builder_(builder), shape_(builder.shape()) {
  // FSDP's shares are the optimizer's parameters in fp32 and their gradients alike; DeepSpeed's
  // keep the gradients' own type.
  const bool fsdp = is_fsdp(builder_.job().plan.dp_kind);
  gradient_type_ = fsdp && shape_.masters ? DataType::kFp32 : shape_.gradient;
  const ParallelPlan& plan = builder_.job().plan;
  if (plan.dp_kind == DataParallelKind::kZeroPlusPlus || plan.rounded_ranks > 0)
    rounding_.emplace(builder_);
}

void ShardedUnits::begin_rank() {
  units_.clear();
  unit_of_.clear();
  stayed_.clear();
}

// -- Units
// ------------------------------------------------------------------------------------------

// FSDP wraps the layers; what is left is one unit, the root's. Over a pipeline, and in stage 3, the
// embedding and the head are modules of their own.
std::string ShardedUnits::unit_name(const Tensor& tensor) const {
  const int family = builder_.parameter(tensor.parameter).family;
  const BufferFamily& buffer = builder_.program().buffers[static_cast<std::size_t>(family)];
  if (buffer.per_layer) return "layer";
  if (is_fsdp(builder_.job().plan.dp_kind) && shape_.pp == 1) return "root";
  if (buffer.name.starts_with("prediction")) return "prediction";
  return buffer.name.starts_with("embedding") ? "embedding" : "head";
}

std::vector<Bucket> ShardedUnits::buckets(ChunkPlace place, const std::vector<FiredTensor>& tensors,
                                          ParameterId tied) {
  for (std::size_t p = 0; p < builder_.parameters().size(); ++p) {
    parameter_of_[builder_.parameters()[p].family] = static_cast<ParameterId>(p);
  }
  const ParallelPlan& plan = builder_.job().plan;
  std::vector<Bucket> all;
  std::map<std::pair<std::string, int>, std::vector<FiredTensor>> by_unit;
  for (const FiredTensor& fired : tensors) {
    by_unit[{unit_name(fired.tensor), fired.tensor.layer}].push_back(fired);
  }
  for (const auto& [key, members] : by_unit) {
    Unit unit;
    unit.layer = key.second;
    const bool root = is_fsdp(plan.dp_kind) && key.first != "layer";
    unit.stays = shape_.pp > 1 || root || (rounding_ && rounding_->is_reference()) ||
                 (is_fsdp(plan.dp_kind) && !plan.reshard_after_forward);
    const auto number = static_cast<int>(units_.size());
    for (const FiredTensor& member : members) {
      unit_of_[{member.tensor.parameter, member.tensor.layer}] = number;
    }
    for (Bucket& bucket : cut_into_buckets(builder_, "", members, std::nullopt, true, tied)) {
      bucket.layer = unit.layer;
      bucket.form = find_or_make_form(key.first, bucket);
      bucket.name = "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk) +
                    "." + form(bucket).name + std::to_string(unit.layer);
      unit.forms.push_back(bucket.form);
      unit.elements += bucket.elements;
      all.push_back(std::move(bucket));
    }
    unit.name = forms_[static_cast<std::size_t>(unit.forms.front())].name;
    units_.push_back(std::move(unit));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Bucket& a, const Bucket& b) { return a.step < b.step; });
  return all;
}

int ShardedUnits::find_or_make_form(const std::string& name, const Bucket& bucket) {
  Form fresh;
  fresh.per_layer = name == "layer";
  fresh.tensors = bucket.tensors;
  for (Tensor& tensor : fresh.tensors) tensor.layer -= bucket.layer;
  fresh.copies = bucket.copies;
  fresh.partial_over = bucket.partial_over;
  fresh.tied = bucket.tied;
  fresh.expert = bucket.expert;
  fresh.type = bucket.type;
  const auto same = [&](const Form& other) {
    return std::tie(other.per_layer, other.tensors, other.copies, other.partial_over, other.tied,
                    other.expert, other.type) == std::tie(fresh.per_layer, fresh.tensors,
                                                          fresh.copies, fresh.partial_over,
                                                          fresh.tied, fresh.expert, fresh.type);
  };
  const auto found = std::find_if(forms_.begin(), forms_.end(), same);
  if (found != forms_.end()) return static_cast<int>(found - forms_.begin());

  std::string base = name;
  if (shape_.tp > 1) {
    base += fresh.copies == 1            ? ".split"
            : fresh.copies < shape_.tp   ? ".shared"
            : fresh.partial_over.empty() ? ".replicated"
                                         : ".partial";
  }
  if (fresh.tied) base += ".tied";
  if (fresh.expert) base += ".experts";
  if (fresh.type != shape_.storage) base += "." + std::string(headway::name(fresh.type));
  const auto alike = std::count_if(forms_.begin(), forms_.end(), [&](const Form& other) {
    return other.name == base || other.name.starts_with(base + "-");
  });
  fresh.name = alike == 0 ? base : base + "-" + std::to_string(alike + 1);
  // Shares of rounded units are whole blocks.
  const std::int64_t ranks = shape_.sharing_ranks(fresh.expert);
  const std::int64_t unit = rounding_ ? kRoundingBlock : 1, cut = ranks * unit;
  fresh.shard.elements = (bucket.elements + cut - 1) / cut * unit;
  fresh.shard = make_shard(fresh);
  if (builder_.job().plan.offload.parameters) {
    fresh.up =
        share("parameter_up", fresh, BufferCategory::kCommunication,
              fresh.shard.parameter_lives ? fresh.type : DataType::kFp32, InitialValue::kUndefined);
  }
  forms_.push_back(std::move(fresh));
  return static_cast<int>(forms_.size()) - 1;
}

std::vector<BufferRef> ShardedUnits::refs(const Form& form, bool gradients) const {
  return gradients ? gradients_of(builder_, form.tensors) : parameters_of(builder_, form.tensors);
}

int ShardedUnits::share(const std::string& name, const Form& form, BufferCategory category,
                        DataType type, InitialValue initial, bool on_host) const {
  BufferFamily family;
  family.name = name + "." + form.name;
  family.category = category;
  family.type = type;
  family.rows = form.shard.elements;
  family.columns = 1;
  family.per_layer = form.per_layer;
  family.on_host = on_host;
  family.initial = initial;
  family.mirrors = refs(form, category == BufferCategory::kGradient);
  family.row_group = builder_.sharing_group(form.expert);
  return builder_.buffer(std::move(family));
}

// DeepSpeed keeps a share of the parameters in their own type beside the fp32 one; FSDP's fp32
// share is converted for each gather. Where the optimizer is the host's, so are the share that it
// updates and what comes down of the gradients; where the parameters are too, they have no share on
// the device.
BucketShard ShardedUnits::make_shard(const Form& form) const {
  const Offload& offload = builder_.job().plan.offload;
  const auto mirror = InitialValue::kMirror, undefined = InitialValue::kUndefined;
  BucketShard shard = form.shard;
  const bool converted = shape_.masters && is_fsdp(builder_.job().plan.dp_kind);
  const auto communicated = BufferCategory::kCommunication;
  shard.parameter =
      share("parameter_shard", form, converted ? communicated : BufferCategory::kParameter,
            form.type, converted ? undefined : mirror, offload.parameters && !converted);
  shard.parameter_lives = !converted;
  if (shape_.masters || (offload.optimizer && !offload.parameters)) {
    shard.master =
        share("master", form, BufferCategory::kOptimizer,
              shape_.masters ? DataType::kFp32 : shape_.storage, mirror, offload.optimizer);
  }
  shard.gradient =
      share("gradient_shard", form, BufferCategory::kGradient, gradient_type_, undefined);
  if (!offload.optimizer) return shard;
  shard.host_gradient =
      share("host_gradient", form, BufferCategory::kGradient, gradient_type_, undefined, true);
  if (!converted && !offload.parameters) {
    shard.host_parameter = share("host_parameter", form, communicated, form.type, undefined, true);
  }
  return shard;
}

// What is converted on the device comes up as it is updated, the rest as it is gathered.
BufferRef ShardedUnits::bring_up(OperationList& list, const Form& form) const {
  const bool converted = !form.shard.parameter_lives;
  const BufferRef own{converted ? form.shard.master : form.shard.parameter};
  if (form.up < 0) return own;
  offload::to_device(builder_, list, "up." + form.name, {own}, {{form.up}}, form.shard.elements,
                     converted ? DataType::kFp32 : form.type, Cause::kDataParallel);
  return {form.up};
}

int ShardedUnits::reduced_of(Form& form) {
  if (form.reduced < 0) {
    form.reduced = share("reduced_shard", form, BufferCategory::kCommunication, shape_.gradient,
                         InitialValue::kUndefined);
  }
  return form.reduced;
}

// -- Gathers
// ----------------------------------------------------------------------------------------

std::set<int> ShardedUnits::units_read(const Step& step) const {
  std::set<int> units;
  for (const TemplateOperation& operation : builder_.list(step.template_index).operations) {
    for (const BufferRef& read : operation.reads) {
      const auto parameter = parameter_of_.find(read.family);
      if (parameter == parameter_of_.end()) continue;
      const int layer = builder_.per_layer(read.family) ? step.layer + read.layer : 0;
      units.insert(unit_of_.at({parameter->second, layer}));
    }
  }
  return units;
}

// A unit that does not stay is dropped when others are read.
std::vector<ShardedUnits::Gather> ShardedUnits::gathers(const std::vector<Step>& steps,
                                                        Phase phase) {
  std::vector<Gather> result;
  std::map<int, int> times;              // how often a unit is gathered here
  std::map<int, std::size_t> last_read;  // by unit
  std::set<int> there = phase == Phase::kForward ? std::set<int>{} : stayed_;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::set<int> read = units_read(steps[s]);
    if (read.empty()) continue;
    std::erase_if(there, [&](int unit) {
      return !read.contains(unit) && !units_[static_cast<std::size_t>(unit)].stays;
    });
    for (const int number : read) {
      const auto before = last_read.find(number);
      const std::size_t earliest = before == last_read.end() ? 0 : before->second + 1;
      last_read[number] = s;
      if (!there.insert(number).second) continue;
      const Unit& unit = units_[static_cast<std::size_t>(number)];
      std::string port = "gathered." + unit.name;
      if (phase != Phase::kStep) port += phase == Phase::kForward ? ".forward" : ".backward";
      if (const int again = times[number]++; again > 0) port += "." + std::to_string(again);
      const bool per_layer = forms_[static_cast<std::size_t>(unit.forms.front())].per_layer;
      result.push_back(
          {number,
           s,
           earliest,
           {builder_.port({port, per_layer, phase != Phase::kStep}), per_layer ? unit.layer : 0}});
    }
  }
  if (phase != Phase::kBackward) {
    std::erase_if(there, [&](int unit) { return !units_[static_cast<std::size_t>(unit)].stays; });
    stayed_ = std::move(there);
  }
  return result;
}

// The step before which a gather is issued: the one that needs the gather `prefetch` units before
// it, or in stage 3 the first one from which on what is gathered and not yet used stays within
// `prefetch` elements. DeepSpeed fetches the matrices of a layer one by one; where they are more
// than that together, the first of them still come ahead, and here all.
std::size_t ShardedUnits::issued_before(const std::vector<Gather>& gathers,
                                        std::size_t index) const {
  const ParallelPlan& plan = builder_.job().plan;
  if (is_fsdp(plan.dp_kind)) {
    const auto ahead = static_cast<std::size_t>(plan.prefetch);
    return index < ahead ? 0 : gathers[index - ahead].needed;
  }
  std::int64_t left = plan.prefetch;
  for (std::size_t g = index + 1; g-- > 0;) {
    left -= units_[static_cast<std::size_t>(gathers[g].unit)].elements;
    if (left >= 0) continue;
    const bool next = g == index && g > 0 && plan.prefetch > 0;
    return gathers[next ? g - 1 : g].needed;
  }
  return 0;
}

std::vector<Step> ShardedUnits::gathering(const std::vector<Step>& steps, Phase phase) {
  const std::vector<Gather> needed = gathers(steps, phase);
  std::vector<std::vector<PortRef>> awaited(steps.size());
  std::vector<std::vector<std::size_t>> issued(steps.size());
  for (std::size_t g = 0; g < needed.size(); ++g) {
    PortRef port = needed[g].port;
    const bool per_layer =
        builder_.program().ports[static_cast<std::size_t>(port.family)].per_layer;
    if (per_layer) port.layer -= steps[needed[g].needed].layer;
    awaited[needed[g].needed].push_back(port);
    issued[std::max(issued_before(needed, g), needed[g].earliest)].push_back(g);
  }
  std::vector<Step> result;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const std::size_t g : issued[s]) {
      result.push_back(
          gather(units_[static_cast<std::size_t>(needed[g].unit)], needed[g].port, phase));
    }
    result.push_back(
        {builder_.with_entry(steps[s].template_index, {}, awaited[s]), steps[s].layer});
  }
  return result;
}

// Over a pipeline whole parameters stay throughout the step: nothing limits how early they come.
Step ShardedUnits::gather(const Unit& unit, const PortRef& port, Phase phase) {
  const bool joins_compute = phase != Phase::kStep;
  const auto [found, fresh] =
      gather_templates_.try_emplace(GatherKey{unit.forms, port.family, joins_compute}, -1);
  if (!fresh) return {found->second, unit.layer};
  OperationList list(builder_.program().ports[static_cast<std::size_t>(port.family)].name);
  for (const int number : unit.forms) {
    const Form& form = forms_[static_cast<std::size_t>(number)];
    if (!rounding_) {
      gather(list, form);
    } else if (phase == Phase::kBackward) {
      rounding_->gather_backward(list, rounded(form));
    } else {
      rounding_->gather_forward(list, rounded(form));
    }
  }
  if (joins_compute) list.at(0).joins = {0};
  list.last().releases = {{port.family, 0}};
  found->second = builder_.add_template(list);
  return {found->second, unit.layer};
}

RoundedUnit ShardedUnits::rounded(const Form& form) const {
  RoundedUnit unit;
  unit.name = form.name;
  unit.per_layer = form.per_layer;
  unit.parameters = refs(form, false);
  unit.gradients = refs(form, true);
  unit.type = form.type;
  unit.share = form.shard.elements;
  unit.parameter = form.shard.parameter;
  return unit;
}

void ShardedUnits::gather(OperationList& list, const Form& form) {
  const int stream = builder_.stream("dp");
  BufferRef source = bring_up(list, form);
  const bool came_up = form.up >= 0;
  if (!form.shard.parameter_lives) {
    Kernel cast;
    cast.kind = KernelKind::kCastParameters;
    cast.rows = form.shard.elements;
    cast.columns = 1;
    cast.type = DataType::kFp32;
    cast.output = form.type;
    list.add("cast." + form.name, cast, {source}, {{form.shard.parameter}}, Cause::kDataParallel);
    list.last().stream = stream;
    if (came_up) list.last().after = {list.size() - 2};
    source = {form.shard.parameter};
  }
  distributed_optimizer::gather_share(builder_, list, "gather." + form.name, form.expert, form.type,
                                      form.shard.elements, source, refs(form, false));
  list.last().stream = stream;
  if (came_up) list.last().after = {list.size() - 2};
}

// -- Reductions
// -------------------------------------------------------------------------------------

// Adds the reduction of the unit's gradients into the share.
void ShardedUnits::reduce_into(OperationList& list, const Form& form, BufferRef target,
                               int stream) {
  if (rounding_ && rounding_->is_reference()) {
    return rounding_->add_up(list, rounded(form), target, position_);
  }
  if (rounding_) return rounding_->reduce(list, rounded(form), target);
  distributed_optimizer::reduce_share(builder_, list, "reduce." + form.name, form.expert,
                                      form.shard.elements, refs(form, true), target);
  list.last().stream = stream;
  if (shape_.replicas == 1 || form.expert) return;
  Collective collective;
  collective.elements = form.shard.elements;
  collective.type = shape_.gradient;
  list.add("sum." + form.name, collective, {target}, {target}, Cause::kDataParallel);
  list.last().stream = stream;
  list.last().group = builder_.replica_group();
}

Step ShardedUnits::reduce(const Bucket& bucket, const std::vector<PortRef>& awaits,
                          const std::vector<int>& joins, bool adds) {
  Form& form = forms_[static_cast<std::size_t>(bucket.form)];
  std::vector<PortRef> relative = awaits;
  ReduceKey key{bucket.form, {}, joins, adds, position_};
  for (PortRef& port : relative) {
    if (builder_.program().ports[static_cast<std::size_t>(port.family)].per_layer) {
      port.layer -= bucket.layer;
    }
    key.awaits.emplace_back(port.family, port.layer);
  }
  const auto [found, fresh] = reduce_templates_.try_emplace(std::move(key), -1);
  if (!fresh) return {found->second, bucket.layer};

  const bool beside = shape_.data_ranks > 1 && builder_.job().plan.overlap_grad_reduce;
  const int stream = beside ? builder_.stream("dp") : 0;
  const bool apart = adds || gradient_type_ != shape_.gradient;
  const BufferRef target{apart ? reduced_of(form) : form.shard.gradient};
  OperationList list("reduce." + form.name + "." + std::to_string(reduce_templates_.size()));
  const BufferRef own{form.shard.gradient}, below{form.shard.host_gradient};
  const bool offloaded = below.family >= 0;
  int earlier = -1;
  if (offloaded && adds) {
    earlier = offload::to_device(builder_, list, "earlier." + form.name, {below}, {own},
                                 form.shard.elements, gradient_type_, Cause::kDataParallel);
    list.last().joins = {offload::down(builder_)};
  }
  const int first = list.size();
  reduce_into(list, form, target, stream);
  list.at(first).awaits = std::move(relative);
  list.at(first).joins = joins;
  const bool complete = !rounding_ || !rounding_->is_reference() ||
                        position_ + 1 == builder_.job().plan.rounded_ranks;
  if (apart && complete) {
    Kernel kernel;
    kernel.kind = adds ? KernelKind::kGradientAccumulate : KernelKind::kCast;
    kernel.rows = form.shard.elements;
    kernel.columns = 1;
    kernel.type = shape_.gradient;
    kernel.output = gradient_type_;
    list.add((adds ? "add." : "cast.") + form.name, kernel,
             adds ? std::vector<BufferRef>{own, target} : std::vector<BufferRef>{target}, {own},
             Cause::kDataParallel);
    list.last().stream = stream;
    if (earlier >= 0) list.last().after = {earlier};
  }
  if (offloaded) {
    offload::to_host(builder_, list, "down." + form.name, {own}, {below}, form.shard.elements,
                     gradient_type_, Cause::kDataParallel, {list.size() - 1});
  }
  found->second = builder_.add_template(list);
  return {found->second, bucket.layer};
}

}  // namespace headway
