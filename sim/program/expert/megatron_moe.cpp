#include "sim/program/expert/megatron_moe.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/expert/dispatch_volume.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

namespace {

// The columns of the first of an MLP's matrices, for each of the second.
std::int64_t widening(const Transformer& model) { return model.gated_mlp ? 2 : 1; }

std::vector<ProgramBuilder::PartShape> first_parts(const Transformer& model, const std::string& of,
                                                   std::int64_t rows) {
  const std::int64_t hidden = model.hidden_size;
  if (!model.gated_mlp) return {{of + ".up_weight", rows, hidden}};
  return {{of + ".gate_weight", rows, hidden}, {of + ".up_weight", rows, hidden}};
}

// Rows that a rank may send, where the routing decides how many; else 0.
std::int64_t most_sent(const ProgramBuilder& builder, const ExpertRules& rules) {
  const bool cut = builder.shape().capacity > 0 && !rules.padded;
  return cut ? builder.shape().local_tokens * builder.job().model.experts.per_token : 0;
}

}  // namespace

MegatronMoe::MegatronMoe(ProgramBuilder& builder, const NormPart& input, int output)
    : builder_(builder),
      shape_(builder.shape()),
      rules_(expert_rules(builder.job())),
      input_(input),
      output_(output) {
  make_router();
  make_experts();
  if (shape_.shared_intermediate > 0) make_shared();
}

// Of all tokens of the expert group, each with as many choices here as there are experts.
std::int64_t MegatronMoe::most_received_rows() const {
  const ExpertLayers& model = builder_.job().model.experts;
  if (rules_.padded) return 0;
  if (!exchanges()) return most_sent(builder_, rules_);
  return shape_.local_tokens * shape_.ep * shape_.etp * std::min(model.per_token, shape_.experts);
}

// Memory is what the rank with the hottest experts needs.
std::int64_t MegatronMoe::hottest(std::int64_t rows) const {
  const double most = static_cast<double>(rows) * shape_.hottest_load;
  const auto needed = static_cast<std::int64_t>(std::ceil(most));
  return most_received_rows() > 0 ? std::min(needed, most_received_rows()) : rows;
}

int MegatronMoe::rows_buffer(const std::string& name, std::int64_t rows, std::int64_t most,
                             std::int64_t columns, Copies copies) {
  const int family = builder_.activation(name, shape_.storage, rows, columns, copies);
  builder_.program().buffers[static_cast<std::size_t>(family)].most_rows = most;
  return family;
}

int MegatronMoe::counts_buffer(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return builder_.activation(name, DataType::kInt32, rows, columns, Copies::kPerLayerAndMicroBatch);
}

void MegatronMoe::make_router() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  router_.name = "moe.router";
  router_.result = shape_.statistics;
  router_.input = input_.output;
  router_.weight = builder_.own_tokens_matrix(
      "moe.router_weight", {{"moe.router_weight", model.num_experts, shape_.hidden}}, true,
      accumulates);
  const std::int64_t tokens = shape_.local_tokens, experts = model.num_experts;
  const std::int64_t per_token = model.experts.per_token;
  const Split split = shape_.sequence_parallel ? Split::kRows : Split::kNone;
  const auto wide = [&](const char* name, std::int64_t columns, Copies copies) {
    return builder_.activation(name, shape_.statistics, tokens, columns, copies, split);
  };
  router_.output = wide("moe.logits", experts, once);
  router_.output_gradient = wide("moe.logits_gradient", experts, gradient_copies());
  router_.input_gradient =
      builder_.residual_stream("moe.router_input_gradient", shape_.storage, once);
  choice_ = builder_.activation("moe.choice", DataType::kInt32, tokens, per_token, saved, split);
  weights_ = wide("moe.weights", per_token, saved);
  weights_gradient_ = wide("moe.weights_gradient", per_token, once);
  scores_ = wide("moe.scores", experts, saved);
  counts_ = counts_buffer("moe.counts", 1, experts);
  rows_ = counts_buffer("moe.rows", tokens, per_token);
  if (builder_.job().plan.moe.auxiliary_loss && rules_.auxiliary > 0)
    chosen_ = counts_buffer("moe.chosen", 1, experts);
  gathered_ = counts_;
  if (!exchanges()) return;
  const std::int64_t ranks = static_cast<std::int64_t>(shape_.ep) * shape_.etp;
  all_counts_ = builder_.activation("moe.all_counts", DataType::kInt32, ranks, experts, once,
                                    Split::kNone, BufferCategory::kCommunication);
  received_ = counts_buffer("moe.received", shape_.ep, shape_.experts);
  gathered_ = counts_buffer("moe.gathered", ranks, shape_.experts);
}

