#include "tests/support/direct_transformer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/program/multi_token_prediction.hpp"
#include "tests/support/tape.hpp"

namespace headway {
namespace {

using Vector = std::vector<Taped>;

constexpr double kNormEpsilon = 1e-5;
constexpr double kRotaryBase = 10000.0;

class DirectTransformer {
 public:
  DirectTransformer(const Transformer& model, const NamedTensors& weights) : model_(model) {
    for (const auto& [name, values] : weights) {
      for (const double value : values) weights_[name].emplace_back(tape_, value);
    }
  }

  DirectResult run(const std::vector<std::vector<std::int64_t>>& sequences) {
    Taped total(tape_, 0);
    std::int64_t tokens = 0;
    for (const auto& sequence : sequences) {
      const Taped loss = loss_of(sequence);
      total = total + loss;
      tokens += static_cast<std::int64_t>(sequence.size()) - 1 - model_.num_nextn_predict_layers;
    }
    const Taped mean = total * (1.0 / static_cast<double>(tokens));
    const std::vector<double> slopes = tape_.gradients(mean.index());
    DirectResult result{mean.value(), {}};
    for (const auto& [name, values] : weights_) {
      for (const Taped& value : values) result.gradients[name].push_back(slopes[value.index()]);
    }
    return result;
  }

 private:
  const Vector& weight(const std::string& name) const { return weights_.at(name); }
  bool has(const std::string& name) const { return weights_.contains(name); }

  // The row-major matrix times x, plus the bias of that name where there is one.
  Vector linear(const std::string& matrix, const std::string& bias, const Vector& x) {
    const Vector& w = weight(matrix);
    const std::size_t rows = w.size() / x.size();
    Vector y;
    for (std::size_t i = 0; i < rows; ++i) {
      Taped sum = has(bias) ? weight(bias)[i] : Taped(tape_, 0);
      for (std::size_t j = 0; j < x.size(); ++j) sum = sum + w[i * x.size() + j] * x[j];
      y.push_back(sum);
    }
    return y;
  }

  Vector norm(const std::string& name, const Vector& x) {
    const double count = static_cast<double>(x.size());
    Taped mean(tape_, 0), squares(tape_, 0);
    if (model_.norm == Norm::kLayerNorm) {
      for (const Taped& value : x) mean = mean + value;
      mean = mean * (1 / count);
    }
    for (const Taped& value : x) squares = squares + (value - mean) * (value - mean);
    const Taped root = sqrt(squares * (1 / count) + kNormEpsilon);
    Vector y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Taped scaled = (x[i] - mean) / root * weight(name + "_weight")[i];
      y.push_back(model_.norm == Norm::kLayerNorm ? scaled + weight(name + "_bias")[i] : scaled);
    }
    return y;
  }

  // Turns each head's pairs (i, i + dim / 2) by position * base^(-2i / dim).
  Vector rotated(Vector x, std::size_t position) const {
    if (model_.position_embedding != PositionEmbedding::kRope) return x;
    return turned(std::move(x), static_cast<std::size_t>(model_.head_dim), position);
  }

