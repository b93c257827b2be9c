// The nouns that Program, cost models and kernels share: one operation of one rank, with its local
// shape, element type and operand order. A Program names buffers for the operands; a cost model prices
// the shape; a kernel computes it. Matrices are row-major; "rows" are tokens of the local micro-batch.
//
// Operand order ("reads -> writes") is part of each operation's contract; [x] is optional: it is there
// when the operation's flag says so. An operand that is updated in place stands among the writes only
// if it is overwritten whole, and among both if its old value matters.
//
// Flat groups. Where a collective or a kernel of the optimizer (kZero, kSplitSequence, kSquaredNorm,
// kClip, kSgd, kAdam, kLion, kMomentum, kDecayedStep, kCastParameters, kToHost, kToDevice) names
// several buffers for one operand, they stand for their concatenation in that order, padded with zeros
// at the end to the operand's size ("x..."). Which buffers belong to which operand follows from the
// writes, which name the same ones: kAdam writes master..., m, v and reads master..., gradient..., m, v.
//
// Shares. An all-gather concatenates, and a reduce-scatter and kSplitSequence cut, along the rows;
// along the columns where both operands have the same number of rows, more than one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "sim/core/units.hpp"
#include "sim/model/precision.hpp"

namespace headway {

// ---------------------------------------------------------------------------------------------------
// Matrix multiplications: y[m,n] = x[m,k] . w[n,k]^T and its two gradients. 2 m n k FLOPs, x batch.

enum class GemmRole : std::uint8_t {
  kForward,         // TN:  x[m,k], w[n,k], [bias[n]]      -> y[m,n]
  kInputGradient,   // NN:  dy[m,n], w[n,k]                -> dx[m,k]
  kWeightGradient,  // NT:  dy[m,n], x[m,k], [dw[n,k]]     -> dw[n,k]
};

struct Gemm {
  GemmRole role = GemmRole::kForward;
  std::int64_t m = 0, n = 0, k = 0;  // always of the forward GEMM: tokens, outputs, inputs
  std::int64_t batch = 1;            // products, one for each of as many equal blocks of rows
  DataType type = DataType::kBf16;   // of the inputs
  DataType output = DataType::kBf16;
  bool bias = false;        // forward: the bias is added in the epilogue
  bool accumulate = false;  // added into an existing y, dx or dw of type `output`, read last
  // Of a matrix cut into `runs` equal runs of rows, one for each rank of a group: the product of the
  // run that the rank `distance` places before this one has; m are its rows. An operand of all rows
  // is read, or written, there alone (and then stands among the reads too, unless it is begun). A
  // weight gradient with runs takes dy as that many buffers: this rank's, then those before it.
  std::int64_t runs = 1;
  std::int64_t distance = 0;
  // The rows of w, and of dw, stand in so many buffers, one after another; each is named where w or
  // dw would be.
  std::int64_t weights = 1;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

// ---------------------------------------------------------------------------------------------------
// Attention core: softmax(q k^T / sqrt(head_dim)) v, over packed qkv of one rank's heads.

enum class AttentionKernel : std::uint8_t { kUnfused, kFlash1, kFlash2, kFlash3, kCudnn };

// How the tokens of a sequence are dealt to the ranks of a ring: a run each; a run from the front and
// its mirror image from the back, so that causal attention is the same work for all; every n-th.
enum class TokenOrder : std::uint8_t { kContiguous, kZigzag, kStriped };

struct Attention {
  // forward:  qkv[tokens, (heads + 2 kv_heads) head_dim]   -> context[tokens, heads head_dim],
  //           statistics (fused: log-sum-exp fp32[tokens, heads]; unfused: probabilities
  //           [batch, heads, sequence_q, sequence_kv] and, with dropout, its mask and the dropped
  //           probabilities)
  // backward: dcontext, qkv, context, statistics...         -> dqkv
  // tokens = batch * sequence_q, batch-major: token index = b * sequence + s.
  // Apart:    q, k, v for qkv and dq, dk, dv for dqkv; k, v have batch * sequence_kv rows.
  bool backward = false;
  std::int64_t batch = 0, heads = 0, kv_heads = 0;
  std::int64_t sequence_q = 0, sequence_kv = 0;
  std::int64_t head_dim = 0, head_dim_v = 0;
  bool causal = true;
  std::int64_t window = 0;  // keys that a query sees at most, its own token's among them; 0: all
  bool dropout = false;
  bool fused = true;  // unfused attention: scale, mask and softmax in one kernel
  AttentionKernel kernel = AttentionKernel::kFlash2;
  DataType type = DataType::kBf16;
  // Where a sequence is spread over ranks (program/sequence), always apart. Rows of `parts` ranks
  // stand one rank after another, each batch-major in itself. The keys are those of the rank
  // `distance` places before this one in its ring, or, gathered, of all ranks of the ring, one after
  // another. Sequences are those of the operands; what of them is masked follows from the order.
  bool apart = false;
  std::int64_t parts = 1;
  std::int64_t ring = 1;
  std::int64_t distance = 0;
  bool gathered = false;
  TokenOrder order = TokenOrder::kContiguous;
  // Packed sequences, whose documents do not see each other: the length of the document that a token
  // is in, in the mean over all tokens (the sum of squared lengths over their sum). 0: each sequence
  // is one document.
  std::int64_t document = 0;
  friend bool operator==(const Attention&, const Attention&) = default;
};

// The shape of what the rank at `place` of its ring computes, without what is masked whole; nothing
// where all is. Only a contiguous order gives ranks different work.
std::optional<Attention> computed_part(const Attention& attention, std::int64_t place);
bool depends_on_place(const Attention& attention);

// Keys that a query meets in the mean, counted in full: all of them, or of its document; of a causal
// window, twice those that it sees.
double keys_met(const Attention& attention);

// ---------------------------------------------------------------------------------------------------
// Memory-bound kernels over [rows, columns], priced by the bytes they move and their passes.

enum class KernelKind : std::uint8_t {
  kEmbeddingForward,    // tokens int64[rows], table[n, columns]        -> hidden[rows, columns]
                        //   (vocabulary-parallel: ids outside the local shard give zero rows)
  kEmbeddingBackward,   // tokens, dhidden, dtable                      -> dtable (accumulates)
  kPositionForward,     // hidden, table[sequence, columns]             -> hidden (adds learned positions)
  kPositionBackward,    // dhidden, dtable                              -> dtable (accumulates)
  kRmsNormForward,      // x, weight[columns]                           -> y, statistics fp32[rows]
  kRmsNormBackward,     // dy, x, weight, statistics, dweight           -> dx, dweight (accumulates)
  kLayerNormForward,    // x, weight, bias                              -> y, statistics fp32[rows, 2]
  kLayerNormBackward,   // dy, x, weight, statistics, dweight, dbias    -> dx, dweight, dbias
  kRotaryForward,       // qkv (in place, `columns` = heads+kv_heads rotated head dims)  -> qkv
  kRotaryBackward,      // dqkv                                         -> dqkv
  kLatentForward,       // query[rows, heads (plain_dim + head_dim)], key_value[rows, heads (plain_dim
                        //   + value_dim)], key_rope[rows, head_dim]    -> qkv: per head, the query and
                        //   the key with their head_dim last columns rotated, and the value; packed
                        //   as attention reads them (`columns` = heads)
  kLatentBackward,      // dqkv                                         -> dquery, dkey_value, dkey_rope
                        //   (summed over the heads)
  kGeluForward,         // x, [bias]                                    -> y
  kGeluBackward,        // dy, x, [bias, dbias]                         -> dx, [dbias]
  kSwigluForward,       // x[rows, 2 columns] (gate | up), [weights fp32[rows]] -> y[rows, columns]
  kSwigluBackward,      // dy, x, [weights]                             -> dx[rows, 2 columns], [dweights]
  kReluForward,         // x                                            -> y
  kReluBackward,        // dy, x                                        -> dx
  kBiasAdd,             // x, bias                                      -> x
  kBiasBackward,        // dy, dbias                                    -> dbias (accumulates column sums)
  kDropoutForward,      // x                                            -> y, mask bool[rows, columns]
  kDropoutBackward,     // dy, mask                                     -> dx
  kResidualAdd,         // x, [bias], residual                          -> y
  kBiasDropoutAddForward,   // x, [bias], residual                      -> y, mask (fused)
  kBiasDropoutAddBackward,  // dy, mask, [dbias]                        -> dx, [dbias] (fused)
  kGradientAdd,         // a, b                                         -> a (sum of two gradient paths)
  kGradientAccumulate,  // main gradient, gradient                      -> main gradient
  kCrossEntropyMaximum, // logits[rows, columns]                        -> maximum fp32[rows]
  kCrossEntropySums,    // logits, maximum, targets int64[rows]         -> predicted fp32[rows], sum of
                        //   exponentials fp32[rows], logits (become exponentials in place)
                        //   (vocabulary-parallel: a target outside the local shard predicts 0; the
                        //   columns of padding, past Program::vocab_size, count as minus infinity)
  kCrossEntropyLoss,    // predicted, sums, maximum                     -> loss fp32[rows]
  kCrossEntropyBackward,// exponentials, sums, targets                  -> dlogits (scaled by loss scale)
  kCrossEntropyShift,   // values fp32[rows], from fp32[rows], to fp32[rows]
                        //                                              -> values (times exp(from - to))
  kCrossEntropyInputGradient,  // a[rows, columns], b[rows, columns], sums fp32[rows]
                        //                                              -> a (loss scale (a / sums - b))
  kFusedCrossEntropyForward,   // logits, targets -> loss, statistics (whole vocabulary on the rank)
  kFusedCrossEntropyBackward,  // logits, targets, statistics -> dlogits
  kLossSum,             // loss fp32[rows], total fp64[1]               -> total (accumulates the sum
                        //   times `scale`)
  kCast,                // x                                            -> y of another type
  kAmax,                // x                                            -> amax fp32[1]
  kQuantise,            // x (to int8, int4: x...), [amax (current) or history fp32[2] (delayed: now,
                        //   the step before)] -> y, [y': as the transposed product reads it],
                        //   [history: now becomes the larger] (by `scaling`)
  kTranspose,           // x (8 bits)                                   -> y, laid out the other way
  kRollAmax,            // history...                                   -> history... (a step ends)
  kScale,               // x                                            -> x (times `scale`)
  kZero,                //                                              -> x
  kCopy,                // x                                            -> y
  kToHost,              // x...                                         -> y... (in the host's memory)
  kToDevice,            // x... (in the host's memory)                  -> y...
  kSumParts,            // x[parts rows, columns]                       -> y[rows, columns] (sum of its
                        //   equal runs of rows)
  kSplitSequence,       // x...[whole]                                  -> y[own part] (by y's groups)
  kSplitColumns,        // x[rows, n]                                   -> y... (runs of x's columns; a y
                        //   of p rows times as many takes p runs, one below the other)
  kJoinColumns,         // x...                                         -> y[rows, n] (the inverse)
  kAttentionMerge,      // context of a block, its statistics, context of the blocks before, theirs
                        //                                              -> context, statistics (of all)
  kMixForward,          // a[rows, columns], b, logits fp32[rows, 2]    -> y (a and b by the softmax of
                        //   a row's two logits)
  kMixBackward,         // dy, a, b, logits                             -> da, db, dlogits
  kSquaredNorm,         // x..., total fp64[1] (or [n]: of n equal runs) -> total (accumulates)
  kClip,                // total (squared), gradient...                 -> gradient... (scaled if over limit)
  kValidateNorm,        // total fp64[1] (squared)                      -> validated (the same; a total over
                        //   the limit is refused: it would have been clipped)
  kSgd,                 // master..., gradient...                       -> master...
  kAdam,                // master..., gradient..., m, v                 -> master..., m, v
  kLion,                // master..., gradient..., m                    -> master..., m
  kMomentum,            // gradient..., m                               -> m, y (Nesterov's: the gradient
                        //   and the decayed m)
  kNormalise,           // x, total fp64[n] (of n equal runs, squared)  -> y (each over its norm)
  kWeightedSum,         // a, b                                         -> y (scale a + other_scale b)
  kFactoredDirection,   // gradient[rows, columns], r fp32[rows], c fp32[columns]
                        //   -> r, c, y (Adafactor's; of a vector, one column, c is not there)
  kDecayedStep,         // master..., y...                              -> master... (decayed, and the
                        //   rate times `scale` y taken off)
  kCastParameters,      // master                                       -> parameter...
};

struct Kernel {
  KernelKind kind = KernelKind::kCopy;
  std::int64_t rows = 0, columns = 0;  // elements = rows * columns
  DataType type = DataType::kBf16;     // of what it reads first
  DataType output = DataType::kBf16;
  bool fused = true;    // one pass in one kernel; false: eager passes of the framework
  bool bias = false;    // the optional operands of the kind
  double scale = 1.0;   // kScale, kLossSum, kWeightedSum, kDecayedStep, loss scale of
                        // kCrossEntropyBackward
  double other_scale = 1.0;  // kWeightedSum: of b
  std::int64_t head_dim = 0;  // rotary: columns that turn together; kAttentionMerge: of a head
  // kQuantise: where the scales come from, and what shares one (0 x 0: the whole tensor); the blocks
  // of y' run the other way. `transposed`: y' is written too.
  Scaling scaling = Scaling::kNone;
  std::int64_t block_rows = 0, block_columns = 0;
  bool transposed = false;
  std::int64_t plain_dim = 0, value_dim = 0;  // latent: columns of a head that do not, of its value
  bool on_host = false;  // computed by the host's cores, on its memory
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

// ---------------------------------------------------------------------------------------------------
// Mixture of experts. Each of `tokens` tokens chooses `per_token` of `experts` experts; a choice is
// (token, slot). What a rank's tokens send stands in the order of the global experts, and within one
// expert of the tokens; what a rank of the expert group receives stands by source, then by its local
// experts; kSort brings it into the order of the local experts. Rows that depend on the routing are
// declared as expected (BufferFamily::most_rows); counts say how many there are.

// Matrix multiplications of one matrix per expert, one launch. The rows of expert g, which follow one
// another, are multiplied by the g-th of the `groups` equal blocks of w. m is the expected sum.
// `counts`: int32[parts, groups]; an expert has the sum of its column, and the next one's rows begin
// at a multiple of `multiple` (what a recipe of 8 bits asks for; rows between are zeros).
struct GroupedGemm {
  // forward:         x[m,k], w[groups n,k], counts        -> y[m,n]
  // input gradient:  dy[m,n], w[groups n,k], counts       -> dx[m,k]
  // weight gradient: dy[m,n], x[m,k], counts, [dw]        -> dw[groups n,k]
  GemmRole role = GemmRole::kForward;
  std::int64_t groups = 1;
  std::int64_t m = 0, n = 0, k = 0;  // of the forward products: rows of all experts, outputs, inputs
  DataType type = DataType::kBf16;
  DataType output = DataType::kBf16;
  bool accumulate = false;
  std::int64_t multiple = 1;
  friend bool operator==(const GroupedGemm&, const GroupedGemm&) = default;
};

enum class RoutingKind : std::uint8_t {
  kChoose,           // logits[tokens, experts]         -> choice int32[tokens, per_token], weights
                     //   [tokens, per_token], scores[tokens, experts]
  kChooseBackward,   // dweights, choice, weights, scores, [chosen] -> dlogits (with chosen: and the
                     //   gradient of the auxiliary loss)
  kAssign,           // choice, weights -> counts int32[experts], rows int32[tokens, per_token] (where
                     //   each choice stands among what is sent; -1: dropped), [chosen int32[experts]:
                     //   counts before any are dropped]
  kSplits,           // counts of all ranks of the etp x ep group int32[ranks, experts] -> received
                     //   int32[ep, local experts], gathered int32[etp ep, local experts]
  kPermute,          // x[tokens, columns], rows        -> y[sent, columns]
  kPermuteBackward,  // dy, rows                        -> dx (summed over a token's choices)
  kSort,             // x, gathered                     -> y: from source-major to expert-major
  kUnsort,           // y, gathered                     -> x: back
  kCombine,          // y[sent, columns], rows, weights -> out[tokens, columns]
  kCombineBackward,  // dout, y, rows, weights          -> dy, dweights
};
// Which scores a router gives: the softmax of all logits; of the chosen ones alone (Mixtral; equal to
// the normalised softmax of all); sigmoids, normalised over the chosen (DeepSeek-V3).
enum class RouterScore : std::uint8_t { kSoftmax, kSoftmaxOfChosen, kSigmoid };

struct Routing {
  RoutingKind kind = RoutingKind::kChoose;
  std::int64_t tokens = 0, experts = 0, per_token = 1;
  std::int64_t columns = 0;  // of a token
  std::int64_t rows = 0;     // expected: sent by a rank, or received by it (kSort, kUnsort)
  std::int64_t parts = 1, local_experts = 0;  // kSplits, kSort, kUnsort
  DataType type = DataType::kBf16;            // of tokens; logits, weights and scores have their own
  RouterScore score = RouterScore::kSoftmaxOfChosen;
  std::int64_t groups = 1, groups_per_token = 1;  // kChoose: of experts, a token's best ones
  // kAssign: choices that an expert takes from each of `token_groups` equal runs of tokens; 0: all.
  std::int64_t capacity = 0, token_groups = 1;
  bool by_score = false;     // those of the highest weight are kept, else the first
  bool padded = false;       // every expert takes exactly its capacity, empty rows are zeros
  // kAssign, of the tokens of all ranks: choices of other ranks' experts stand nowhere (-1), and
  // counts are those of its own `local_experts`.
  bool own_experts = false;
  std::int64_t multiple = 1;  // kSort, kUnsort: as of the grouped products between them
  bool with_chosen = false;  // the optional operands of the kind
  double auxiliary = 0;      // kChooseBackward: d loss / d score is this times chosen
  friend bool operator==(const Routing&, const Routing&) = default;
};

// ---------------------------------------------------------------------------------------------------
// Communication. Sizes are in elements of `type`; `elements` is always the *whole* array: what an
// all-reduce reduces, what an all-gather has gathered, what a reduce-scatter reads, what one rank sends
// in an all-to-all, what a send or a shift carries. A group may be of one rank: then nothing moves.

enum class CollectiveKind : std::uint8_t {
  kAllReduce,      // x                    -> x (in place)
  kReduceScatter,  // x[whole]             -> y[whole / size]
  kAllGather,      // y[whole / size]      -> x[whole]
  kBroadcast,      // x                    -> x (from `root`, an index in the group)
  kReduce,         // x, [y]               -> x (at `root`); y there, elsewhere y as it was
  kAllToAll,       // x                    -> y
  kShift,          // x...                 -> y...       of the member before, cyclically by rank
  kSend,           // x                    ->            to the peer
  kReceive,        //                      -> x          from the peer
};
enum class ReduceOperator : std::uint8_t { kSum, kMaximum, kAverage };
// How many rows go where, if not equal shares. By counts: the last operand read, int32, says how many
// rows this member sends to each (all-to-all: equal runs of its entries, one for each member), or has
// (gathers and reduce-scatters: their sum). Back by counts: to where an all-to-all by these counts
// brought them from; `elements` is then as sent, and expected.
enum class Shares : std::uint8_t { kEqual, kByCounts, kBackByCounts };

struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOperator reduce = ReduceOperator::kSum;
  std::int64_t elements = 0;
  DataType type = DataType::kBf16;
  int root = 0;
  Shares shares = Shares::kEqual;
  // All-to-all: elements that leave the node, where a token is sent once to each node and spread
  // inside (DeepEP); -1: as many as even shares of all members have it.
  std::int64_t network_elements = -1;
  // Multiprocessors that move the data where it is not NCCL that does (DeepEP); 0: NCCL's channels.
  std::int64_t multiprocessors = 0;
  friend bool operator==(const Collective&, const Collective&) = default;
};

// ---------------------------------------------------------------------------------------------------
// Work of the host thread alone: the framework's Python between passes, data loading, a synchronise.
// REQUIRES of a Program: where `synchronise` is set the host waits for all work it has issued. With
// `await` the operation's stream waits for what the operation waits for, and the host goes on; with
// `pause` for another `time` besides.

enum class HostKind : std::uint8_t { kMicroBatch, kStep, kSynchronise, kAwait, kPause };
struct HostWork {
  HostKind kind = HostKind::kMicroBatch;
  Time time = {};  // kPause
  friend bool operator==(const HostWork&, const HostWork&) = default;
};

using Operation = std::variant<Gemm, GroupedGemm, Attention, Kernel, Routing, Collective, HostWork>;

std::string_view name(GemmRole role);
std::string_view name(AttentionKernel kernel);
std::string_view name(TokenOrder order);
std::string_view name(KernelKind kind);          // "rms_norm_forward"
std::string_view name(RoutingKind kind);         // "choose"
std::string_view name(RouterScore score);
std::string_view name(CollectiveKind kind);      // "all_reduce"
std::string_view name(ReduceOperator reduce);
std::string_view name(Shares shares);
std::string_view name(HostKind kind);

// The value of that name; nothing where there is none.
std::optional<GemmRole> gemm_role_named(std::string_view);
std::optional<AttentionKernel> attention_kernel_named(std::string_view);
std::optional<TokenOrder> token_order_named(std::string_view);
std::optional<KernelKind> kernel_kind_named(std::string_view);
std::optional<CollectiveKind> collective_kind_named(std::string_view);
std::optional<ReduceOperator> reduce_operator_named(std::string_view);
std::optional<HostKind> host_kind_named(std::string_view);

// Floating-point operations of the matrix multiplications (zero for everything else; the convention
// of every reporter). Attention is counted in full, without causal halving.
Flops flops(const Operation& operation);

// Bytes a collective's whole array has.
Bytes size(const Collective& collective);

}  // namespace headway
