// Packed sequences: documents of many lengths laid one behind another in sequences of one length,
// so that none is padded to the longest. The longest documents are laid first, each where it leaves
// the least room (best fit decreasing; NeMo packs its fine-tuning data by first fit decreasing);
// what remains of a sequence is padding, a document of its own that sees only itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace headway {

// The lengths of the documents of each sequence, which all add up to the same: to `length`, or,
// where that is not given, to the longest document. `file`: a CSV of "length,count", a line for
// each length. Adds a problem, with its line, for whatever is not one, and then returns nothing.
std::vector<std::vector<std::int64_t>> packed_sequences(const std::string& file,
                                                        std::optional<std::int64_t> length,
                                                        Problems& problems);

// Length of the document that a token is in, in the mean over all tokens: the sum of the squared
// lengths over that of the lengths, rounded. Attention costs what sequences of that length would.
std::int64_t mean_document(const std::vector<std::vector<std::int64_t>>& packs);

}  // namespace headway
