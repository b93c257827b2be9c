#include "kernels/cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

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
  if (core.document_begins != nullptr && core.document_begins[query] != core.document_begins[key]) {
    return true;
  }
  return core.causal && (key > query || (core.window > 0 && key <= query - core.window));
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

// Whether every key comes after every query, or too far before it.
template <typename T>
bool all_masked(const HeadCore& core, const HeadRows<T>& queries, const HeadRows<T>& keys) {
  if (!core.causal) return false;
  const auto span = [](const HeadRows<T>& rows) {
    std::pair<std::int64_t, std::int64_t> ends = {rows.position(0), rows.position(0)};
    for (std::int64_t i = 1; i < rows.count; ++i) {
      ends = {std::min(ends.first, rows.position(i)), std::max(ends.second, rows.position(i))};
    }
    return ends;
  };
  const auto [first_query, last_query] = span(queries);
  const auto [first_key, last_key] = span(keys);
  return first_key > last_query || (core.window > 0 && last_key <= first_query - core.window);
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
  if (all_masked(core_, queries_, keys)) return;
  std::vector<T> weights = scores_of(core_, queries_, keys);
  const T survivor_scale = static_cast<T>(1.0 / (1.0 - core_.dropout));
  for (std::int64_t i = 0; i < queries_.count; ++i) {
    const auto row = static_cast<std::size_t>(i);
    const std::int64_t query = queries_.position(i);
    T* weight = weights.data() + i * keys.count;
    T maximum = maximum_[row];
    for (std::int64_t j = 0; j < keys.count; ++j) {
      if (!masked(core_, query, keys.position(j))) maximum = std::max(maximum, weight[j]);
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
      const std::int64_t key = keys.position(j);
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
    const T sum = sum_[static_cast<std::size_t>(i)];
    for (std::int64_t d = 0; d < core_.head_dim_v; ++d) {
      const T value = accumulated_[static_cast<std::size_t>(i * core_.head_dim_v + d)];
      context[i * stride + d] = sum > 0 ? value / sum : T{0};
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
  if (all_masked(core, queries, keys)) return;
  std::vector<T> dropped = scores_of(core, queries, keys);
  std::vector<T> dscores(dropped.size());
  multiply(Transposed::kNo, Transposed::kYes, queries.count, keys.count, core.head_dim_v, T{1},
           dcontext.data, dcontext.stride, values.data, values.stride, T{0}, dscores.data(),
           keys.count);
  const T survivor_scale = static_cast<T>(1.0 / (1.0 - core.dropout));
  for (std::int64_t i = 0; i < queries.count; ++i) {
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const auto at = static_cast<std::size_t>(i * keys.count + j);
      const std::int64_t query = queries.position(i), key = keys.position(j);
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

// A matrix of heads side by side, and how the tokens of a sequence stand in its rows: `parts` runs,
// one for each rank they came from, each batch-major in itself.
template <typename T>
struct HeadMatrix {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t dim = 0;      // columns of a head
  std::int64_t sharing = 1;  // query heads that share one of these
  std::int64_t batch = 1, sequence = 0, parts = 1;

  T* at(std::int64_t row, std::int64_t head) const {
    return data + row * stride + head / sharing * dim;
  }
  std::int64_t run() const { return sequence / parts; }
  // The row of the i-th token of a sequence of the batch.
  std::int64_t row(std::int64_t b, std::int64_t i) const {
    return (i / run() * batch + b) * run() + i % run();
  }
};

// Shapes of the operands.
struct Layout {
  explicit Layout(const Attention& a)
      : value_dim(a.head_dim_v == 0 ? a.head_dim : a.head_dim_v),
        columns((a.heads + a.kv_heads) * a.head_dim + a.kv_heads * value_dim),
        context_columns(a.heads * value_dim),
        queries(a.batch * a.sequence_q),
        keys(a.batch * a.sequence_kv) {}

  std::int64_t value_dim, columns, context_columns;
  std::int64_t queries, keys;  // rows
};

// Queries, keys and values, or their gradients, of one packed matrix or of three.
template <typename T>
struct Projections {
  HeadMatrix<T> q, k, v;
};

// `data` of one packed matrix or of three.
template <typename T>
Projections<T> projections(const Attention& a, const std::vector<T*>& data) {
  const Layout layout(a);
  const std::int64_t sharing = a.heads / a.kv_heads;
  const std::int64_t parts = a.gathered ? a.ring : a.parts;
  Projections<T> all;
  all.q = {data.front(), a.heads * a.head_dim, a.head_dim, 1, a.batch, a.sequence_q, a.parts};
  all.k = {data.front(), a.kv_heads * a.head_dim, a.head_dim, sharing,
           a.batch,      a.sequence_kv,           parts};
  all.v = all.k;
  all.v.dim = layout.value_dim;
  if (data.size() > 1) {
    all.k.data = data[1];
    all.v.data = data[2];
    all.v.stride = a.kv_heads * layout.value_dim;
    return all;
  }
  all.k.data += a.heads * a.head_dim;
  all.v.data = all.k.data + a.kv_heads * a.head_dim;
  all.q.stride = all.k.stride = all.v.stride = layout.columns;
  return all;
}

std::vector<std::int64_t> sizes_of(const Attention& a) {
  const Layout layout(a);
  if (!a.apart) return {layout.queries * layout.columns};
  return {layout.queries * a.heads * a.head_dim, layout.keys * a.kv_heads * a.head_dim,
          layout.keys * a.kv_heads * layout.value_dim};
}

template <typename T>
class ProjectionInputs {
 public:
  // The operands from `first` on.
  ProjectionInputs(const Attention& a, const OperandsOf& operands, std::size_t first) {
    std::vector<const T*> data;
    for (const std::int64_t size : sizes_of(a)) {
      inputs_.push_back(std::make_unique<Input<T>>(operands.read(first++, size)));
      data.push_back(inputs_.back()->data());
    }
    all_ = projections(a, data);
  }
  const Projections<const T>& all() const { return all_; }
  std::size_t count() const { return inputs_.size(); }

 private:
  std::vector<std::unique_ptr<Input<T>>> inputs_;
  Projections<const T> all_;
};

// Zero at first.
template <typename T>
class ProjectionOutputs {
 public:
  ProjectionOutputs(const Attention& a, const OperandsOf& operands) {
    std::vector<T*> data;
    for (const std::int64_t size : sizes_of(a)) {
      outputs_.push_back(std::make_unique<Output<T>>(operands.write(outputs_.size(), size), false));
      data.push_back(outputs_.back()->data());
      std::fill_n(data.back(), size, T{0});
    }
    all_ = projections(a, data);
  }
  const Projections<T>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<Output<T>>> outputs_;
  Projections<T> all_;
};

void check_shape(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  if (a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads != 0) {
    operands.refuse("the query heads must be a multiple of the key-value heads");
  }
  if (!a.apart && a.sequence_q != a.sequence_kv) {
    operands.refuse("one packed matrix holds queries and keys of the same tokens only");
  }
  if (a.apart && (a.ring != placement.map.ring || a.parts != placement.map.parts)) {
    operands.refuse("it is spread over other ranks than the tokens");
  }
}

}  // namespace

AttentionPositions::AttentionPositions(const Attention& a, const TokenMap& map)
    : queries(static_cast<std::size_t>(a.sequence_q)),
      keys(static_cast<std::size_t>(a.sequence_kv)) {
  const std::int64_t from = (map.place - a.distance + map.ring) % map.ring;
  const std::int64_t run = a.gathered ? a.sequence_kv / a.ring : a.sequence_kv;
  for (std::int64_t i = 0; i < a.sequence_q; ++i) {
    queries[static_cast<std::size_t>(i)] = a.apart ? map.position_at(map.place, i) : i;
  }
  for (std::int64_t i = 0; i < a.sequence_kv; ++i) {
    keys[static_cast<std::size_t>(i)] =
        a.apart ? map.position_at(a.gathered ? i / run : from, i % run) : i;
  }
}

namespace {

// Rows of a head that follow one another in a matrix.
template <typename T>
struct Block {
  HeadRows<T> rows;
  std::int64_t row = 0;    // of the matrix
  std::int64_t index = 0;  // of the sequence's tokens, as they stand here
};

template <typename T>
std::vector<Block<T>> blocks_of(const HeadMatrix<const T>& matrix, std::int64_t b,
                                std::int64_t head, const std::vector<std::int64_t>& positions) {
  std::vector<Block<T>> blocks;
  for (std::int64_t part = 0; part < matrix.parts; ++part) {
    for (std::int64_t i = 0; i < matrix.run(); i += kBlock) {
      const std::int64_t index = part * matrix.run() + i, row = matrix.row(b, index);
      blocks.push_back({{matrix.at(row, head), matrix.stride, std::min(kBlock, matrix.run() - i), 0,
                         positions.data() + index},
                        row,
                        index});
    }
  }
  return blocks;
}

CounterRandom mask_of(const Attention& a, const Placement& placement, std::int64_t sequence,
                      std::int64_t head) {
  const std::int64_t length = a.apart ? placement.map.length : a.sequence_q;
  return CounterRandom(placement.seed, placement.site)
      .child(static_cast<std::uint64_t>(placement.first_token / length + sequence))
      .child(static_cast<std::uint64_t>(placement.first_head + head));
}

// Where the document of each position of the batch's `sequence` begins; empty where it is one.
std::vector<std::int64_t> document_begins(const Attention& a, const Placement& placement,
                                          std::int64_t sequence) {
  if (placement.packs == nullptr) return {};
  const std::int64_t global = placement.first_token / a.sequence_q + sequence;
  const auto count = static_cast<std::int64_t>(placement.packs->size());
  std::vector<std::int64_t> begins;
  for (const std::int64_t length : (*placement.packs)[static_cast<std::size_t>(global % count)]) {
    const auto begin = static_cast<std::int64_t>(begins.size());
    begins.insert(begins.end(), static_cast<std::size_t>(length), begin);
  }
  return begins;
}

HeadCore core_of(const Attention& a, const Placement& placement, const CounterRandom& mask,
                 const std::vector<std::int64_t>& begins) {
  const bool drops = a.dropout && placement.dropout > 0;
  return {a.head_dim,
          Layout(a).value_dim,
          a.causal,
          a.window,
          1.0 / std::sqrt(static_cast<double>(a.head_dim)),
          drops ? placement.dropout : 0.0,
          drops ? &mask : nullptr,
          begins.empty() ? nullptr : begins.data()};
}

template <typename T>
void blocked_forward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Layout layout(a);
  const ProjectionInputs<T> inputs(a, operands, 0);
  const Projections<const T>& in = inputs.all();
  Output<T> context(operands.write(0, layout.queries * layout.context_columns), false);
  Output<T> statistics(operands.write(1, layout.queries * a.heads), false);
  const AttentionPositions positions(a, placement.map);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const std::vector<std::int64_t> begins = document_begins(a, placement, b);
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const HeadCore core = core_of(a, placement, mask, begins);
      const auto keys = blocks_of<T>(in.k, b, h, positions.keys);
      const auto values = blocks_of<T>(in.v, b, h, positions.keys);
      for (const Block<T>& query : blocks_of<T>(in.q, b, h, positions.queries)) {
        RunningAttention<T> running(core, query.rows);
        for (std::size_t k = 0; k < keys.size(); ++k) running.add(keys[k].rows, values[k].rows);
        running.result(context.data() + query.row * layout.context_columns + h * layout.value_dim,
                       layout.context_columns);
        for (std::int64_t i = 0; i < query.rows.count; ++i) {
          statistics[(query.row + i) * a.heads + h] = running.log_sum_exp(i);
        }
      }
    }
  }
}

template <typename T>
void blocked_backward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Layout layout(a);
  const std::int64_t width = layout.context_columns;
  const Input<T> dcontext(operands.read(0, layout.queries * width));
  const ProjectionInputs<T> inputs(a, operands, 1);
  const Projections<const T>& in = inputs.all();
  const std::size_t next = 1 + inputs.count();
  const Input<T> context(operands.read(next, layout.queries * width));
  const Input<T> statistics(operands.read(next + 1, layout.queries * a.heads));
  const ProjectionOutputs<T> outputs(a, operands);
  const Projections<T>& out = outputs.all();
  const AttentionPositions positions(a, placement.map);
  T log_sum_exp[kBlock], row_sums[kBlock];
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const std::vector<std::int64_t> begins = document_begins(a, placement, b);
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const HeadCore core = core_of(a, placement, mask, begins);
      const auto keys = blocks_of<T>(in.k, b, h, positions.keys);
      const auto values = blocks_of<T>(in.v, b, h, positions.keys);
      for (const Block<T>& query : blocks_of<T>(in.q, b, h, positions.queries)) {
        const std::int64_t at = query.row * width + h * layout.value_dim;
        for (std::int64_t i = 0; i < query.rows.count; ++i) {
          log_sum_exp[i] = statistics[(query.row + i) * a.heads + h];
          row_sums[i] = 0;
          for (std::int64_t d = 0; d < layout.value_dim; ++d) {
            row_sums[i] += dcontext[at + i * width + d] * context[at + i * width + d];
          }
        }
        const HeadRows<T> gradient{dcontext.data() + at, width, query.rows.count};
        for (std::size_t k = 0; k < keys.size(); ++k) {
          attention_block_backward(core, query.rows, keys[k].rows, values[k].rows, gradient,
                                   log_sum_exp, row_sums, out.q.at(query.row, h),
                                   out.k.at(keys[k].row, h), out.v.at(keys[k].row, h));
        }
      }
    }
  }
}

