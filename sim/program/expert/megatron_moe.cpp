#include "sim/program/expert/megatron_moe.hpp"

#include <utility>

namespace headway {

using Split = ProgramBuilder::Split;

namespace {

// The columns of the first of an MLP's matrices, for each of the second.
std::int64_t widths(const Transformer& model) { return model.gated_mlp ? 2 : 1; }

std::vector<ProgramBuilder::PartShape> first_parts(const Transformer& model, const std::string& of,
                                                   std::int64_t rows) {
  const std::int64_t hidden = model.hidden_size;
  if (!model.gated_mlp) return {{of + ".up_weight", rows, hidden}};
  return {{of + ".gate_weight", rows, hidden}, {of + ".up_weight", rows, hidden}};
}

}  // namespace

MegatronMoe::MegatronMoe(ProgramBuilder& builder, const NormPart& input, int output)
    : builder_(builder),
      shape_(builder.shape()),
      rules_(expert_rules(builder.job())),
      input_(input),
      output_(output) {
  make_router();
  make_ways();
  make_experts();
  if (shape_.shared_intermediate > 0) make_shared();
  if (shared_ && builder_.job().plan.moe.kind == ExpertKind::kDeepspeed) make_mix();
  if (shape_.quantisation != nullptr) quantise();
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
  counts_ = counts_buffer("moe.counts", 1, gathers_tokens() ? shape_.experts : experts);
  rows_ = counts_buffer("moe.rows", routed_tokens(), per_token);
  if (builder_.job().plan.moe.auxiliary_loss && rules_.auxiliary > 0)
    chosen_ = counts_buffer("moe.chosen", 1, experts);
  if (chosen_ >= 0 && gathers_tokens()) {
    own_counts_ = builder_.activation("moe.own_counts", DataType::kInt32, 1, experts, once);
    own_rows_ = builder_.activation("moe.own_rows", DataType::kInt32, tokens, per_token, once);
  }
  gathered_ = counts_;
  if (!exchanges()) return;
  all_counts_ = builder_.activation("moe.all_counts", DataType::kInt32, group_ranks(), experts,
                                    once, Split::kNone, BufferCategory::kCommunication);
  received_ = counts_buffer("moe.received", shape_.ep, shape_.experts);
  gathered_ = counts_buffer("moe.gathered", group_ranks(), shape_.experts);
}

void MegatronMoe::make_experts() {
  const Transformer& model = builder_.job().model;
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  const std::int64_t width = model.num_experts * model.experts.intermediate_size;
  const std::int64_t columns = shape_.expert_intermediate;
  first_.name = "moe.first";
  first_.weight = builder_.expert_matrix(
      "moe.first_weight", first_parts(model, "moe.experts", width), 0, accumulates, shape_.weight);
  first_.input = in_.read;
  first_.output = expert_buffer("moe.first_output", columns * widths(model), saved);
  if (keeps_narrow()) {
    const std::int64_t rows = hottest(expert_rows(), most_expert_rows());
    first_narrow_ = rows_buffer("moe.first_output_narrow", DataType::kFp8, rows, most_expert_rows(),
                                columns * widths(model), saved);
    first_widened_ = expert_buffer("moe.first_output_widened", columns * widths(model), once);
  }
  first_.output_gradient =
      expert_buffer("moe.first_output_gradient", columns * widths(model), gradient_copies());
  first_.input_gradient = in_gradient_.sorted;
  second_.name = "moe.second";
  second_.weight =
      builder_.expert_matrix("moe.second_weight",
                             {{"moe.experts.down_weight", model.num_experts * model.hidden_size,
                               model.experts.intermediate_size}},
                             1, accumulates, shape_.weight);
  second_.input = expert_buffer("moe.activation", columns, saved);
  second_.input_gradient = expert_buffer("moe.activation_gradient", columns, once);
  second_.output = out_.sorted;
  second_.output_gradient = out_gradient_.read;
}

void MegatronMoe::quantise() {
  const auto experts = [&](Linear& linear, int input_rows, int gradient_rows) {
    linear.quantised.emplace(
        builder_, linear.name, linear.weight,
        QuantisedLinear::Operands{.rows = hottest(expert_rows(), most_expert_rows()),
                                  .most_rows = most_expert_rows(),
                                  .by_load = true,
                                  .groups = shape_.experts,
                                  .input_rows = input_rows,
                                  .gradient_rows = gradient_rows});
  };
  const bool narrow = multiplies_narrow();
  experts(first_, narrow ? in_.read : -1, -1);
  experts(second_, -1, narrow ? out_gradient_.read : -1);
  if (!shared_) return;
  shared_->first.quantised.emplace(builder_, shared_->first.name, shared_->first.weight,
                                   QuantisedLinear::Shared::kInput);
  shared_->second.quantised.emplace(builder_, shared_->second.name, shared_->second.weight,
                                    QuantisedLinear::Shared::kGradient);
}

void MegatronMoe::each_quantised(const std::function<void(QuantisedLinear&)>& each) {
  each(*first_.quantised);
  each(*second_.quantised);
  if (!shared_) return;
  each(*shared_->first.quantised);
  each(*shared_->second.quantised);
}

void MegatronMoe::make_mix() {
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const bool accumulates = builder_.job().software.accumulation == GradientAccumulation::kFused;
  const Split split = shape_.sequence_parallel ? Split::kRows : Split::kNone;
  mix_.emplace();
  own_tokens::Linear& logits = mix_->logits;
  logits.name = "moe.mix_logits";
  logits.result = shape_.statistics;
  logits.input = input_.output;
  logits.weight = builder_.own_tokens_matrix(
      "moe.mix_weight", {{"moe.mix_weight", 2, shape_.hidden}}, true, accumulates);
  logits.output = builder_.activation("moe.mix_logits", shape_.statistics, shape_.local_tokens, 2,
                                      saved, split);
  logits.output_gradient = builder_.activation("moe.mix_logits_gradient", shape_.statistics,
                                               shape_.local_tokens, 2, gradient_copies(), split);
  logits.input_gradient = builder_.residual_stream("moe.mix_input_gradient", shape_.storage, once);
  mix_->experts_gradient =
      builder_.residual_stream("moe.mix_experts_gradient", shape_.storage, once);
  mix_->shared_gradient =
      builder_.residual_stream("moe.mix_shared_gradient", shape_.storage, gradient_copies());
  // Both are kept: the logits' gradients are made from them.
  for (const int family : {combined_, shared_->output}) {
    BufferFamily& kept = builder_.program().buffers[static_cast<std::size_t>(family)];
    kept.per_layer = kept.per_micro_batch = true;
  }
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
                                 0, true, accumulates, shape_.weight);
  first.input = input_.output;
  first.output = split("moe.shared_first_output", columns * widths(model), saved);
  first.output_gradient =
      split("moe.shared_first_output_gradient", columns * widths(model), gradient_copies());
  first.input_gradient =
      builder_.residual_stream("moe.shared_input_gradient", shape_.storage, once);
  shared_->activation = split("moe.shared_activation", columns, saved);
  shared_->activation_gradient = split("moe.shared_activation_gradient", columns, once);
  megatron_1d::RowParallel& second = shared_->second;
  second.name = "moe.shared_second";
  second.compute = shape_.compute;
  second.weight = builder_.matrix("moe.shared_second_weight",
                                  {{"moe.shared.down_weight", shape_.hidden, width}}, 1, true,
                                  accumulates, shape_.weight);
  second.input = shared_->activation;
  second.input_gradient = shared_->activation_gradient;
  const bool kept = builder_.job().plan.kept_parts.shared_experts;
  shared_->output = second.output =
      builder_.residual_stream("moe.shared_output", shape_.storage, kept ? saved : once);
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
  const bool sorts = kind == RoutingKind::kSort || kind == RoutingKind::kUnsort;
  const bool chooses = kind == RoutingKind::kChoose || kind == RoutingKind::kChooseBackward;
  if (gathers_tokens() && !chooses && !sorts) result.tokens = routed_tokens();
  result.rows = sorts || gathers_tokens() ? received_rows() : shape_.sent_rows;
  result.parts = gathers_tokens() ? 1 : group_ranks();
  result.local_experts = shape_.experts;
  if (sorts) result.multiple = multiple();
  result.type = shape_.storage;
  result.score = rules_.score;
  result.groups = model.groups;
  result.groups_per_token = model.groups_per_token;
  if (kind == RoutingKind::kAssign) {
    result.capacity = shape_.capacity;
    result.token_groups = job.plan.moe.token_groups * (gathers_tokens() ? group_ranks() : 1);
    result.own_experts = gathers_tokens();
    result.by_score = rules_.by_score;
    result.padded = rules_.padded;
  }
  const bool counts = kind == RoutingKind::kAssign && !gathers_tokens();
  result.with_chosen = chosen_ >= 0 && (counts || kind == RoutingKind::kChooseBackward);
  // Switch Transformer, arXiv 2101.03961, equations 4 to 6, of a micro-batch's tokens.
  if (kind == RoutingKind::kChooseBackward && chosen_ >= 0) {
    result.auxiliary = rules_.auxiliary * static_cast<double>(result.experts) * shape_.loss_scale /
                       static_cast<double>(result.per_token * shape_.tokens * shape_.cp);
  }
  return result;
}

