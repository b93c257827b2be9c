#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/matrix.hpp"

namespace headway {
namespace {

// Rows and keys of a block. Small, so that tiny models have several blocks too.
constexpr std::int64_t kBlock = 16;

// Separates the query and key position in a mask's counter.
constexpr int kQueryShift = 32;

std::uint64_t mask_counter(std::int64_t query, std::int64_t key) {
  return (static_cast<std::uint64_t>(query) << kQueryShift) | static_cast<std::uint64_t>(key);
}

bool kept(const HeadCore& core, std::int64_t query, std::int64_t key) {
  return core.mask == nullptr || core.mask->uniform(mask_counter(query, key)) >= core.dropout;
}

bool masked(const HeadCore& core, std::int64_t query, std::int64_t key) {
  return core.causal && key > query;
}

// scores[q, k] = scale q . k
template <typename T>
std::vector<T> scores_of(const HeadCore& core, const HeadRows<T>& queries,
                         const HeadRows<T>& keys) {
  std::vector<T> scores(static_cast<std::size_t>(queries.count * keys.count));
  multiply(Transposed::kNo, Transposed::kYes, queries.count, keys.count, core.head_dim,
           static_cast<T>(core.scale), queries.data, queries.stride, keys.data, keys.stride, T{0},
           scores.data(), keys.count);
  return scores;
}

template <typename T>
HeadRows<T> block_of(const HeadRows<T>& rows, std::int64_t begin) {
  return {rows.data + begin * rows.stride, rows.stride, std::min(kBlock, rows.count - begin),
          rows.first + begin};
}

}  // namespace

template <typename T>
RunningAttention<T>::RunningAttention(const HeadCore& core, HeadRows<T> queries)
    : core_(core),
      queries_(queries),
      maximum_(static_cast<std::size_t>(queries.count), -std::numeric_limits<T>::infinity()),
      sum_(static_cast<std::size_t>(queries.count)),
      accumulated_(static_cast<std::size_t>(queries.count * core.head_dim_v)) {}

template <typename T>
void RunningAttention<T>::add(HeadRows<T> keys, HeadRows<T> values) {
  if (core_.causal && keys.first > queries_.first + queries_.count - 1) return;
  std::vector<T> weights = scores_of(core_, queries_, keys);
  const T survivor_scale = static_cast<T>(1.0 / (1.0 - core_.dropout));
  for (std::int64_t i = 0; i < queries_.count; ++i) {
    const auto row = static_cast<std::size_t>(i);
    const std::int64_t query = queries_.first + i;
    T* weight = weights.data() + i * keys.count;
    T maximum = maximum_[row];
    for (std::int64_t j = 0; j < keys.count; ++j) {
      if (!masked(core_, query, keys.first + j)) maximum = std::max(maximum, weight[j]);
    }
    if (std::isinf(maximum)) {  // every key so far is masked
      std::fill(weight, weight + keys.count, T{0});
      continue;
    }
    const T rescale = std::exp(maximum_[row] - maximum);
    maximum_[row] = maximum;
    sum_[row] *= rescale;
    for (std::int64_t d = 0; d < core_.head_dim_v; ++d) {
      accumulated_[static_cast<std::size_t>(i * core_.head_dim_v + d)] *= rescale;
    }
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const std::int64_t key = keys.first + j;
      weight[j] = masked(core_, query, key) ? T{0} : std::exp(weight[j] - maximum);
      sum_[row] += weight[j];
      if (core_.mask != nullptr)
        weight[j] = kept(core_, query, key) ? weight[j] * survivor_scale : T{0};
    }
  }
  multiply(Transposed::kNo, Transposed::kNo, queries_.count, core_.head_dim_v, keys.count, T{1},
           weights.data(), keys.count, values.data, values.stride, T{1}, accumulated_.data(),
           core_.head_dim_v);
}