// The rows of a head of one sequence, one after another.
template <typename T>
std::vector<T> rows_of(const HeadMatrix<const T>& matrix, std::int64_t b, std::int64_t head) {
  std::vector<T> rows;
  rows.reserve(static_cast<std::size_t>(matrix.sequence * matrix.dim));
  for (std::int64_t i = 0; i < matrix.sequence; ++i) {
    const T* row = matrix.at(matrix.row(b, i), head);
    rows.insert(rows.end(), row, row + matrix.dim);
  }
  return rows;
}
// Added to where they came from.
template <typename T>
void add_rows(const HeadMatrix<T>& matrix, std::int64_t b, std::int64_t head,
              const std::vector<T>& rows) {
  for (std::int64_t i = 0; i < matrix.sequence; ++i) {
    T* row = matrix.at(matrix.row(b, i), head);
    for (std::int64_t d = 0; d < matrix.dim; ++d) {
      row[d] += rows[static_cast<std::size_t>(i * matrix.dim + d)];
    }
  }
}

// The context as a matrix of heads.
template <typename T>
HeadMatrix<T> context_of(const Attention& a, T* data) {
  const Layout layout(a);
  return {data, layout.context_columns, layout.value_dim, 1, a.batch, a.sequence_q, a.parts};
}

template <typename T>
void plain_forward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Layout layout(a);
  const std::int64_t cells = a.batch * a.heads * a.sequence_q * a.sequence_kv;
  const bool dropping = a.dropout;
  const ProjectionInputs<T> inputs(a, operands, 0);
  const Projections<const T>& in = inputs.all();
  Output<T> context(operands.write(0, layout.queries * layout.context_columns), false);
  std::fill_n(context.data(), layout.queries * layout.context_columns, T{0});
  Output<T> probabilities(operands.write(1, cells), false);
  std::vector<T> keep(static_cast<std::size_t>(dropping ? cells : 0), T{1});
  std::vector<T> dropped(keep.size());
  const AttentionPositions positions(a, placement.map);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const std::vector<std::int64_t> begins = document_begins(a, placement, b);
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const CounterRandom mask = mask_of(a, placement, b, h);
      const HeadCore core = core_of(a, placement, mask, begins);
      const std::vector<T> q = rows_of(in.q, b, h), k = rows_of(in.k, b, h),
                           v = rows_of(in.v, b, h);
      const std::vector<T> scores = scores_of<T>(core, {q.data(), a.head_dim, a.sequence_q},
                                                 {k.data(), a.head_dim, a.sequence_kv});
      const std::int64_t first = (b * a.heads + h) * a.sequence_q * a.sequence_kv;
      for (std::int64_t i = 0; i < a.sequence_q; ++i) {
        const std::int64_t query = positions.queries[static_cast<std::size_t>(i)];
        const T* row = scores.data() + i * a.sequence_kv;
        T* probability = probabilities.data() + first + i * a.sequence_kv;
        const auto key = [&](std::int64_t j) {
          return positions.keys[static_cast<std::size_t>(j)];
        };
        T maximum = -std::numeric_limits<T>::infinity(), sum = 0;
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          if (!masked(core, query, key(j))) maximum = std::max(maximum, row[j]);
        }
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          probability[j] = masked(core, query, key(j)) ? T{0} : std::exp(row[j] - maximum);
          sum += probability[j];
        }
        for (std::int64_t j = 0; j < a.sequence_kv; ++j) {
          probability[j] /= sum;
          if (!dropping) continue;
          const auto at = static_cast<std::size_t>(first + i * a.sequence_kv + j);
          const bool keeps = kept(core, query, key(j));
          keep[at] = keeps ? T{1} : T{0};
          dropped[at] = keeps ? probability[j] * static_cast<T>(1.0 / (1.0 - core.dropout)) : T{0};
        }
      }
      const T* weights = dropping ? dropped.data() + first : probabilities.data() + first;
      std::vector<T> result(static_cast<std::size_t>(a.sequence_q * layout.value_dim));
      multiply(Transposed::kNo, Transposed::kNo, a.sequence_q, layout.value_dim, a.sequence_kv,
               T{1}, weights, a.sequence_kv, v.data(), layout.value_dim, T{0}, result.data(),
               layout.value_dim);
      add_rows(context_of(a, context.data()), b, h, result);
    }
  }
  if (!dropping) return;
  Output<T> mask_out(operands.write(2, cells), false), dropped_out(operands.write(3, cells), false);
  std::copy(keep.begin(), keep.end(), mask_out.data());
  std::copy(dropped.begin(), dropped.end(), dropped_out.data());
}

