#include "sim/program/sequence/spread_attention.hpp"

#include "sim/plan/packing.hpp"
#include "sim/program/sequence/gathered_attention.hpp"
#include "sim/program/sequence/ring_attention.hpp"
#include "sim/program/sequence/ulysses.hpp"

namespace headway {

using Split = ProgramBuilder::Split;

namespace {

// Queries against the keys that the rank itself holds: all of them, after Ulysses' exchange.
class WholeAttention : public SpreadCore {
 public:
  WholeAttention(ProgramBuilder& builder, const AttentionOperands& operands)
      : builder_(builder), operands_(operands) {}

  void forward(OperationList& list, const std::string& name, int context) override {
    std::vector<BufferRef> writes = {{context}};
    writes.insert(writes.end(), operands_.statistics.begin(), operands_.statistics.end());
    list.add(name, core_shape(builder_, false),
             {{operands_.queries}, {operands_.keys}, {operands_.values}}, std::move(writes));
  }
  std::vector<int> begin_backward(OperationList&) override { return {}; }
  void backward(OperationList& list, BufferRef context_gradient, int context,
                const std::vector<int>&) override {
    std::vector<BufferRef> reads = {
        context_gradient, {operands_.queries}, {operands_.keys}, {operands_.values}, {context}};
    reads.insert(reads.end(), operands_.statistics.begin(), operands_.statistics.end());
    list.add("attention.core_backward", core_shape(builder_, true), std::move(reads),
             {{operands_.query_gradient}, {operands_.key_gradient}, {operands_.value_gradient}});
  }

 private:
  ProgramBuilder& builder_;
  AttentionOperands operands_;
};

std::unique_ptr<SpreadCore> make_core(ProgramBuilder& builder, const AttentionOperands& operands) {
  if (builder.shape().ring == 1) return std::make_unique<WholeAttention>(builder, operands);
  if (builder.job().plan.cp_kind == ContextParallelKind::kAllGather) {
    return std::make_unique<GatheredAttention>(builder, operands);
  }
  return std::make_unique<RingAttention>(builder, operands);
}

Kernel columns(const ProgramBuilder& builder, KernelKind kind, std::int64_t count) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.rows = builder.shape().tokens;
  kernel.columns = count;
  kernel.type = kernel.output = builder.shape().storage;
  return kernel;
}

// Megatron-LM's fused mask and softmax (fused_softmax.py, is_kernel_available): a thread block
// takes four rows of scores of different heads or sequences, and their number must divide by that.
bool fused_softmax_takes(const Attention& core) {
  constexpr std::int64_t kRowsPerBlock = 4;
  return (core.batch * core.heads) % kRowsPerBlock == 0 && core.sequence_q % kRowsPerBlock == 0;
}

}  // namespace

Attention core_shape(const ProgramBuilder& builder, bool backward) {
  const StepShape& shape = builder.shape();
  const Software& software = builder.job().software;
  Attention core;
  core.backward = backward;
  core.batch = shape.core_sequences;
  core.heads = shape.core_heads;
  core.kv_heads = shape.core_key_value_heads;
  core.sequence_q = core.sequence_kv = shape.core_sequence;
  core.head_dim = shape.head_dim;
  core.head_dim_v = shape.value_head_dim;
  core.window = shape.window;
  core.dropout = shape.dropout;
  core.kernel = software.attention;
  core.fused = core.kernel != AttentionKernel::kUnfused ||
               (software.fused_kernels && fused_softmax_takes(core));
  core.type = shape.storage;
  core.apart = shape.cp > 1;
  core.parts = shape.ulysses;
  core.ring = shape.ring;
  core.order = shape.order;
  if (!builder.job().packs.empty()) core.document = mean_document(builder.job().packs);
  return core;
}

