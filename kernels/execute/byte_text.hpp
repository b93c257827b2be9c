// The data set of executed runs: an endless byte-level text that is made, not read. Sample i is a
// sentence of English words drawn by a counter keyed by i, so that every rank of every plan sees
// the same samples, and a model's loss can fall.
#pragma once

#include <cstdint>
#include <vector>

namespace headway {

// Tokens 0 .. `length` (one more than the sequence, for the targets) of the sample, each below
// `vocabulary`. Space and letters are spread evenly over the vocabulary, so that every shard of a
// table has some. REQUIRES: vocabulary >= 1.
std::vector<std::int64_t> sample_tokens(std::uint64_t seed, std::int64_t sample,
                                        std::int64_t length, std::int64_t vocabulary);

}  // namespace headway