// The buffers that are not needed stand for the one before or behind them.
MegatronMoe::Exchange MegatronMoe::make_exchange(const std::string& name, Copies sorted,
                                                 bool sorted_is_saved) {
  const std::int64_t most = most_received_rows();
  Exchange made;
  const auto buffer = [&](const char* stage, std::int64_t rows, std::int64_t most_rows, bool last) {
    return rows_buffer("moe." + name + "_" + stage, rows, most_rows, shape_.hidden,
                       last && sorted_is_saved ? sorted : Copies::kScratch);
  };
  made.sent = buffer("sent", shape_.sent_rows, most_sent(builder_, rules_), !exchanges());
  made.received = made.sent;
  if (sends()) {
    made.received = buffer("received", hottest(shape_.sent_rows), most, !gathers() && !sorts());
  }
  made.gathered = made.received;
  if (gathers()) made.gathered = buffer("gathered", hottest(received_rows()), most, !sorts());
  made.sorted = made.gathered;
  if (sorts()) made.sorted = buffer("sorted", hottest(received_rows()), most, true);
  return made;
}

void MegatronMoe::make_experts() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  in_ = make_exchange("input", saved, true);
  out_ = make_exchange("output", once, false);
  out_gradient_ = make_exchange("output_gradient", gradient_copies(), true);
  in_gradient_ = make_exchange("input_gradient", once, false);
  // What comes back is kept: the weights' gradients are made from it.
  BufferFamily& returned = builder_.program().buffers[static_cast<std::size_t>(out_.sent)];
  returned.per_layer = returned.per_micro_batch = true;

  const std::int64_t width = model.num_experts * model.experts.intermediate_size;
  const std::int64_t columns = shape_.expert_intermediate;
  const auto rows = [&](const char* name, std::int64_t wide, Copies copies) {
    return rows_buffer(name, hottest(received_rows()), most_received_rows(), wide, copies);
  };
  first_.name = "moe.first";
  first_.weight = builder_.expert_matrix("moe.first_weight",
                                         first_parts(model, "moe.experts", width), 0, accumulates);
  first_.input = in_.sorted;
  first_.output = rows("moe.first_output", columns * widening(model), saved);
  first_.output_gradient =
      rows("moe.first_output_gradient", columns * widening(model), gradient_copies());
  first_.input_gradient = in_gradient_.sorted;
  second_.name = "moe.second";
  second_.weight =
      builder_.expert_matrix("moe.second_weight",
                             {{"moe.experts.down_weight", model.num_experts * model.hidden_size,
                               model.experts.intermediate_size}},
                             1, accumulates);
  second_.input = rows("moe.activation", columns, saved);
  second_.input_gradient = rows("moe.activation_gradient", columns, once);
  second_.output = out_.sorted;
  second_.output_gradient = out_gradient_.sorted;
}