// A token's weights, each a row of its own.
Routing MegatronMoe::routing_of_weights(RoutingKind kind) const {
  Routing result = routing(kind);
  result.tokens *= result.per_token;
  result.per_token = result.columns = 1;
  result.type = shape_.statistics;
  return result;
}

// Megatron-LM, transformer_layer.py: the router with its norm, the exchange's preparation, the
// shared experts where they are not beside the exchange.
void MegatronMoe::capture(OperationList& list, int first, int graph) const {
  const Software& software = builder_.job().software;
  if (software.launch == Launch::kCudaGraph && software.graph_scope.router)
    list.capture(first, graph);
}

void MegatronMoe::route(OperationList& list) {
  const int first = list.size();
  own_tokens::forward(builder_, list, router_);
  list.add("moe.choose", routing(RoutingKind::kChoose), {{router_.output}},
           {{choice_}, {weights_}, {scores_}});
  capture(list, first, kMlpGraph);
  if (gathers_tokens()) {
    if (chosen_ >= 0) count_chosen(list);
    sum_chosen(list);
    return assign_gathered(list);
  }
  std::vector<BufferRef> assigned = {{counts_}, {rows_}};
  if (chosen_ >= 0) assigned.push_back({chosen_});
  list.add("moe.assign", routing(RoutingKind::kAssign), {{choice_}, {weights_}},
           std::move(assigned));
  sum_chosen(list);
  if (!exchanges()) return;
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = builder_.job().model.num_experts * group_ranks();
  gather.type = DataType::kInt32;
  list.add("moe.counts_gather", gather, {{counts_}}, {{all_counts_}}, Cause::kExpertParallel);
  list.last().group = builder_.group({"etp", "ep"});
  list.add("moe.splits", routing(RoutingKind::kSplits), {{all_counts_}},
           {{received_}, {gathered_}});
  // token_dispatcher.py, cuda_sync_point.
  list.last().host_waits = rules_.host_learns_counts;
}