template <typename T>
void RunningAttention<T>::result(T* context, std::int64_t stride) const {
  for (std::int64_t i = 0; i < queries_.count; ++i) {
    for (std::int64_t d = 0; d < core_.head_dim_v; ++d) {
      context[i * stride + d] = accumulated_[static_cast<std::size_t>(i * core_.head_dim_v + d)] /
                                sum_[static_cast<std::size_t>(i)];
    }
  }
}

template <typename T>
T RunningAttention<T>::log_sum_exp(std::int64_t row) const {
  const auto i = static_cast<std::size_t>(row);
  return maximum_[i] + std::log(sum_[i]);
}

// With P = exp(S - lse), M the dropout mask over (1 - p), O = (P M) V and D = rowsum(dO * O):
// dV += (P M)^T dO, dP = (dO V^T) M, dS = P (dP - D), dQ += scale dS K, dK += scale dS^T Q.
template <typename T>
void attention_block_backward(const HeadCore& core, HeadRows<T> queries, HeadRows<T> keys,
                              HeadRows<T> values, HeadRows<T> dcontext, const T* log_sum_exp,
                              const T* row_sums, T* dq, T* dk, T* dv) {
  if (core.causal && keys.first > queries.first + queries.count - 1) return;
  std::vector<T> dropped = scores_of(core, queries, keys);
  std::vector<T> dscores(dropped.size());
  multiply(Transposed::kNo, Transposed::kYes, queries.count, keys.count, core.head_dim_v, T{1},
           dcontext.data, dcontext.stride, values.data, values.stride, T{0}, dscores.data(),
           keys.count);
  const T survivor_scale = static_cast<T>(1.0 / (1.0 - core.dropout));
  for (std::int64_t i = 0; i < queries.count; ++i) {
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const auto at = static_cast<std::size_t>(i * keys.count + j);
      const std::int64_t query = queries.first + i, key = keys.first + j;
      const T probability =
          masked(core, query, key) ? T{0} : std::exp(dropped[at] - log_sum_exp[i]);
      const T survives = kept(core, query, key) ? survivor_scale : T{0};
      const T factor = core.mask == nullptr ? T{1} : survives;
      dropped[at] = probability * factor;
      dscores[at] = probability * (dscores[at] * factor - row_sums[i]);
    }
  }
  const T scale = static_cast<T>(core.scale);
  multiply(Transposed::kYes, Transposed::kNo, keys.count, core.head_dim_v, queries.count, T{1},
           dropped.data(), keys.count, dcontext.data, dcontext.stride, T{1}, dv, values.stride);
  multiply(Transposed::kNo, Transposed::kNo, queries.count, core.head_dim, keys.count, scale,
           dscores.data(), keys.count, keys.data, keys.stride, T{1}, dq, queries.stride);
  multiply(Transposed::kYes, Transposed::kNo, keys.count, core.head_dim, queries.count, scale,
           dscores.data(), keys.count, queries.data, queries.stride, T{1}, dk, keys.stride);
}

namespace {

// The packed matrix [tokens, heads d | kv_heads d | kv_heads dv] and where each head lies in it.
struct Packing {
  explicit Packing(const Attention& a)
      : value_dim(a.head_dim_v == 0 ? a.head_dim : a.head_dim_v),
        columns((a.heads + a.kv_heads) * a.head_dim + a.kv_heads * value_dim),
        context_columns(a.heads * value_dim),
        tokens(a.batch * a.sequence_q) {}
  std::int64_t query(const Attention& a, std::int64_t head) const { return head * a.head_dim; }
  std::int64_t key(const Attention& a, std::int64_t head) const {
    return (a.heads + head / (a.heads / a.kv_heads)) * a.head_dim;
  }
  std::int64_t value(const Attention& a, std::int64_t head) const {
    return (a.heads + a.kv_heads) * a.head_dim + head / (a.heads / a.kv_heads) * value_dim;
  }