void MegatronMoe::make_shared() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  const std::int64_t width = model.experts.shared_intermediate_size;
  const std::int64_t columns = shape_.shared_intermediate;
  const auto split = [&](const char* name, std::int64_t wide, Copies copies) {
    return builder_.activation(name, shape_.storage, shape_.tokens, wide, copies, Split::kColumns);
  };
  shared_.emplace();
  megatron_1d::ColumnParallel& first = shared_->first;
  first.name = "moe.shared_first";
  first.compute = shape_.compute;
  first.weight = builder_.matrix("moe.shared_first_weight", first_parts(model, "moe.shared", width),
                                 0, true, accumulates);
  first.input = input_.output;
  first.output = split("moe.shared_first_output", columns * widening(model), saved);
  first.output_gradient =
      split("moe.shared_first_output_gradient", columns * widening(model), gradient_copies());
  first.input_gradient =
      builder_.residual_stream("moe.shared_input_gradient", shape_.storage, once);
  shared_->activation = split("moe.shared_activation", columns, saved);
  shared_->activation_gradient = split("moe.shared_activation_gradient", columns, once);
  megatron_1d::RowParallel& second = shared_->second;
  second.name = "moe.shared_second";
  second.compute = shape_.compute;
  second.weight =
      builder_.matrix("moe.shared_second_weight",
                      {{"moe.shared.down_weight", shape_.hidden, width}}, 1, true, accumulates);
  second.input = shared_->activation;
  second.input_gradient = shared_->activation_gradient;
  shared_->output = second.output =
      builder_.residual_stream("moe.shared_output", shape_.storage, once);
  combined_ = builder_.residual_stream("moe.combined", shape_.storage, once);
  if (!shape_.sequence_parallel) return;
  const auto whole = [&](const char* name, Copies copies) {
    return builder_.activation(name, shape_.storage, shape_.tokens, shape_.hidden, copies,
                               Split::kNone, BufferCategory::kCommunication);
  };
  first.input_whole = whole("moe.shared_input_whole", once);
  first.input_gradient_whole = whole("moe.shared_input_gradient_whole", once);
  second.output_whole = whole("moe.shared_output_whole", once);
  second.output_gradient_whole = whole("moe.shared_output_gradient_whole", gradient_copies());
}

// -- Operations
// -------------------------------------------------------------------------------------

Routing MegatronMoe::routing(RoutingKind kind) const {
  const Job& job = builder_.job();
  const ExpertLayers& model = job.model.experts;
  Routing result;
  result.kind = kind;
  result.tokens = shape_.local_tokens;
  result.experts = job.model.num_experts;
  result.per_token = model.per_token;
  result.columns = shape_.hidden;
  const bool here = kind == RoutingKind::kSort || kind == RoutingKind::kUnsort;
  result.rows = here ? received_rows() : shape_.sent_rows;
  result.parts = static_cast<std::int64_t>(shape_.ep) * shape_.etp;
  result.local_experts = shape_.experts;
  result.type = shape_.storage;
  result.score = rules_.score;
  result.groups = model.groups;
  result.groups_per_token = model.groups_per_token;
  if (kind == RoutingKind::kAssign) {
    result.capacity = shape_.capacity;
    result.token_groups = job.plan.moe.token_groups;
    result.by_score = rules_.by_score;
    result.padded = rules_.padded;
  }
  result.with_chosen =
      chosen_ >= 0 && (kind == RoutingKind::kAssign || kind == RoutingKind::kChooseBackward);
  // Switch Transformer, arXiv 2101.03961, equations 4 to 6, of a micro-batch's tokens.
  if (kind == RoutingKind::kChooseBackward && chosen_ >= 0) {
    result.auxiliary = rules_.auxiliary * static_cast<double>(result.experts) * shape_.loss_scale /
                       static_cast<double>(result.per_token * shape_.tokens * shape_.cp);
  }
  return result;
}

void MegatronMoe::route(OperationList& list) {
  own_tokens::forward(builder_, list, router_);
  list.add("moe.choose", routing(RoutingKind::kChoose), {{router_.output}},
           {{choice_}, {weights_}, {scores_}});
  std::vector<BufferRef> assigned = {{counts_}, {rows_}};
  if (chosen_ >= 0) assigned.push_back({chosen_});
  list.add("moe.assign", routing(RoutingKind::kAssign), {{choice_}, {weights_}},
           std::move(assigned));
  sum_chosen(list);
  if (!exchanges()) return;
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = builder_.job().model.num_experts * shape_.ep * shape_.etp;
  gather.type = DataType::kInt32;
  list.add("moe.counts_gather", gather, {{counts_}}, {{all_counts_}}, Cause::kExpertParallel);
  list.last().group = builder_.group({"etp", "ep"});
  list.add("moe.splits", routing(RoutingKind::kSplits), {{all_counts_}},
           {{received_}, {gathered_}});
  // token_dispatcher.py, cuda_sync_point.
  list.last().host_waits = rules_.host_learns_counts;
}

