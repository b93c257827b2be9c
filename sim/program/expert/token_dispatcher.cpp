// Buffers of the ways to the experts and back, and the operations on them: Megatron-LM's
// transformer/moe/token_dispatcher.py, with DeepEP's and HybridEP's volumes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/expert/dispatch_volume.hpp"
#include "sim/program/expert/megatron_moe.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

namespace {

// Multiprocessors that a dispatch or a return keeps busy: DeepEP's (deep_ep/buffer.py, num_sms; the
// 20 of DeepSeek-V3, arXiv 2412.19437, section 3.2.2), HybridEP's (Megatron-LM,
// --moe-hybridep-num-sms).
constexpr std::int64_t kDeepEpMultiprocessors = 20;
constexpr std::int64_t kHybridEpMultiprocessors = 16;

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

// -- Buffers
// ----------------------------------------------------------------------------------------

// Of all tokens of the expert group, each with as many choices here as there are experts.
std::int64_t MegatronMoe::most_received_rows() const {
  const ExpertLayers& model = builder_.job().model.experts;
  if (rules_.padded) return 0;
  if (exchanges() || gathers_tokens()) {
    return shape_.local_tokens * group_ranks() * std::min(model.per_token, shape_.experts);
  }
  return most_sent_rows();
}

// Where the routing decides how many are sent; else 0.
std::int64_t MegatronMoe::most_sent_rows() const {
  const bool cut = shape_.capacity > 0 && !rules_.padded;
  return cut ? shape_.local_tokens * builder_.job().model.experts.per_token : 0;
}

std::int64_t MegatronMoe::expert_rows() const {
  if (multiple() == 1) return received_rows();
  if (rules_.padded) {
    return shape_.experts * rounded_up(received_rows() / shape_.experts, multiple());
  }
  return rounded_up(received_rows() + shape_.experts * (multiple() / 2), multiple());
}

std::int64_t MegatronMoe::most_expert_rows() const {
  if (multiple() == 1) return most_received_rows();
  if (rules_.padded) return 0;
  return std::max(most_received_rows(), received_rows()) + shape_.experts * (multiple() - 1);
}

// Memory is what the rank with the hottest experts needs.
std::int64_t MegatronMoe::hottest(std::int64_t rows, std::int64_t most) const {
  const double needed = static_cast<double>(rows) * shape_.hottest_load;
  return most > 0 ? std::min(static_cast<std::int64_t>(std::ceil(needed)), most) : rows;
}

int MegatronMoe::rows_buffer(const std::string& name, DataType type, std::int64_t rows,
                             std::int64_t most, std::int64_t columns, Copies copies) {
  const int family = builder_.activation(name, type, rows, columns, copies);
  builder_.program().buffers[static_cast<std::size_t>(family)].most_rows = most;
  return family;
}

int MegatronMoe::expert_buffer(const std::string& name, std::int64_t columns, Copies copies) {
  return rows_buffer(name, shape_.storage, hottest(expert_rows(), most_expert_rows()),
                     most_expert_rows(), columns, copies);
}

MegatronMoe::Exchange MegatronMoe::make_exchange(const std::string& name, std::int64_t columns,
                                                 DataType type, bool narrow, Copies kept) {
  const Copies once = Copies::kScratch;
  const std::int64_t received = hottest(received_rows(), most_received_rows());
  const std::int64_t sent = gathers_tokens() ? received : shape_.sent_rows;
  const std::int64_t most_sent = gathers_tokens() ? most_received_rows() : most_sent_rows();
  const bool widens = narrow && !multiplies_narrow();
  Exchange made{.name = "moe." + name, .columns = columns};
  made.type = narrow ? DataType::kFp8 : type;
  const auto buffer = [&](const char* stage, std::int64_t rows, std::int64_t most, bool last) {
    return rows_buffer(made.name + "_" + stage, made.type, rows, most, columns,
                       last && !widens ? kept : once);
  };
  made.sent = buffer("sent", sent, most_sent, !exchanges() && !sorts());
  made.made =
      narrow ? rows_buffer(made.name + "_made", type, sent, most_sent, columns, once) : made.sent;
  made.received = made.sent;
  if (sends()) {
    made.received = buffer("received", hottest(shape_.sent_rows, most_received_rows()),
                           most_received_rows(), !gathers() && !sorts());
  }
  made.gathered = made.received;
  if (gathers()) made.gathered = buffer("gathered", received, most_received_rows(), !sorts());
  made.sorted = made.gathered;
  if (sorts()) {
    made.sorted =
        buffer("sorted", hottest(expert_rows(), most_expert_rows()), most_expert_rows(), true);
  }
  made.read = made.sorted;
  if (widens) {
    made.read = rows_buffer(made.name + "_read", type, hottest(expert_rows(), most_expert_rows()),
                            most_expert_rows(), columns, kept);
  }
  return made;
}

void MegatronMoe::make_ways() {
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const std::int64_t hidden = shape_.hidden;
  const bool narrow = plan().dispatch_in_8_bits;
  in_ = make_exchange("input", hidden, shape_.storage, narrow, saved);
  out_ = make_exchange("output", hidden, shape_.storage, false, once);
  out_gradient_ =
      make_exchange("output_gradient", hidden, shape_.storage, narrow, gradient_copies());
  in_gradient_ = make_exchange("input_gradient", hidden, shape_.storage, false, once);
  if (gathers_tokens()) make_gathered_tokens();
  if (sends_weights()) {
    sent_weights_ = make_exchange("sent_weights", 1, shape_.statistics, false, saved);
    sent_weights_gradient_ =
        make_exchange("sent_weights_gradient", 1, shape_.statistics, false, once);
    return;
  }
  // What comes back is kept: the weights' gradients are made from it.
  BufferFamily& returned = builder_.program().buffers[static_cast<std::size_t>(out_.sent)];
  returned.per_layer = returned.per_micro_batch = true;
}

void MegatronMoe::make_gathered_tokens() {
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  const std::int64_t tokens = routed_tokens();
  const std::int64_t per_token = builder_.job().model.experts.per_token;
  const auto buffer = [&](const char* name, DataType type, std::int64_t columns, Copies copies) {
    return builder_.activation(name, type, tokens, columns, copies, Split::kNone,
                               BufferCategory::kCommunication);
  };
  all_choice_ = buffer("moe.all_choice", DataType::kInt32, per_token, once);
  all_weights_ = buffer("moe.all_weights", shape_.statistics, per_token, saved);
  all_weights_gradient_ = buffer("moe.all_weights_gradient", shape_.statistics, per_token, once);
  all_tokens_ = buffer("moe.all_tokens", shape_.storage, shape_.hidden, once);
  all_sums_ = buffer("moe.all_sums", shape_.storage, shape_.hidden, once);
}

// -- Operations
// -------------------------------------------------------------------------------------

void MegatronMoe::exchange(OperationList& list, const std::string& name, CollectiveKind kind,
                           Shares shares, const char* axis, const Exchange& way, int from, int to) {
  const bool all_to_all = kind == CollectiveKind::kAllToAll;
  Collective collective;
  collective.kind = kind;
  collective.elements = (all_to_all ? shape_.sent_rows : received_rows()) * way.columns;
  collective.type = way.type;
  collective.shares = shares;
  if (all_to_all) reduce_volume(collective, way.columns);
  const int counts = all_to_all || !sends() ? counts_ : received_;
  list.add(way.name + name, collective, {{from}, {counts}}, {{to}}, Cause::kExpertParallel);
  list.last().group = builder_.group({axis});
  list.last().by_load = true;
}

// DeepEP and HybridEP send a token once to each rank that holds experts of it, and over the network
// once to each node, whose GPUs spread it among themselves.
void MegatronMoe::reduce_volume(Collective& collective, std::int64_t columns) const {
  if (plan().dispatch != Dispatch::kDeepEp && plan().dispatch != Dispatch::kHybridEp) return;
  const DispatchVolume volume = dispatch_volume(builder_.job());
  const auto elements = [&](double copies) {
    const double rows = copies * static_cast<double>(shape_.local_tokens);
    return static_cast<std::int64_t>(std::llround(rows)) * columns;
  };
  collective.elements = std::min(collective.elements, elements(volume.ranks));
  collective.network_elements = std::min(collective.elements, elements(volume.remote_nodes));
  collective.multiprocessors =
      plan().dispatch == Dispatch::kDeepEp ? kDeepEpMultiprocessors : kHybridEpMultiprocessors;
}

// What was just added travels on a stream of its own, from where the compute stream has come to.
void MegatronMoe::put_beside(OperationList& list) {
  if (!travels_beside()) return;
  travelling_ = list.size() - 1;
  int made = travelling_ - 1;
  while (list.at(made).stream != 0) --made;
  list.last().stream = builder_.stream("ep");
  list.last().after = {made};
}

// Tokens travel beside what `meanwhile` adds, and beside another pass; whoever uses them waits
// (await).
void MegatronMoe::travel(OperationList& list, const Part& meanwhile) {
  if (overlaps()) meanwhile();
  if (plan().overlap && sends()) list.cut();
}

void MegatronMoe::await(OperationList& list) {
  if (travelling_ >= 0) list.last().after.push_back(travelling_);
  travelling_ = -1;
}

void MegatronMoe::send(OperationList& list, const Ways& ways, const Part& meanwhile) {
  for (const Exchange* way : ways) narrow(list, *way);
  if (sends()) {
    for (const Exchange* way : ways) {
      exchange(list, "_dispatch", CollectiveKind::kAllToAll, Shares::kByCounts, "ep", *way,
               way->sent, way->received);
      put_beside(list);
    }
    travel(list, meanwhile);
  }
  for (const Exchange* way : ways) {
    if (gathers()) {
      exchange(list, "_gather", CollectiveKind::kAllGather, Shares::kByCounts, "etp", *way,
               way->received, way->gathered);
      await(list);
    }
    if (sorts()) sort(list, *way, RoutingKind::kSort);
    widen(list, *way);
  }
}

void MegatronMoe::send_back(OperationList& list, const Ways& ways, const Part& meanwhile) {
  for (const Exchange* way : ways) {
    if (sorts()) sort(list, *way, RoutingKind::kUnsort);
    if (gathers()) {
      exchange(list, "_scatter", CollectiveKind::kReduceScatter, Shares::kByCounts, "etp", *way,
               way->gathered, way->received);
    }
  }
  if (!sends()) return;
  for (const Exchange* way : ways) {
    exchange(list, "_return", CollectiveKind::kAllToAll, Shares::kBackByCounts, "ep", *way,
             way->received, way->sent);
    put_beside(list);
  }
  travel(list, meanwhile);
}

void MegatronMoe::sort(OperationList& list, const Exchange& way, RoutingKind kind) {
  Routing sort = routing(kind);
  sort.columns = way.columns;
  sort.type = way.type;
  const bool back = kind == RoutingKind::kUnsort;
  list.add(way.name + (back ? "_unsort" : "_sort"), sort,
           {{back ? way.sorted : way.gathered}, {gathered_}}, {{back ? way.gathered : way.sorted}});
  list.last().by_load = true;
  if (!back) await(list);
}

Kernel MegatronMoe::narrowing(std::int64_t rows, std::int64_t columns) const {
  Kernel quantise;
  quantise.kind = KernelKind::kQuantise;
  quantise.rows = rows;
  quantise.columns = columns;
  quantise.type = shape_.storage;
  quantise.output = DataType::kFp8;
  quantise.scaling = Scaling::kBlock;
  quantise.block_rows = 1;
  quantise.block_columns = kDispatchBlock;
  return quantise;
}

Kernel MegatronMoe::widening(std::int64_t rows, std::int64_t columns) const {
  Kernel cast;
  cast.kind = KernelKind::kCast;
  cast.rows = rows;
  cast.columns = columns;
  cast.type = DataType::kFp8;
  cast.output = shape_.storage;
  return cast;
}

void MegatronMoe::narrow(OperationList& list, const Exchange& way) {
  if (way.made == way.sent) return;
  list.add(way.name + "_narrow", narrowing(shape_.sent_rows, way.columns), {{way.made}},
           {{way.sent}});
}

void MegatronMoe::widen(OperationList& list, const Exchange& way) {
  if (way.read == way.sorted) return;
  list.add(way.name + "_widen", widening(expert_rows(), way.columns), {{way.sorted}}, {{way.read}});
  list.last().by_load = true;
  await(list);
}

void MegatronMoe::permute(OperationList& list, const std::string& name, BufferRef tokens,
                          const Exchange& way) {
  if (gathers_tokens()) {
    gather_tokens(list, way.name + "_tokens_gather", tokens, all_tokens_, shape_.hidden,
                  shape_.storage);
    tokens = {all_tokens_};
  }
  list.add(name, routing(RoutingKind::kPermute), {tokens, {rows_}}, {{way.made}});
  list.last().by_load = gathers_tokens();
}

void MegatronMoe::permute_back(OperationList& list, const std::string& name, const Exchange& way,
                               int tokens) {
  const int sums = gathers_tokens() ? all_sums_ : tokens;
  list.add(name, routing(RoutingKind::kPermuteBackward), {{way.sent}, {rows_}}, {{sums}});
  list.last().by_load = gathers_tokens();
  await(list);
  if (!gathers_tokens()) return;
  scatter_sums(list, way.name + "_sums_scatter", all_sums_, tokens, shape_.hidden, shape_.storage);
}

void MegatronMoe::gather_tokens(OperationList& list, const std::string& name, BufferRef own,
                                int all, std::int64_t columns, DataType type) {
  Collective gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.elements = routed_tokens() * columns;
  gather.type = type;
  list.add(name, gather, {own}, {{all}}, Cause::kExpertParallel);
  list.last().group = builder_.group({"etp", "ep"});
}

void MegatronMoe::scatter_sums(OperationList& list, const std::string& name, int all, int own,
                               std::int64_t columns, DataType type) {
  Collective scatter;
  scatter.kind = CollectiveKind::kReduceScatter;
  scatter.elements = routed_tokens() * columns;
  scatter.type = type;
  list.add(name, scatter, {{all}}, {{own}}, Cause::kExpertParallel);
  list.last().group = builder_.group({"etp", "ep"});
}

// Which rows the rank's experts take of all gathered tokens.
void MegatronMoe::assign_gathered(OperationList& list) {
  const std::int64_t per_token = builder_.job().model.experts.per_token;
  gather_tokens(list, "moe.choice_gather", {choice_}, all_choice_, per_token, DataType::kInt32);
  gather_tokens(list, "moe.weights_gather", {weights_}, all_weights_, per_token, shape_.statistics);
  list.add("moe.assign", routing(RoutingKind::kAssign), {{all_choice_}, {all_weights_}},
           {{counts_}, {rows_}});
}

}  // namespace headway
