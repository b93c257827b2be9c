#include "sim/formats/nccl_tests.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace headway {

namespace {

// Programs of nccl-tests, and the operations as the points name them; longer names first, since
// "reduce" is part of others.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kOperations = {{
    {"reduce_scatter", "reduce_scatter"},
    {"all_reduce", "all_reduce"},
    {"all_gather", "all_gather"},
    {"alltoall", "alltoall"},
    {"sendrecv", "sendrecv"},
}};
// Bandwidths are printed with two decimals: a ratio tells nothing where they are small.
constexpr double kTellingBandwidth = 5;
constexpr double kRatioTolerance = 0.01;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::optional<double> number_of(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<std::string> operation_in(std::string_view text) {
  for (const auto& [program, operation] : kOperations) {
    if (text.find(program) != std::string_view::npos) return std::string(operation);
  }
  return std::nullopt;
}

// One log while it is read.
class Log {
 public:
  Log(const std::string& file, Problems& problems) : file_(file), problems_(problems) {}

  void read(std::string_view text) {
    std::istringstream stream{std::string(text)};
    std::string line;
    for (number_ = 1; std::getline(stream, line); ++number_) read_line(line);
    if (table_.empty()) problem(1, "no line of the table of sizes and times");
    if (gpus_.empty()) problem(1, "no line '#  Rank  0 ... device  0 [0x..] NAME' names the GPUs");
  }

  std::vector<CollectiveRow> rows() const {
    const auto operation = named_operation();
    if (!operation) {
      problem(1,
              "does not say which collective it is; expected its name in the file's name "
              "(all_reduce, all_gather, reduce_scatter, alltoall)");
      return {};
    }
    std::vector<CollectiveRow> rows;
    for (const Times& times : table_) {
      for (const bool in_place : {false, true}) {
        const auto& time = in_place ? times.in_place_us : times.out_of_place_us;
        if (!time || !(*time > 0) || !(times.bytes > 0)) continue;
        CollectiveRow row;
        row.gpu = *gpus_.begin();
        row.operation = *operation;
        row.network = hosts_.size() > 1 ? "unstated" : "none(intra)";
        row.source = "nccl-tests " + file_;
        row.ranks = ranks_;
        row.gpus_per_node = ranks_ / std::max(1, static_cast<int>(hosts_.size()));
        row.bytes = times.bytes;
        row.time_us = *time;
        row.in_place = in_place;
        rows.push_back(row);
      }
    }
    return rows;
  }

 private:
  struct Times {
    double bytes = 0;
    std::string reduction;
    std::optional<double> out_of_place_us, algorithm_bandwidth, bus_bandwidth, in_place_us;
  };

  void problem(std::size_t line, const std::string& what) const {
    problems_.add(file_, "line " + std::to_string(line), what);
  }

  void read_line(const std::string& line) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) return;
    if (line.starts_with("#")) {
      if (line.find("Collective test starting") != std::string::npos) stated_ = operation_in(line);
      if (words.size() > 2 && words[1] == "Rank") read_rank(line, words);
      return;
    }
    // size count type redop root, then time algbw busbw #wrong twice.
    if (!number_of(words[0]) || words.size() < 6) return;  // another program's output
    constexpr std::size_t kColumns = 12;
    if (words.size() < kColumns) {
      problem(number_, std::to_string(words.size()) + " columns; expected 12 or 13");
      return;
    }
    // The column of the root is not there in older logs.
    const std::size_t first = words.size() >= kColumns + 1 ? 5 : 4;
    table_.push_back({number_of(words[0]).value_or(0), words[3], number_of(words[first]),
                      number_of(words[first + 1]), number_of(words[first + 2]),
                      number_of(words[first + 4])});
  }

  // "#  Rank  0 Group  0 Pid   4242 on     node01 device  0 [0x07] NVIDIA A100-SXM4-80GB"
  void read_rank(const std::string& line, const std::vector<std::string>& words) {
    const std::size_t bracket = line.find("] ");
    const auto on = std::find(words.begin(), words.end(), "on");
    if (bracket == std::string::npos || on == words.end() || on + 1 == words.end()) return;
    ++ranks_;
    hosts_.insert(*(on + 1));
    gpus_.insert(line.substr(bracket + 2));
    if (gpus_.size() == 2) problem(number_, "a second kind of GPU; expected one");
  }

  std::optional<std::string> named_operation() const {
    if (stated_) return stated_;
    if (const auto named = operation_in(std::filesystem::path(file_).filename().string())) {
      return named;
    }
    const double share = static_cast<double>(ranks_ - 1) / std::max(1, ranks_);
    for (const Times& times : table_) {
      if (times.algorithm_bandwidth.value_or(0) < kTellingBandwidth) continue;
      const double ratio = times.bus_bandwidth.value_or(0) / *times.algorithm_bandwidth;
      const bool reduces = times.reduction != "none";
      if (std::abs(ratio - 2 * share) < kRatioTolerance && reduces && ranks_ > 2) {
        return "all_reduce";
      }
      if (std::abs(ratio - share) < kRatioTolerance && reduces && ranks_ > 2) {
        return "reduce_scatter";
      }
    }
    return std::nullopt;
  }

  const std::string& file_;
  Problems& problems_;
  std::size_t number_ = 0;
  int ranks_ = 0;
  std::set<std::string> hosts_, gpus_;
  std::optional<std::string> stated_;
  std::vector<Times> table_;
};

}  // namespace

bool is_nccl_tests_log(std::string_view text) {
  // The table's head: "#       size         count      type   redop    root     time   algbw ..."
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with("#") && line.find(" size ") != std::string_view::npos &&
        line.find(" busbw") != std::string_view::npos) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

std::vector<CollectiveRow> read_nccl_tests(std::string_view text, const std::string& file,
                                           Problems& problems) {
  Log log(file, problems);
  const std::size_t before = problems.size();
  log.read(text);
  if (problems.size() != before) return {};
  return log.rows();
}

}  // namespace headway
