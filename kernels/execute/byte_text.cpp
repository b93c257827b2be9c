#include "kernels/execute/byte_text.hpp"

#include <array>
#include <string_view>

#include "sim/core/counter_random.hpp"

namespace headway {
namespace {

constexpr std::array<std::string_view, 24> kWords = {
    "the",   "ship", "makes", "headway", "against", "wind", "and",   "tide",
    "a",     "crew", "of",    "eight",   "rows",    "home", "while", "rain",
    "falls", "over", "deep",  "water",   "they",    "sing", "old",   "songs"};

constexpr std::int64_t kSymbols = 27;  // the space and the letters

std::int64_t token_of(std::int64_t symbol, std::int64_t vocabulary) {
  return vocabulary >= kSymbols ? symbol * vocabulary / kSymbols : symbol % vocabulary;
}

}  // namespace

std::vector<std::int64_t> sample_tokens(std::uint64_t seed, std::int64_t sample,
                                        std::int64_t length, std::int64_t vocabulary) {
  const CounterRandom random =
      CounterRandom(seed, "byte text").child(static_cast<std::uint64_t>(sample));
  std::vector<std::int64_t> tokens;
  for (std::uint64_t word = 0; static_cast<std::int64_t>(tokens.size()) <= length; ++word) {
    for (const char letter : kWords[random.bits(word) % kWords.size()]) {
      tokens.push_back(token_of(letter - 'a' + 1, vocabulary));
    }
    tokens.push_back(token_of(0, vocabulary));
  }
  tokens.resize(static_cast<std::size_t>(length) + 1);
  return tokens;
}

}  // namespace headway