  std::int64_t value_dim, columns, context_columns, tokens;
};

void check_shape(const Attention& a, const OperandsOf& operands) {
  if (a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0) {
    operands.refuse("the query heads must be a multiple of the key-value heads");
  }
  if (a.sequence_q != a.sequence_kv) {
    operands.refuse("one packed matrix holds queries and keys of the same tokens only");
  }
}

// What one head of one sequence of the batch works with.
template <typename T>
struct Head {
  HeadCore core;
  HeadRows<T> queries, keys, values;
};

template <typename T>
Head<T> head_of(const Attention& a, const Packing& packing, const T* qkv, std::int64_t sequence,
                std::int64_t head, const Placement& placement, const CounterRandom* mask) {
  const T* base = qkv + sequence * a.sequence_q * packing.columns;
  return {
      {a.head_dim, packing.value_dim, a.causal, 1.0 / std::sqrt(static_cast<double>(a.head_dim)),
       mask == nullptr ? 0.0 : placement.dropout, mask},
      {base + packing.query(a, head), packing.columns, a.sequence_q, 0},
      {base + packing.key(a, head), packing.columns, a.sequence_kv, 0},
      {base + packing.value(a, head), packing.columns, a.sequence_kv, 0}};
}

CounterRandom mask_of(const Attention& a, const Placement& placement, std::int64_t sequence,
                      std::int64_t head) {
  const std::int64_t global_sequence = placement.first_token / a.sequence_q + sequence;
  return CounterRandom(placement.seed, placement.site)
      .child(static_cast<std::uint64_t>(global_sequence))
      .child(static_cast<std::uint64_t>(placement.first_head + head));
}

bool drops(const Attention& a, const Placement& placement) {
  return a.dropout && placement.dropout > 0;
}

template <typename T>
void blocked_forward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Packing packing(a);
  const Input<T> qkv(operands.read(0, packing.tokens * packing.columns));
  Output<T> context(operands.write(0, packing.tokens * packing.context_columns), false);
  Output<T> statistics(operands.write(1, packing.tokens * a.heads), false);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const Head<T> head =
          head_of(a, packing, qkv.data(), b, h, placement, drops(a, placement) ? &mask : nullptr);
      for (std::int64_t q = 0; q < a.sequence_q; q += kBlock) {
        RunningAttention<T> running(head.core, block_of(head.queries, q));
        for (std::int64_t k = 0; k < a.sequence_kv; k += kBlock) {
          running.add(block_of(head.keys, k), block_of(head.values, k));
        }
        const std::int64_t token = b * a.sequence_q + q;
        running.result(context.data() + token * packing.context_columns + h * packing.value_dim,
                       packing.context_columns);
        for (std::int64_t i = 0; i < std::min(kBlock, a.sequence_q - q); ++i) {
          statistics[(token + i) * a.heads + h] = running.log_sum_exp(i);
        }
      }
    }
  }
}

