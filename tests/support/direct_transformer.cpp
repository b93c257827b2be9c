#include "tests/support/direct_transformer.hpp"

#include <cmath>

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
      tokens += static_cast<std::int64_t>(sequence.size()) - 1;
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
    const auto dim = static_cast<std::size_t>(model_.head_dim);
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

  Vector attention(const std::string& layer, const Vector& x, std::size_t position, Saved& saved) {
    const std::string name = layer + "attention.";
    const Vector query = rotated(linear(name + "query_weight", name + "query_bias", x), position);
    saved.keys.push_back(rotated(linear(name + "key_weight", name + "key_bias", x), position));
    saved.values.push_back(linear(name + "value_weight", name + "value_bias", x));
    const auto dim = static_cast<std::size_t>(model_.head_dim);
    const auto sharing =
        static_cast<std::size_t>(model_.num_attention_heads / model_.num_key_value_heads);
    Vector context;
    for (std::size_t h = 0; h < static_cast<std::size_t>(model_.num_attention_heads); ++h) {
      const std::size_t shared = h / sharing * dim;
      Vector weights;
      Taped sum(tape_, 0);
      for (std::size_t p = 0; p <= position; ++p) {
        Taped score(tape_, 0);
        for (std::size_t d = 0; d < dim; ++d) {
          score = score + query[h * dim + d] * saved.keys[p][shared + d];
        }
        weights.push_back(exp(score * (1 / std::sqrt(static_cast<double>(dim)))));
        sum = sum + weights.back();
      }
      for (std::size_t d = 0; d < dim; ++d) {
        Taped value(tape_, 0);
        for (std::size_t p = 0; p <= position; ++p) {
          value = value + weights[p] / sum * saved.values[p][shared + d];
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

  Taped loss_of(const std::vector<std::int64_t>& sequence) {
    std::vector<Saved> saved(static_cast<std::size_t>(model_.num_hidden_layers));
    Taped total(tape_, 0);
    for (std::size_t position = 0; position + 1 < sequence.size(); ++position) {
      Vector x = embedded(sequence[position], position);
      for (std::size_t l = 0; l < saved.size(); ++l) {
        const std::string layer = "layers." + std::to_string(l) + ".";
        add_to(x, attention(layer, norm(layer + "attention.norm", x), position, saved[l]));
        add_to(x, mlp(layer, norm(layer + "mlp.norm", x)));
      }
      const std::string head = model_.tie_word_embeddings ? "embedding.word_weight" : "head.weight";
      const Vector logits = linear(head, "", norm("head.norm", x));
      Taped sum(tape_, 0);
      // Rows past the vocabulary are padding.
      for (std::int64_t v = 0; v < model_.vocab_size; ++v) {
        sum = sum + exp(logits[static_cast<std::size_t>(v)]);
      }
      total = total + log(sum) - logits[static_cast<std::size_t>(sequence[position + 1])];
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
