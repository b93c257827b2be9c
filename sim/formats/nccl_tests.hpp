// Logs of nccl-tests (github.com/NVIDIA/nccl-tests), as its programs print them: a line for each
// rank with host and device, then a table of sizes, times and bandwidths, out of place and in
// place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/cost/points.hpp"

namespace headway {

// Whether a text is such a log.
bool is_nccl_tests_log(std::string_view text);

// A row for each time of the table; `file` stands for the log in messages and sources. The
// operation is what the log says ("Collective test starting"), else what the table's columns and
// the ratio of its bandwidths leave: an all-gather and an all-to-all print alike, which is a
// problem that asks for the file's name to say it ("all_gather.log"). Over several hosts the
// network is "unstated". Problems name the line.
std::vector<CollectiveRow> read_nccl_tests(std::string_view text, const std::string& file,
                                           Problems& problems);

}  // namespace headway