template <typename T>
void blocked_backward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Packing packing(a);
  const Input<T> dcontext(operands.read(0, packing.tokens * packing.context_columns));
  const Input<T> qkv(operands.read(1, packing.tokens * packing.columns));
  const Input<T> context(operands.read(2, packing.tokens * packing.context_columns));
  const Input<T> statistics(operands.read(3, packing.tokens * a.heads));
  Output<T> dqkv(operands.write(0, packing.tokens * packing.columns), false);
  std::fill(dqkv.data(), dqkv.data() + packing.tokens * packing.columns, T{0});
  std::vector<T> log_sum_exp(static_cast<std::size_t>(a.sequence_q));
  std::vector<T> row_sums(static_cast<std::size_t>(a.sequence_q));
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const Head<T> head =
          head_of(a, packing, qkv.data(), b, h, placement, drops(a, placement) ? &mask : nullptr);
      const std::int64_t token = b * a.sequence_q;
      const std::int64_t at = token * packing.context_columns + h * packing.value_dim;
      for (std::int64_t i = 0; i < a.sequence_q; ++i) {
        const auto row = static_cast<std::size_t>(i);
        log_sum_exp[row] = statistics[(token + i) * a.heads + h];
        row_sums[row] = 0;
        for (std::int64_t d = 0; d < packing.value_dim; ++d) {
          const std::int64_t element = at + i * packing.context_columns + d;
          row_sums[row] += dcontext[element] * context[element];
        }
      }
      const HeadRows<T> dcontexts{dcontext.data() + at, packing.context_columns, a.sequence_q, 0};
      T* base = dqkv.data() + token * packing.columns;
      for (std::int64_t q = 0; q < a.sequence_q; q += kBlock) {
        for (std::int64_t k = 0; k < a.sequence_kv; k += kBlock) {
          attention_block_backward(head.core, block_of(head.queries, q), block_of(head.keys, k),
                                   block_of(head.values, k), block_of(dcontexts, q),
                                   log_sum_exp.data() + q, row_sums.data() + q,
                                   base + q * packing.columns + packing.query(a, h),
                                   base + k * packing.columns + packing.key(a, h),
                                   base + k * packing.columns + packing.value(a, h));
        }
      }
    }
  }
}

template <typename T>
void plain_forward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Packing packing(a);
  const std::int64_t cells = a.batch * a.heads * a.sequence_q * a.sequence_kv;
  const bool dropping = a.dropout;
  const Input<T> qkv(operands.read(0, packing.tokens * packing.columns));
  Output<T> context(operands.write(0, packing.tokens * packing.context_columns), false);
  Output<T> probabilities(operands.write(1, cells), false);
  std::vector<T> keep(static_cast<std::size_t>(dropping ? cells : 0), T{1});
  std::vector<T> dropped(keep.size());
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const Head<T> head =
          head_of(a, packing, qkv.data(), b, h, placement, drops(a, placement) ? &mask : nullptr);
      const std::vector<T> scores = scores_of(head.core, head.queries, head.keys);
      const std::int64_t first = (b * a.heads + h) * a.sequence_q * a.sequence_kv;
      for (std::int64_t i = 0; i < a.sequence_q; ++i) {
        const T* row = scores.data() + i * a.sequence_kv;
        const std::int64_t visible = a.causal ? i + 1 : a.sequence_kv;
        const T maximum = *std::max_element(row, row + visible);
        T sum = 0;
        for (std::int64_t j = 0; j < visible; ++j) sum += std::exp(row[j] - maximum);
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          const std::int64_t at = first + i * a.sequence_kv + j;
          probabilities[at] = j < visible ? std::exp(row[j] - maximum) / sum : T{0};
          if (!dropping) continue;
          const bool keeps = kept(head.core, i, j);
          keep[static_cast<std::size_t>(at)] = keeps ? T{1} : T{0};
          dropped[static_cast<std::size_t>(at)] =
              keeps ? probabilities[at] * static_cast<T>(1.0 / (1.0 - head.core.dropout)) : T{0};
        }
      }
      const T* weights = dropping ? dropped.data() + first : probabilities.data() + first;
      multiply(Transposed::kNo, Transposed::kNo, a.sequence_q, packing.value_dim, a.sequence_kv,
               T{1}, weights, a.sequence_kv, head.values.data, head.values.stride, T{0},
               context.data() + b * a.sequence_q * packing.context_columns + h * packing.value_dim,
               packing.context_columns);
    }
  }
  if (!dropping) return;
  Output<T> mask_out(operands.write(2, cells), false), dropped_out(operands.write(3, cells), false);
  std::copy(keep.begin(), keep.end(), mask_out.data());
  std::copy(dropped.begin(), dropped.end(), dropped_out.data());
}

