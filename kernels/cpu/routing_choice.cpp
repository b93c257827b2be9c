#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/routing.hpp"

namespace headway {
namespace {

template <typename T>
void softmax(const T* logits, std::int64_t count, T* scores) {
  const T maximum = *std::max_element(logits, logits + count);
  T sum = 0;
  for (std::int64_t e = 0; e < count; ++e) sum += scores[e] = std::exp(logits[e] - maximum);
  for (std::int64_t e = 0; e < count; ++e) scores[e] /= sum;
}

// The experts a token may choose: those of its best groups. A group is as good as its best expert
// (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), with sigmoid scores as its best two together
// (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
template <typename T>
std::vector<bool> allowed(const Routing& routing, const T* scores) {
  std::vector<bool> result(static_cast<std::size_t>(routing.experts), true);
  if (routing.groups_per_token >= routing.groups) return result;
  const std::int64_t size = routing.experts / routing.groups;
  const std::int64_t best =
      std::min<std::int64_t>(size, routing.score == RouterScore::kSigmoid ? 2 : 1);
  std::vector<std::pair<T, std::int64_t>> order;
  for (std::int64_t g = 0; g < routing.groups; ++g) {
    std::vector<T> members(scores + g * size, scores + (g + 1) * size);
    std::partial_sort(members.begin(), members.begin() + best, members.end(), std::greater<>());
    order.emplace_back(-std::accumulate(members.begin(), members.begin() + best, T{0}), g);
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = static_cast<std::size_t>(routing.groups_per_token); i < order.size(); ++i) {
    const auto first = result.begin() + order[i].second * size;
    std::fill(first, first + size, false);
  }
  return result;
}

// The best experts of a token, best first; of equals the first.
template <typename T>
std::vector<std::int64_t> best_experts(const Routing& routing, const T* scores) {
  const std::vector<bool> may = allowed(routing, scores);
  std::vector<std::int64_t> order;
  for (std::int64_t e = 0; e < routing.experts; ++e) {
    if (may[static_cast<std::size_t>(e)]) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(routing.per_token));
  return order;
}

template <typename T>
void weigh(const Routing& routing, const T* logits, const T* scores, const std::int64_t* chosen,
           T* weights) {
  const std::int64_t count = routing.per_token;
  if (routing.score == RouterScore::kSoftmaxOfChosen) {
    std::vector<T> picked;
    for (std::int64_t j = 0; j < count; ++j) picked.push_back(logits[chosen[j]]);
    return softmax(picked.data(), count, weights);
  }
  T sum = 0;
  for (std::int64_t j = 0; j < count; ++j) sum += weights[j] = scores[chosen[j]];
  if (routing.score != RouterScore::kSigmoid) return;
  for (std::int64_t j = 0; j < count; ++j) weights[j] /= sum;
}

}  // namespace

template <typename T>
void choose(const Routing& routing, const OperandsOf& operands, const Placement& placement) {
  const std::int64_t tokens = routing.tokens, experts = routing.experts, k = routing.per_token;
  const Input<T> logits(operands.read(0, tokens * experts));
  const Operand& choice = operands.write(0, tokens * k);
  Output<T> weights(operands.write(1, tokens * k), false);
  Output<T> scores(operands.write(2, tokens * experts), false);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const T* own_logits = logits.data() + t * experts;
    T* own = scores.data() + t * experts;
    if (routing.score == RouterScore::kSigmoid) {
      for (std::int64_t e = 0; e < experts; ++e) own[e] = T{1} / (T{1} + std::exp(-own_logits[e]));
    } else {
      softmax(own_logits, experts, own);
    }
    std::vector<std::int64_t> chosen;
    if (placement.choice != nullptr) {
      chosen.assign(placement.choice + t * k, placement.choice + (t + 1) * k);
    } else {
      chosen = best_experts(routing, own);
    }
    store(choice, t * k, k, chosen.data());
    weigh(routing, own_logits, own, chosen.data(), weights.data() + t * k);
  }
}

// dlogits = dweights . dweights/dlogits, and of the auxiliary loss a sum of coefficient x chosen x
// score, where sigmoid scores count normalised over all experts.
template <typename T>
void choose_backward(const Routing& routing, const OperandsOf& operands) {
  const std::int64_t tokens = routing.tokens, experts = routing.experts, k = routing.per_token;
  const Input<T> dweights(operands.read(0, tokens * k));
  const std::vector<std::int64_t> choice = integers(operands.read(1, tokens * k));
  const Input<T> weights(operands.read(2, tokens * k)), scores(operands.read(3, tokens * experts));
  std::vector<std::int64_t> load(static_cast<std::size_t>(experts));
  if (routing.with_chosen) load = integers(operands.read(4, experts));
  Output<T> dlogits(operands.write(0, tokens * experts), false);
  std::vector<T> dscores(static_cast<std::size_t>(experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const T* s = scores.data() + t * experts;
    const T* w = weights.data() + t * k;
    const T* dw = dweights.data() + t * k;
    T* dl = dlogits.data() + t * experts;
    const bool sigmoid = routing.score == RouterScore::kSigmoid;
    const T all = sigmoid ? std::accumulate(s, s + experts, T{0}) : T{1};
    T mean = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto at = static_cast<std::size_t>(e);
      dscores[at] = static_cast<T>(routing.auxiliary * static_cast<double>(load[at])) / all;
      mean += dscores[at] * s[e] / all;
    }
    T inner = 0, picked = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      inner += w[j] * dw[j];
      picked += s[choice[static_cast<std::size_t>(t * k + j)]];
    }
    for (std::int64_t e = 0; sigmoid && e < experts; ++e)
      dscores[static_cast<std::size_t>(e)] -= mean;
    for (std::int64_t j = 0; j < k; ++j) {
      const auto e = static_cast<std::size_t>(choice[static_cast<std::size_t>(t * k + j)]);
      if (sigmoid) dscores[e] += (dw[j] - inner) / picked;
      if (routing.score == RouterScore::kSoftmax) dscores[e] += dw[j];
    }
    T centre = 0;
    for (std::int64_t e = 0; e < experts; ++e)
      centre += s[e] * dscores[static_cast<std::size_t>(e)];
    for (std::int64_t e = 0; e < experts; ++e) {
      const T ds = dscores[static_cast<std::size_t>(e)];
      dl[e] = sigmoid ? ds * s[e] * (T{1} - s[e]) : s[e] * (ds - centre);
    }
    if (routing.score != RouterScore::kSoftmaxOfChosen) continue;
    for (std::int64_t j = 0; j < k; ++j) {
      dl[choice[static_cast<std::size_t>(t * k + j)]] += w[j] * (dw[j] - inner);
    }
  }
}

template void choose<float>(const Routing&, const OperandsOf&, const Placement&);
template void choose<double>(const Routing&, const OperandsOf&, const Placement&);
template void choose_backward<float>(const Routing&, const OperandsOf&);
template void choose_backward<double>(const Routing&, const OperandsOf&);

}  // namespace headway