// Over the ranks that share a micro-batch's tokens.
void MegatronMoe::sum_chosen(OperationList& list) {
  const int group = builder_.group({"tp", "cp"});
  if (chosen_ < 0 || group < 0) return;
  Collective sum;
  sum.elements = builder_.job().model.num_experts;
  sum.type = DataType::kInt32;
  list.add("moe.chosen_all_reduce", sum, {{chosen_}}, {{chosen_}}, Cause::kExpertParallel);
  list.last().group = group;
}

void MegatronMoe::exchange(OperationList& list, const std::string& name, CollectiveKind kind,
                           Shares shares, const char* axis, std::int64_t rows, int from, int to) {
  Collective collective;
  collective.kind = kind;
  collective.elements = rows * shape_.hidden;
  collective.type = shape_.storage;
  collective.shares = shares;
  if (kind == CollectiveKind::kAllToAll) reduce_volume(collective);
  const int counts = kind == CollectiveKind::kAllToAll ? counts_ : sends() ? received_ : counts_;
  list.add(name, collective, {{from}, {counts}}, {{to}}, Cause::kExpertParallel);
  list.last().group = builder_.group({axis});
  list.last().by_load = true;
}

// DeepEP and HybridEP send a token once to each rank that holds experts of it, and over the network
// once to each node, whose GPUs spread it among themselves.
void MegatronMoe::reduce_volume(Collective& collective) const {
  const ExpertPlan& moe = builder_.job().plan.moe;
  if (moe.dispatch != Dispatch::kDeepEp && moe.dispatch != Dispatch::kHybridEp) return;
  const DispatchVolume volume = dispatch_volume(builder_.job());
  const auto elements = [&](double copies) {
    const double rows = copies * static_cast<double>(shape_.local_tokens);
    return static_cast<std::int64_t>(std::llround(rows)) * shape_.hidden;
  };
  collective.elements = std::min(collective.elements, elements(volume.ranks));
  collective.network_elements = std::min(collective.elements, elements(volume.remote_nodes));
}

// Tokens travel beside what `meanwhile` adds; whoever uses them waits (await).
void MegatronMoe::travel(OperationList& list, const Part& meanwhile) {
  if (!overlaps()) return;
  travelling_ = list.size() - 1;
  list.last().stream = builder_.stream("ep");
  list.last().after = {travelling_ - 1};
  meanwhile();
}

void MegatronMoe::await(OperationList& list) {
  if (travelling_ >= 0) list.last().after.push_back(travelling_);
  travelling_ = -1;
}

void MegatronMoe::send(OperationList& list, const std::string& name, const Exchange& way,
                       const Part& meanwhile) {
  if (sends()) {
    exchange(list, name + "_dispatch", CollectiveKind::kAllToAll, Shares::kByCounts, "ep",
             shape_.sent_rows, way.sent, way.received);
    travel(list, meanwhile);
  }
  if (gathers()) {
    exchange(list, name + "_gather", CollectiveKind::kAllGather, Shares::kByCounts, "etp",
             received_rows(), way.received, way.gathered);
    await(list);
  }
  if (sorts()) {
    list.add(name + "_sort", routing(RoutingKind::kSort), {{way.gathered}, {gathered_}},
             {{way.sorted}});
    list.last().by_load = true;
    await(list);
  }
}

void MegatronMoe::send_back(OperationList& list, const std::string& name, const Exchange& way,
                            const Part& meanwhile) {
  if (sorts()) {
    list.add(name + "_unsort", routing(RoutingKind::kUnsort), {{way.sorted}, {gathered_}},
             {{way.gathered}});
    list.last().by_load = true;
  }
  if (gathers()) {
    exchange(list, name + "_scatter", CollectiveKind::kReduceScatter, Shares::kByCounts, "etp",
             received_rows(), way.gathered, way.received);
  }
  if (sends()) {
    exchange(list, name + "_return", CollectiveKind::kAllToAll, Shares::kBackByCounts, "ep",
             shape_.sent_rows, way.received, way.sent);
    travel(list, meanwhile);
  }
}