template <typename T>
void plain_backward(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  const Layout layout(a);
  const std::int64_t square = a.sequence_q * a.sequence_kv, dim = layout.value_dim;
  const std::int64_t cells = a.batch * a.heads * square;
  const Input<T> dcontext(operands.read(0, layout.queries * layout.context_columns));
  const ProjectionInputs<T> inputs(a, operands, 1);
  const Projections<const T>& in = inputs.all();
  const std::size_t next = 2 + inputs.count();  // behind the context
  const bool dropping = a.dropout;
  const Input<T> probabilities(operands.read(next, cells));
  const Input<T> mask(operands.read(dropping ? next + 1 : next, cells));
  const Input<T> dropped(operands.read(dropping ? next + 2 : next, cells));
  const T survivor_scale = static_cast<T>(dropping ? 1.0 / (1.0 - placement.dropout) : 1.0);
  const ProjectionOutputs<T> outputs(a, operands);
  const Projections<T>& out = outputs.all();
  const T scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(a.head_dim)));
  std::vector<T> dscores(static_cast<std::size_t>(square));
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const std::vector<T> q = rows_of(in.q, b, h), k = rows_of(in.k, b, h),
                           v = rows_of(in.v, b, h);
      const std::vector<T> dout = rows_of(context_of(a, dcontext.data()), b, h);
      const std::int64_t first = (b * a.heads + h) * square;
      multiply(Transposed::kNo, Transposed::kYes, a.sequence_q, a.sequence_kv, dim, T{1},
               dout.data(), dim, v.data(), dim, T{0}, dscores.data(), a.sequence_kv);
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
      std::vector<T> dq(q.size()), dk(k.size()), dv(v.size());
      multiply(Transposed::kYes, Transposed::kNo, a.sequence_kv, dim, a.sequence_q, T{1},
               dropped.data() + first, a.sequence_kv, dout.data(), dim, T{0}, dv.data(), dim);
      multiply(Transposed::kNo, Transposed::kNo, a.sequence_q, a.head_dim, a.sequence_kv, scale,
               dscores.data(), a.sequence_kv, k.data(), a.head_dim, T{0}, dq.data(), a.head_dim);
      multiply(Transposed::kYes, Transposed::kNo, a.sequence_kv, a.head_dim, a.sequence_q, scale,
               dscores.data(), a.sequence_kv, q.data(), a.head_dim, T{0}, dk.data(), a.head_dim);
      add_rows(out.q, b, h, dq);
      add_rows(out.k, b, h, dk);
      add_rows(out.v, b, h, dv);
    }
  }
}

}  // namespace

template <typename T>
void compute_attention(const Attention& a, const OperandsOf& operands, const Placement& placement) {
  check_shape(a, operands, placement);
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