  static Vector turned(Vector x, std::size_t dim, std::size_t position) {
    for (std::size_t head = 0; head < x.size(); head += dim) {
      for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(kRotaryBase, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        const Taped a = x[head + i], b = x[head + i + dim / 2];
        x[head + i] = a * std::cos(angle) - b * std::sin(angle);
        x[head + i + dim / 2] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return x;
  }

  struct Saved {
    std::vector<Vector> keys, values;  // by position
  };

  // Queries, keys and values of latent attention (arXiv 2405.04434, equations 37 to 47): of each
  // head the plain part and, behind it, the rotated one.
  Vector latent(const std::string& name, const Vector& x, std::size_t position, Saved& saved) {
    const LatentAttention& shape = *model_.latent_attention;
    const auto plain = static_cast<std::size_t>(shape.qk_nope_head_dim);
    const auto rope = static_cast<std::size_t>(shape.qk_rope_head_dim);
    const auto value = static_cast<std::size_t>(shape.v_head_dim);
    const Vector query =
        shape.q_lora_rank == 0
            ? linear(name + "query_weight", "", x)
            : linear(name + "query_up_weight", "",
                     norm(name + "query_norm", linear(name + "query_down_weight", "", x)));
    const Vector key_value =
        linear(name + "key_value_up_weight", "",
               norm(name + "key_value_norm", linear(name + "key_value_down_weight", "", x)));
    const Vector shared = turned(linear(name + "key_rope_weight", "", x), rope, position);
    Vector queries, keys, values;
    const auto append = [](Vector& to, const Vector& from, std::size_t first, std::size_t count) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    for (std::size_t h = 0; h < static_cast<std::size_t>(model_.num_attention_heads); ++h) {
      append(queries, query, h * (plain + rope), plain);
      Vector turning;
      append(turning, query, h * (plain + rope) + plain, rope);
      append(queries, turned(turning, rope, position), 0, rope);
      append(keys, key_value, h * (plain + value), plain);
      append(keys, shared, 0, rope);
      append(values, key_value, h * (plain + value) + plain, value);
    }
    saved.keys.push_back(keys);
    saved.values.push_back(values);
    return queries;
  }

  Vector attention(const std::string& layer, const Vector& x, std::size_t position, Saved& saved) {
    const std::string name = layer + "attention.";
    Vector query;
    auto dim_v = static_cast<std::size_t>(model_.head_dim);
    auto sharing =
        static_cast<std::size_t>(model_.num_attention_heads / model_.num_key_value_heads);
    if (model_.latent_attention) {
      query = latent(name, x, position, saved);
      dim_v = static_cast<std::size_t>(model_.latent_attention->v_head_dim);
      sharing = 1;
    } else {
      query = rotated(linear(name + "query_weight", name + "query_bias", x), position);
      saved.keys.push_back(rotated(linear(name + "key_weight", name + "key_bias", x), position));
      saved.values.push_back(linear(name + "value_weight", name + "value_bias", x));
    }
    const auto dim = static_cast<std::size_t>(model_.head_dim);
    const auto window = static_cast<std::size_t>(model_.sliding_window.value_or(1 << 20));
    const std::size_t first = position + 1 > window ? position + 1 - window : 0;
    Vector context;
    for (std::size_t h = 0; h < static_cast<std::size_t>(model_.num_attention_heads); ++h) {
      const std::size_t shared = h / sharing * dim;
      Vector weights;
      Taped sum(tape_, 0);
      for (std::size_t p = first; p <= position; ++p) {
        Taped score(tape_, 0);
        for (std::size_t d = 0; d < dim; ++d) {
          score = score + query[h * dim + d] * saved.keys[p][shared + d];
        }
        weights.push_back(exp(score * (1 / std::sqrt(static_cast<double>(dim)))));
        sum = sum + weights.back();
      }
      for (std::size_t d = 0; d < dim_v; ++d) {
        Taped value(tape_, 0);
        for (std::size_t p = first; p <= position; ++p) {
          value = value + weights[p - first] / sum * saved.values[p][h / sharing * dim_v + d];
        }
        context.push_back(value);
      }
    }
    return linear(name + "projection_weight", name + "projection_bias", context);
  }

  Taped gelu(Taped x) {
    constexpr double kRootTwoOverPi = 0.79788456080286535588;
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * kRootTwoOverPi) + 1.0);
  }

  Vector mlp(const std::string& layer, const Vector& x) {
    const std::string name = layer + "mlp.";
    Vector inner = linear(name + "up_weight", name + "up_bias", x);
    if (model_.gated_mlp) {
      const Vector gate = linear(name + "gate_weight", name + "gate_bias", x);
      for (std::size_t i = 0; i < inner.size(); ++i) {
        const Taped silu = gate[i] / (exp(gate[i] * -1.0) + 1.0);
        inner[i] = silu * inner[i];
      }
    } else {
      for (Taped& value : inner) value = gelu(value);
    }
    return linear(name + "down_weight", name + "down_bias", inner);
  }

  // The rows [first, first + rows) of a matrix, times x.
  Vector block(const std::string& matrix, std::size_t first, std::size_t rows, const Vector& x) {
    const Vector& w = weight(matrix);
    Vector y;
    for (std::size_t i = first; i < first + rows; ++i) {
      Taped sum(tape_, 0);
      for (std::size_t j = 0; j < x.size(); ++j) sum = sum + w[i * x.size() + j] * x[j];
      y.push_back(sum);
    }
    return y;
  }