void MegatronMoe::grouped(OperationList& list, const Linear& linear, GemmRole role) {
  const Parameter& weight = builder_.parameter(linear.weight);
  GroupedGemm gemm;
  gemm.role = role;
  gemm.groups = shape_.experts;
  gemm.m = received_rows();
  gemm.n = weight.rows / shape_.experts;
  gemm.k = weight.columns;
  gemm.type = shape_.compute;
  gemm.output = shape_.storage;
  const bool forward = role == GemmRole::kForward;
  list.add(linear.name + (forward ? "" : "_dgrad"), gemm,
           {{forward ? linear.input : linear.output_gradient}, {weight.family}, {gathered_}},
           {{forward ? linear.output : linear.input_gradient}});
  list.last().by_load = true;
  await(list);
}

void MegatronMoe::weight_gradient(OperationList& list, const Linear& linear) {
  const Parameter& weight = builder_.parameter(linear.weight);
  GroupedGemm gemm;
  gemm.role = GemmRole::kWeightGradient;
  gemm.groups = shape_.experts;
  gemm.m = received_rows();
  gemm.n = weight.rows / shape_.experts;
  gemm.k = weight.columns;
  gemm.type = shape_.compute;
  std::vector<BufferRef> reads = {{linear.output_gradient}, {linear.input}, {gathered_}};
  if (builder_.job().software.accumulation == GradientAccumulation::kFused) {
    gemm.accumulate = true;
    gemm.output = shape_.gradient;
    reads.push_back({weight.gradient});
    list.add(linear.name + "_wgrad", gemm, std::move(reads), {{weight.gradient}});
    list.last().by_load = true;
    return;
  }
  gemm.output = shape_.storage;
  list.add(linear.name + "_wgrad", gemm, std::move(reads), {{weight.scratch}});
  list.last().by_load = true;
  megatron_1d::accumulate(builder_, list, linear.name + "_accumulate", weight);
}

void MegatronMoe::activation(OperationList& list, const std::string& name, std::int64_t rows,
                             std::int64_t columns, std::vector<BufferRef> reads, int result,
                             bool backward) {
  const Transformer& model = builder_.job().model;
  const bool gelu = model.activation == Activation::kGelu;
  Kernel kernel;
  if (model.gated_mlp) {
    kernel.kind = backward ? KernelKind::kSwigluBackward : KernelKind::kSwigluForward;
  } else if (gelu) {
    kernel.kind = backward ? KernelKind::kGeluBackward : KernelKind::kGeluForward;
  } else {
    kernel.kind = backward ? KernelKind::kReluBackward : KernelKind::kReluForward;
  }
  kernel.rows = rows;
  kernel.columns = columns;
  kernel.type = kernel.output = shape_.storage;
  kernel.fused = builder_.job().software.fused_kernels;
  list.add(name, kernel, std::move(reads), {{result}});
}

void MegatronMoe::add(OperationList& list, const std::string& name, KernelKind kind, int a, int b,
                      int sum) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = shape_.local_tokens;
  kernel.columns = shape_.hidden;
  kernel.type = kernel.output = shape_.storage;
  list.add(name, kernel, {{a}, {b}}, {{sum}});
}

void MegatronMoe::forward(OperationList& list) {
  route(list);
  list.add("moe.permute", routing(RoutingKind::kPermute), {{input_.output}, {rows_}}, {{in_.sent}});
  send(list, "moe.input", in_, [&] { shared_first(list); });
  grouped(list, first_, GemmRole::kForward);
  activation(list, "moe.activation", received_rows(), shape_.expert_intermediate, {{first_.output}},
             second_.input, false);
  list.last().by_load = true;
  grouped(list, second_, GemmRole::kForward);
  send_back(list, "moe.output", out_, [&] { shared_second(list); });
  list.add("moe.combine", routing(RoutingKind::kCombine), {{out_.sent}, {rows_}, {weights_}},
           {{shared_ ? combined_ : output_}});
  await(list);
  if (!shared_) return;
  if (!overlaps()) {
    shared_first(list);
    shared_second(list);
  }
  add(list, "moe.shared_add", KernelKind::kResidualAdd, combined_, shared_->output, output_);
}