// Where the rank's rows are found among all gathered tokens, and its own choices counted apart.
void MegatronMoe::count_chosen(OperationList& list) {
  Routing own = routing(RoutingKind::kAssign);
  own.tokens = shape_.local_tokens;
  own.token_groups = builder_.job().plan.moe.token_groups;
  own.own_experts = false;
  own.with_chosen = true;
  list.add("moe.count_chosen", own, {{choice_}, {weights_}},
           {{own_counts_}, {own_rows_}, {chosen_}});
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

GroupedGemm MegatronMoe::product(const Linear& linear, GemmRole role) const {
  const Parameter& weight = builder_.parameter(linear.weight);
  GroupedGemm gemm;
  gemm.role = role;
  gemm.groups = shape_.experts;
  gemm.m = expert_rows();
  gemm.n = weight.rows / shape_.experts;
  gemm.k = weight.columns;
  gemm.type = shape_.compute;
  gemm.output = shape_.storage;
  gemm.multiple = multiple();
  return gemm;
}

void MegatronMoe::grouped(OperationList& list, const Linear& linear, GemmRole role) {
  const bool forward = role == GemmRole::kForward;
  BufferRef input{forward ? linear.input : linear.output_gradient};
  BufferRef weight{builder_.parameter(linear.weight).family};
  if (linear.quantised) {
    const QuantisedLinear& copies = *linear.quantised;
    input = forward ? copies.quantise_input(list, input) : copies.quantise_gradient(list, input);
    weight = forward ? copies.forward_weight(list) : copies.backward_weight(list);
  }
  list.add(linear.name + (forward ? "" : "_dgrad"), product(linear, role),
           {input, weight, {gathered_}}, {{forward ? linear.output : linear.input_gradient}});
  list.last().by_load = true;
  await(list);
}

void MegatronMoe::weight_gradient(OperationList& list, const Linear& linear) {
  const Parameter& weight = builder_.parameter(linear.weight);
  GroupedGemm gemm = product(linear, GemmRole::kWeightGradient);
  std::vector<BufferRef> reads = {{linear.output_gradient}, {linear.input}, {gathered_}};
  if (linear.quantised) {
    reads = {
        linear.quantised->gradient_by_columns(), linear.quantised->input_by_columns(), {gathered_}};
  }
  if (builder_.job().software.accumulation == GradientAccumulation::kFused) {
    gemm.accumulate = !shape_.fresh_gradients;
    gemm.output = shape_.gradient;
    if (gemm.accumulate) reads.push_back({weight.gradient});
    list.add(linear.name + "_wgrad", gemm, std::move(reads), {{weight.gradient}});
    list.last().by_load = true;
    return;
  }
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

// With the weights of the rows, where they have come along.
void MegatronMoe::expert_activation(OperationList& list, bool backward) {
  std::vector<BufferRef> reads = {{backward && keeps_narrow() ? first_widened_ : first_.output}};
  if (backward) reads.insert(reads.begin(), {second_.input_gradient});
  const std::string name = backward ? "moe.activation_backward" : "moe.activation";
  activation(list, name, expert_rows(), shape_.expert_intermediate, std::move(reads),
             backward ? first_.output_gradient : second_.input, backward);
  TemplateOperation& added = list.last();
  added.by_load = true;
  if (!sends_weights()) return;
  std::get<Kernel>(added.operation).bias = true;
  added.reads.push_back({sent_weights_.read});
  if (backward) added.writes.push_back({sent_weights_gradient_.sorted});
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

void MegatronMoe::forward(OperationList& list, const LayerParts& kept) {
  const bool with_shared = shared_ && !kept.shared_experts;
  const int first = list.size();
  route(list);
  permute(list, "moe.permute", {input_.output}, in_);
  if (sends_weights()) {
    list.add("moe.permute_weights", routing_of_weights(RoutingKind::kPermute),
             {{weights_}, {rows_}}, {{sent_weights_.made}});
  }
  if (captures_preprocess()) capture(list, first, kMlpGraph);
  const Ways in = sends_weights() ? Ways{&sent_weights_, &in_} : Ways{&in_};
  send(list, in, [&] {
    if (with_shared) shared_first(list);
  });
  grouped(list, first_, GemmRole::kForward);
  const std::int64_t wide = shape_.expert_intermediate * widths(builder_.job().model);
  if (keeps_narrow()) {
    list.add("moe.first_output_narrow", narrowing(expert_rows(), wide), {{first_.output}},
             {{first_narrow_}});
    list.last().by_load = true;
  }
  if (!kept.expert_activation) expert_activation(list, false);
  grouped(list, second_, GemmRole::kForward);
  send_back(list, {&out_}, [&] {
    if (with_shared) shared_second(list);
  });
  combine(list, shared_ ? combined_ : output_);
  if (!shared_) return;
  if (with_shared && !overlaps()) {
    const int shared = list.size();
    shared_first(list);
    shared_second(list);
    capture(list, shared, kSharedGraph);
  }
  if (mix_) return mix(list);
  add(list, "moe.shared_add", KernelKind::kResidualAdd, combined_, shared_->output, output_);
}

void MegatronMoe::combine(OperationList& list, int result) {
  if (sends_weights()) return permute_back(list, "moe.combine", out_, result);
  const int sums = gathers_tokens() ? all_sums_ : result;
  const int weights = gathers_tokens() ? all_weights_ : weights_;
  list.add("moe.combine", routing(RoutingKind::kCombine), {{out_.sent}, {rows_}, {weights}},
           {{sums}});
  list.last().by_load = gathers_tokens();
  await(list);
  if (!gathers_tokens()) return;
  scatter_sums(list, "moe.output_sums_scatter", sums, result, shape_.hidden, shape_.storage);
}

void MegatronMoe::combine_backward(OperationList& list, BufferRef output_gradient) {
  if (sends_weights()) {
    return permute(list, "moe.combine_backward", output_gradient, out_gradient_);
  }
  if (!gathers_tokens()) {
    list.add("moe.combine_backward", routing(RoutingKind::kCombineBackward),
             {output_gradient, {out_.sent}, {rows_}, {weights_}},
             {{out_gradient_.made}, {weights_gradient_}});
    return;
  }
  gather_tokens(list, "moe.output_gradient_tokens_gather", output_gradient, all_tokens_,
                shape_.hidden, shape_.storage);
  list.add("moe.combine_backward", routing(RoutingKind::kCombineBackward),
           {{all_tokens_}, {out_.sent}, {rows_}, {all_weights_}},
           {{out_gradient_.made}, {all_weights_gradient_}});
  list.last().by_load = true;
  scatter_sums(list, "moe.weights_gradient_scatter", all_weights_gradient_, weights_gradient_,
               builder_.job().model.experts.per_token, shape_.statistics);
}

Kernel MegatronMoe::mix_kernel(KernelKind kind) const {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = shape_.local_tokens;
  kernel.columns = shape_.hidden;
  kernel.type = kernel.output = shape_.storage;
  return kernel;
}

void MegatronMoe::mix(OperationList& list) {
  own_tokens::forward(builder_, list, mix_->logits);
  list.add("moe.mix", mix_kernel(KernelKind::kMixForward),
           {{combined_}, {shared_->output}, {mix_->logits.output}}, {{output_}});
}

void MegatronMoe::mix_backward(OperationList& list, BufferRef output_gradient) {
  list.add("moe.mix_backward", mix_kernel(KernelKind::kMixBackward),
           {output_gradient, {combined_}, {shared_->output}, {mix_->logits.output}},
           {{mix_->experts_gradient}, {mix_->shared_gradient}, {mix_->logits.output_gradient}});
}

void MegatronMoe::backward(OperationList& list, BufferRef output_gradient, bool weights) {
  BufferRef shared_gradient = output_gradient;
  if (mix_) {
    mix_backward(list, output_gradient);
    output_gradient = {mix_->experts_gradient};
    shared_gradient = {mix_->shared_gradient};
  }
  combine_backward(list, output_gradient);
  send(list, {&out_gradient_}, [&] { shared_second_backward(list, shared_gradient, weights); });
  grouped(list, second_, GemmRole::kInputGradient);
  const std::int64_t wide = shape_.expert_intermediate * widths(builder_.job().model);
  if (keeps_narrow()) {
    list.add("moe.first_output_widen", widening(expert_rows(), wide), {{first_narrow_}},
             {{first_widened_}});
    list.last().by_load = true;
  }
  if (shape_.recomputed.expert_activation) {
    expert_activation(list, false);
    if (keeps_narrow()) list.last().reads.front() = {first_widened_};
    if (second_.quantised) second_.quantised->quantise_input(list, {second_.input});
  }
  if (weights) weight_gradient(list, second_);
  expert_activation(list, true);
  grouped(list, first_, GemmRole::kInputGradient);
  if (weights) weight_gradient(list, first_);
  const Ways back =
      sends_weights() ? Ways{&sent_weights_gradient_, &in_gradient_} : Ways{&in_gradient_};
  send_back(list, back, [&] { shared_first_backward(list, weights); });
  int captured = list.size();
  permute_back(list, "moe.permute_backward", in_gradient_, input_.output_gradient);
  if (sends_weights()) {
    list.add("moe.permute_weights_backward", routing_of_weights(RoutingKind::kPermuteBackward),
             {{sent_weights_gradient_.sent}, {rows_}}, {{weights_gradient_}});
  }
  if (!captures_preprocess()) captured = list.size();
  choose_backward(list, weights);
  if (!shared_) return capture(list, captured, kMlpGraph);
  if (!overlaps()) {
    if (shape_.recomputed.shared_experts) {
      // The framework runs the whole part again, its last product too.
      shared_first(list);
      shared_second(list);
    }
    shared_second_backward(list, shared_gradient, weights);
    shared_first_backward(list, weights);
  }
  add(list, "moe.shared_gradient_add", KernelKind::kGradientAdd, input_.output_gradient,
      shared_->first.input_gradient, input_.output_gradient);
  list.last().after = std::exchange(shared_after_, {});
  capture(list, captured, kMlpGraph);
  if (!mix_) return;
  own_tokens::backward_input(builder_, list, mix_->logits);
  add(list, "moe.mix_gradient_add", KernelKind::kGradientAdd, input_.output_gradient,
      mix_->logits.input_gradient, input_.output_gradient);
  if (weights) own_tokens::backward_weight(builder_, list, mix_->logits);
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
  second.output_gradient = mix_ ? BufferRef{mix_->shared_gradient} : output_gradient;
  if (mix_) own_tokens::backward_weight(builder_, list, mix_->logits);
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