SpreadAttention::SpreadAttention(ProgramBuilder& builder, const std::vector<BufferRef>& statistics)
    : builder_(builder), shape_(builder.shape()) {
  const std::int64_t rows = shape_.tokens * shape_.ulysses;
  const std::int64_t widths[] = {shape_.core_heads * shape_.head_dim,
                                 shape_.core_key_value_heads * shape_.head_dim,
                                 shape_.core_key_value_heads * shape_.value_head_dim};
  const std::int64_t context_width = shape_.core_heads * shape_.value_head_dim;
  const auto make = [&](const std::string& name, std::int64_t width, Copies copies,
                        BufferCategory category = BufferCategory::kActivation) {
    return builder_.activation("attention." + name, shape_.storage, rows, width, copies,
                               Split::kColumns, category);
  };
  const Copies saved = Copies::kPerLayerAndMicroBatch, once = Copies::kScratch;
  operands_.statistics = statistics;
  operands_.queries = make("queries", widths[0], saved);
  operands_.keys = make("keys", widths[1], saved);
  operands_.values = make("values", widths[2], saved);
  operands_.query_gradient = make("query_gradient", widths[0], once);
  operands_.key_gradient = make("key_gradient", widths[1], once);
  operands_.value_gradient = make("value_gradient", widths[2], once);
  if (exchanges()) {
    const BufferCategory sent = BufferCategory::kCommunication;
    pieces_ = {make("query_pieces", widths[0], once, sent),
               make("key_pieces", widths[1], once, sent),
               make("value_pieces", widths[2], once, sent)};
    context_pieces_ = make("context_pieces", context_width, once, sent);
    core_context_ = make("core_context", context_width, saved);
    core_context_gradient_ = make("core_context_gradient", context_width, once);
  }
  core_ = make_core(builder_, operands_);
}

void SpreadAttention::forward(OperationList& list, int qkv, int context, bool kept) {
  const std::vector<int> whole = {operands_.queries, operands_.keys, operands_.values};
  const std::vector<int>& cut = exchanges() ? pieces_ : whole;
  list.add("attention.split", columns(builder_, KernelKind::kSplitColumns, shape_.qkv_columns),
           {{qkv}}, {{cut[0]}, {cut[1]}, {cut[2]}});
  const char* const names[] = {"attention.exchange_queries", "attention.exchange_keys",
                               "attention.exchange_values"};
  for (std::size_t i = 0; exchanges() && i < cut.size(); ++i) {
    ulysses::exchange(builder_, list, names[i], cut[i], whole[i]);
  }
  if (kept) return;
  core_->forward(list, "attention.core", exchanges() ? core_context_ : context);
  if (!exchanges()) return;
  ulysses::exchange(builder_, list, "attention.exchange_context", core_context_, context_pieces_);
  list.add("attention.join_context",
           columns(builder_, KernelKind::kJoinColumns, shape_.context_columns), {{context_pieces_}},
           {{context}});
}

void SpreadAttention::again(OperationList& list, int context) {
  core_->forward(list, "attention.core_again", exchanges() ? core_context_ : context);
}

void SpreadAttention::backward(OperationList& list, BufferRef context_gradient, int context,
                               int qkv_gradient) {
  if (exchanges()) {
    list.add("attention.split_context_gradient",
             columns(builder_, KernelKind::kSplitColumns, shape_.context_columns),
             {context_gradient}, {{context_pieces_}});
    ulysses::exchange(builder_, list, "attention.exchange_context_gradient", context_pieces_,
                      core_context_gradient_);
    context_gradient = {core_context_gradient_};
    context = core_context_;
  }
  core_->backward(list, context_gradient, context, begun_);
  std::vector<int> gradients = {operands_.query_gradient, operands_.key_gradient,
                                operands_.value_gradient};
  const char* const names[] = {"attention.exchange_query_gradient",
                               "attention.exchange_key_gradient",
                               "attention.exchange_value_gradient"};
  for (std::size_t i = 0; exchanges() && i < gradients.size(); ++i) {
    ulysses::exchange(builder_, list, names[i], gradients[i], pieces_[i]);
    gradients[i] = pieces_[i];
  }
  list.add("attention.join_gradients",
           columns(builder_, KernelKind::kJoinColumns, shape_.qkv_columns),
           {{gradients[0]}, {gradients[1]}, {gradients[2]}}, {{qkv_gradient}});
}

}  // namespace headway