void MegatronMoe::backward(OperationList& list, BufferRef output_gradient, bool weights) {
  list.add("moe.combine_backward", routing(RoutingKind::kCombineBackward),
           {output_gradient, {out_.sent}, {rows_}, {weights_}},
           {{out_gradient_.sent}, {weights_gradient_}});
  send(list, "moe.output_gradient", out_gradient_,
       [&] { shared_second_backward(list, output_gradient, weights); });
  grouped(list, second_, GemmRole::kInputGradient);
  if (weights) weight_gradient(list, second_);
  activation(list, "moe.activation_backward", received_rows(), shape_.expert_intermediate,
             {{second_.input_gradient}, {first_.output}}, first_.output_gradient, true);
  list.last().by_load = true;
  grouped(list, first_, GemmRole::kInputGradient);
  if (weights) weight_gradient(list, first_);
  send_back(list, "moe.input_gradient", in_gradient_,
            [&] { shared_first_backward(list, weights); });
  list.add("moe.permute_backward", routing(RoutingKind::kPermuteBackward),
           {{in_gradient_.sent}, {rows_}}, {{input_.output_gradient}});
  await(list);
  choose_backward(list, weights);
  if (!shared_) return;
  if (!overlaps()) {
    shared_second_backward(list, output_gradient, weights);
    shared_first_backward(list, weights);
  }
  add(list, "moe.shared_gradient_add", KernelKind::kGradientAdd, input_.output_gradient,
      shared_->first.input_gradient, input_.output_gradient);
  list.last().after = std::exchange(shared_after_, {});
}

void MegatronMoe::choose_backward(OperationList& list, bool weights) {
  std::vector<BufferRef> reads = {{weights_gradient_}, {choice_}, {weights_}, {scores_}};
  if (chosen_ >= 0) reads.push_back({chosen_});
  list.add("moe.choose_backward", routing(RoutingKind::kChooseBackward), std::move(reads),
           {{router_.output_gradient}});
  own_tokens::backward_input(builder_, list, router_);
  add(list, "moe.router_gradient_add", KernelKind::kGradientAdd, input_.output_gradient,
      router_.input_gradient, input_.output_gradient);
  if (weights) own_tokens::backward_weight(builder_, list, router_);
}

void MegatronMoe::backward_weight(OperationList& list, BufferRef output_gradient) {
  weight_gradient(list, second_);
  weight_gradient(list, first_);
  own_tokens::backward_weight(builder_, list, router_);
  if (!shared_) return;
  megatron_1d::RowParallel second = shared_->second;
  second.output_gradient = output_gradient;
  const int gathered = megatron_1d::gather_again(builder_, list, shared_->first);
  megatron_1d::backward_weight(builder_, list, second);
  megatron_1d::backward_weight(builder_, list, shared_->first, gathered);
}

void MegatronMoe::shared_first(OperationList& list) {
  megatron_1d::forward(builder_, list, shared_->first);
  activation(list, "moe.shared_activation", shape_.tokens, shape_.shared_intermediate,
             {{shared_->first.output}}, shared_->activation, false);
}

void MegatronMoe::shared_second(OperationList& list) {
  megatron_1d::forward(builder_, list, shared_->second);
}

void MegatronMoe::shared_second_backward(OperationList& list, BufferRef output_gradient,
                                         bool weights) {
  megatron_1d::RowParallel second = shared_->second;
  second.output_gradient = output_gradient;
  if (weights) {
    megatron_1d::backward(builder_, list, second);
  } else {
    megatron_1d::backward_input(builder_, list, second);
  }
  activation(list, "moe.shared_activation_backward", shape_.tokens, shape_.shared_intermediate,
             {{shared_->activation_gradient}, {shared_->first.output}},
             shared_->first.output_gradient, true);
}

void MegatronMoe::shared_first_backward(OperationList& list, bool weights) {
  if (weights) {
    shared_after_ = megatron_1d::backward(builder_, list, shared_->first);
  } else {
    megatron_1d::backward_input(builder_, list, shared_->first);
  }
}

}  // namespace headway