  // A gated MLP whose matrices are blocks of rows: the e-th of as many experts.
  Vector gated(const std::string& name, std::size_t e, std::size_t width, const Vector& x) {
    Vector inner = block(name + "up_weight", e * width, width, x);
    const Vector gate = block(name + "gate_weight", e * width, width, x);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i] = gate[i] / (exp(gate[i] * -1.0) + 1.0) * inner[i];
    }
    return block(name + "down_weight", e * x.size(), x.size(), inner);
  }

  // The k best experts of the token, weighted by the softmax of their logits; and all shared ones.
  Vector experts(const std::string& layer, const Vector& x) {
    const std::string name = layer + "moe.";
    const Vector logits = linear(name + "router_weight", "", x);
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return logits[a].value() > logits[b].value(); });
    order.resize(static_cast<std::size_t>(model_.experts.per_token));
    Taped sum(tape_, 0);
    for (const std::size_t e : order) sum = sum + exp(logits[e]);
    Vector y(x.size(), Taped(tape_, 0));
    const auto width = static_cast<std::size_t>(model_.experts.intermediate_size);
    for (const std::size_t e : order) {
      Vector out = gated(name + "experts.", e, width, x);
      for (Taped& value : out) value = value * (exp(logits[e]) / sum);
      add_to(y, out);
    }
    const auto shared = static_cast<std::size_t>(model_.experts.shared_intermediate_size);
    if (shared > 0) add_to(y, gated(name + "shared.", 0, shared, x));
    return y;
  }

  static void add_to(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + y[i];
  }

  Vector embedded(std::int64_t token, std::size_t position) const {
    const auto hidden = static_cast<std::size_t>(model_.hidden_size);
    Vector x;
    for (std::size_t i = 0; i < hidden; ++i) {
      Taped value = weight("embedding.word_weight")[static_cast<std::size_t>(token) * hidden + i];
      if (model_.position_embedding == PositionEmbedding::kLearned) {
        value = value + weight("embedding.position_weight")[position * hidden + i];
      }
      x.push_back(value);
    }
    return x;
  }

  // What layer number `l` makes of a position's hidden states.
  void pass(std::size_t l, Vector& x, std::size_t position, Saved& saved) {
    const std::string layer = "layers." + std::to_string(l) + ".";
    add_to(x, attention(layer, norm(layer + "attention.norm", x), position, saved));
    const Vector normed = norm(layer + "mlp.norm", x);
    const bool dense = !model_.is_expert_layer(static_cast<std::int64_t>(l));
    add_to(x, dense ? mlp(layer, normed) : experts(layer, normed));
  }

  Taped cross_entropy(const Vector& normed, std::int64_t target) {
    const std::string head = model_.tie_word_embeddings ? "embedding.word_weight" : "head.weight";
    const Vector logits = linear(head, "", normed);
    Taped sum(tape_, 0);
    // Rows past the vocabulary are padding.
    for (std::int64_t v = 0; v < model_.vocab_size; ++v) {
      sum = sum + exp(logits[static_cast<std::size_t>(v)]);
    }
    return log(sum) - logits[static_cast<std::size_t>(target)];
  }

  // DeepSeek-V3, arXiv 2412.19437, equations 21 to 25, of one position: x becomes the hidden states
  // of depth k from those of the depth before.
  Taped predicted(std::size_t k, Vector& x, std::size_t position,
                  const std::vector<std::int64_t>& sequence, Saved& saved) {
    const std::string name = "prediction" + std::to_string(k) + ".";
    Vector joined = norm(name + "words_norm", embedded(sequence[position + k + 1], position));
    const Vector before = norm(name + "hidden_norm", x);
    joined.insert(joined.end(), before.begin(), before.end());
    x = linear(name + "projection_weight", "", joined);
    pass(static_cast<std::size_t>(model_.num_hidden_layers) + 1 + 2 * k, x, position, saved);
    return cross_entropy(norm(name + "head.norm", x), sequence[position + k + 2]);
  }

  Taped loss_of(const std::vector<std::int64_t>& sequence) {
    const auto layers = static_cast<std::size_t>(model_.num_hidden_layers);
    const auto depth = static_cast<std::size_t>(model_.num_nextn_predict_layers);
    std::vector<Saved> saved(layers + depth);
    Taped total(tape_, 0);
    for (std::size_t position = 0; position + 1 + depth < sequence.size(); ++position) {
      Vector x = embedded(sequence[position], position);
      for (std::size_t l = 0; l < layers; ++l) pass(l, x, position, saved[l]);
      total = total + cross_entropy(norm("head.norm", x), sequence[position + 1]);
      for (std::size_t k = 0; k < depth; ++k) {
        const Taped loss = predicted(k, x, position, sequence, saved[layers + k]);
        total = total + loss * (kPredictionWeight / static_cast<double>(depth));
      }
    }
    return total;
  }

  const Transformer& model_;
  Tape tape_;
  std::map<std::string, Vector> weights_;
};

}  // namespace

DirectResult direct_training_step(const Transformer& model, const NamedTensors& weights,
                                  const std::vector<std::vector<std::int64_t>>& sequences) {
  return DirectTransformer(model, weights).run(sequences);
}

}  // namespace headway