template <typename T>
void plain_backward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Packing packing(a);
  const std::int64_t square = a.sequence_q * a.sequence_kv;
  const std::int64_t cells = a.batch * a.heads * square;
  const Input<T> dcontext(operands.read(0, packing.tokens * packing.context_columns));
  const Input<T> qkv(operands.read(1, packing.tokens * packing.columns));
  const Input<T> probabilities(operands.read(3, cells));
  const bool dropping = a.dropout;
  const Input<T> mask(operands.read(dropping ? 4 : 3, cells));
  const Input<T> dropped(operands.read(dropping ? 5 : 3, cells));
  const T survivor_scale = static_cast<T>(dropping ? 1.0 / (1.0 - placement.dropout) : 1.0);
  Output<T> dqkv(operands.write(0, packing.tokens * packing.columns), false);
  std::fill(dqkv.data(), dqkv.data() + packing.tokens * packing.columns, T{0});
  std::vector<T> dscores(static_cast<std::size_t>(square));
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const Head<T> head = head_of<T>(a, packing, qkv.data(), b, h, placement, nullptr);
      const std::int64_t first = (b * a.heads + h) * square;
      const T* dout =
          dcontext.data() + b * a.sequence_q * packing.context_columns + h * packing.value_dim;
      multiply(Transposed::kNo, Transposed::kYes, a.sequence_q, a.sequence_kv, packing.value_dim,
               T{1}, dout, packing.context_columns, head.values.data, head.values.stride, T{0},
               dscores.data(), a.sequence_kv);
      for (std::int64_t i = 0; i < a.sequence_q; ++i) {
        T* row = dscores.data() + i * a.sequence_kv;
        T sum = 0;
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          const std::int64_t at = first + i * a.sequence_kv + j;
          if (dropping) row[j] *= mask[at] * survivor_scale;
          sum += row[j] * probabilities[at];
        }
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          row[j] = probabilities[first + i * a.sequence_kv + j] * (row[j] - sum);
        }
      }
      T* base = dqkv.data() + b * a.sequence_q * packing.columns;
      const T scale = static_cast<T>(head.core.scale);
      multiply(Transposed::kYes, Transposed::kNo, a.sequence_kv, packing.value_dim, a.sequence_q,
               T{1}, dropped.data() + first, a.sequence_kv, dout, packing.context_columns, T{1},
               base + packing.value(a, h), packing.columns);
      multiply(Transposed::kNo, Transposed::kNo, a.sequence_q, a.head_dim, a.sequence_kv, scale,
               dscores.data(), a.sequence_kv, head.keys.data, packing.columns, T{1},
               base + packing.query(a, h), packing.columns);
      multiply(Transposed::kYes, Transposed::kNo, a.sequence_kv, a.head_dim, a.sequence_q, scale,
               dscores.data(), a.sequence_kv, head.queries.data, packing.columns, T{1},
               base + packing.key(a, h), packing.columns);
    }
  }
}

}  // namespace

template <typename T>
void compute_attention(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  check_shape(a, operands);
  if (a.kernel == AttentionKernel::kUnfused) {
    return a.backward ? plain_backward<T>(a, operands, placement)
                      : plain_forward<T>(a, operands, placement);
  }
  return a.backward ? blocked_backward<T>(a, operands, placement)
                    : blocked_forward<T>(a, operands, placement);
}

template class RunningAttention<float>;
template class RunningAttention<double>;
template void attention_block_backward<float>(const HeadCore&, HeadRows<float>, HeadRows<float>,
                                              HeadRows<float>, HeadRows<float>, const float*,
                                              const float*, float*, float*, float*);
template void attention_block_backward<double>(const HeadCore&, HeadRows<double>, HeadRows<double>,
                                               HeadRows<double>, HeadRows<double>, const double*,
                                               const double*, double*, double*, double*);
template void compute_attention<float>(const Attention&, const OperandsOf&, const Placement&);
template void compute_attention<double>(const Attention&, const OperandsOf&, const Placement&);

}  // namespace headway
