#include "sim/cost/points.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "sim/core/file.hpp"

namespace headway {

namespace {

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = line.find(separator, start);
    parts.push_back(line.substr(start, end == std::string_view::npos ? end : end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

// One line of a table, its values by column name; what is wrong with them goes to `problems`.
class Line {
 public:
  Line(const std::map<std::string_view, std::size_t>& columns, std::vector<std::string_view> values,
       const std::string& file, std::size_t number, Problems& problems)
      : columns_(columns),
        values_(std::move(values)),
        file_(file),
        number_(number),
        problems_(problems) {}

  std::string text(std::string_view column) const { return std::string(value(column)); }
  bool given(std::string_view column) const { return !value(column).empty(); }
  double number(std::string_view column) const {
    const std::string_view text = value(column);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number > 0)) {
      problems_.add(
          file_, "line " + std::to_string(number_),
          std::string(column) + " is '" + std::string(text) + "'; expected a positive number");
      return 1;
    }
    return number;
  }
  std::int64_t integer(std::string_view column) const {
    return static_cast<std::int64_t>(number(column));
  }

 private:
  std::string_view value(std::string_view column) const {
    const auto found = columns_.find(column);
    if (found == columns_.end()) {
      problems_.add(file_, "line 1", "no column '" + std::string(column) + "'");
      return {};
    }
    return values_[found->second];
  }

  const std::map<std::string_view, std::size_t>& columns_;
  std::vector<std::string_view> values_;
  const std::string& file_;
  std::size_t number_;
  Problems& problems_;
};

using Columns = std::map<std::string_view, std::size_t>;

void for_each_line(const std::string& path, const std::string& content, Problems& problems,
                   const std::function<void(const Line&)>& visit) {
  Columns columns;
  std::size_t number = 0;
  for (std::string_view line : split(content, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::vector<std::string_view> values = split(line, ',');
    if (columns.empty()) {
      for (std::size_t i = 0; i < values.size(); ++i) columns[values[i]] = i;
      continue;
    }
    if (values.size() != columns.size()) {
      problems.add(
          path, "line " + std::to_string(number),
          std::to_string(values.size()) + " fields; expected " + std::to_string(columns.size()));
      continue;
    }
    visit(Line(columns, std::move(values), path, number, problems));
  }
}

void read_gemm(const std::string& path, const std::string& content, Problems& problems,
               PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    // Ceilings found by search over shapes state none.
    if (!line.given("m") || !line.given("time_us")) return;
    GemmRow row;
    row.gpu = line.text("gpu");
    row.dtype = line.text("dtype");
    row.layout = line.text("layout");
    row.flag = line.text("flag");
    row.source = line.text("source");
    row.shape = {line.integer("m"), line.integer("n"), line.integer("k")};
    row.time_us = line.number("time_us");
    set.gemm.push_back(std::move(row));
  });
}

void read_attention(const std::string& path, const std::string& content, Problems& problems,
                    PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    if (!line.given("batch") || !line.given("heads") || !line.given("time_us")) return;
    AttentionRow row;
    row.gpu = line.text("gpu");
    row.dtype = line.text("dtype");
    row.kind = line.text("kind");
    row.implementation = line.text("impl");
    row.flag = line.text("flag");
    row.source = line.text("source");
    row.point = {line.integer("batch"),       line.integer("heads"),
                 line.integer("kv_heads"),    line.integer("seq"),
                 line.integer("head_dim_qk"), line.integer("head_dim_v"),
                 line.text("causal") == "1",  Time::from_microseconds(line.number("time_us"))};
    set.attention.push_back(std::move(row));
  });
}

void read_elementwise(const std::string& path, const std::string& content, Problems& problems,
                      PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    if (!line.given("time_us")) return;
    ElementwiseRow row;
    row.gpu = line.text("gpu");
    row.operation = line.text("op");
    row.dtype = line.text("dtype");
    row.shape = line.text("shape");
    row.flag = line.text("flag");
    row.source = line.text("source");
    row.note = line.text("note");
    row.time_us = line.number("time_us");
    set.elementwise.push_back(std::move(row));
  });
}

void read_collectives(const std::string& path, const std::string& content, Problems& problems,
                      PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    if (!line.given("time_us") || !line.given("bytes")) return;
    CollectiveRow row;
    row.gpu = line.text("gpu");
    row.operation = line.text("op");
    row.network = line.text("nic");
    row.flag = line.text("flag");
    row.source = line.text("source");
    row.ranks = static_cast<int>(line.integer("nranks"));
    row.gpus_per_node = static_cast<int>(line.integer("gpus_per_node"));
    row.bytes = line.number("bytes");
    row.time_us = line.number("time_us");
    row.in_place = line.text("inplace") == "1";
    set.collectives.push_back(std::move(row));
  });
}

void read_sends(const std::string& path, const std::string& content, Problems& problems,
                PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    if (!line.given("time_us") || !line.given("bytes")) return;
    set.sends.push_back({line.text("gpu"), line.text("link"), line.text("kind"),
                         line.text("source"), line.number("bytes"), line.number("time_us")});
  });
}

void read_experts(const std::string& path, const std::string& content, Problems& problems,
                  PointSet& set) {
  for_each_line(path, content, problems, [&](const Line& line) {
    set.experts.push_back(
        {line.text("gpu"), line.text("kind"), line.text("shape"), line.text("source")});
  });
}

void count_ratios(const std::string& path, const std::string& content, Problems& problems,
                  PointSet& set) {
  for_each_line(path, content, problems, [&](const Line&) { ++set.ratios; });
}

// A kind of file, known by columns that no other kind has.
struct FileKind {
  std::vector<std::string_view> columns;
  void (*read)(const std::string& path, const std::string& content, Problems& problems,
               PointSet& set);
};
const std::vector<FileKind>& file_kinds() {
  static const std::vector<FileKind> kKinds = {
      {{"m", "n", "k", "layout"}, read_gemm},      {{"head_dim_qk", "causal"}, read_attention},
      {{"nic", "nranks"}, read_collectives},       {{"link", "kind", "bytes"}, read_sends},
      {{"kind", "shape", "nranks"}, read_experts}, {{"op", "shape"}, read_elementwise},
      {{"ratio_of_link_bw"}, count_ratios},
  };
  return kKinds;
}

}  // namespace

void read_points_file(const std::string& path, PointSet& set, Problems& problems) {
  const std::string content = read_file(path);
  if (content.empty()) {
    problems.add(path, "line 1", "empty; expected a line of column names");
    return;
  }
  std::string_view header = std::string_view(content).substr(0, content.find('\n'));
  if (header.ends_with('\r')) header.remove_suffix(1);
  const std::vector<std::string_view> columns = split(header, ',');
  for (const FileKind& kind : file_kinds()) {
    const bool all =
        std::all_of(kind.columns.begin(), kind.columns.end(), [&](const std::string_view column) {
          return std::find(columns.begin(), columns.end(), column) != columns.end();
        });
    if (!all) continue;
    kind.read(path, content, problems, set);
    return;
  }
  problems.add(path, "line 1",
               "no points: its columns are none of gemm.csv, attention.csv, elementwise.csv, "
               "collectives.csv, p2p.csv or moe.csv (calibration/points/README.md)");
}

PointSet read_points(const std::string& folder) {
  PointSet set;
  Problems problems;
  for (const char* name :
       {"gemm.csv", "gemm-host-cpu.csv", "attention.csv", "elementwise.csv", "collectives.csv"}) {
    read_points_file(folder + "/" + name, set, problems);
  }
  problems.throw_if_any();
  return set;
}

std::optional<std::string> device_of_gpu(const std::string& gpu) {
  static const std::map<std::string, std::string> kNames = {
      {"A100-SXM4-80GB", "a100-sxm-80gb"},
      {"A100-SXM4-40GB", "a100-sxm-40gb"},
      {"H100-SXM5-80GB", "h100-sxm"},
      {"H100(HBM2e 500W)", "h100-96gb-500w"},
      {"H200-SXM-141GB", "h200"},
      {"H800-SXM", "h800"},
      {"B200-SXM", "b200"},
      {"B300-SXM", "b300"},
      {"GB200", "gb200"},
      {"GB300", "gb300"},
      // As the driver names them, in logs and traces.
      {"NVIDIA H100 80GB HBM3", "h100-sxm"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA H800", "h800"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA B300", "b300"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA GB300", "gb300"},
      {"Tesla V100-SXM2-16GB", "v100-sxm2-16gb"},
      {"Tesla V100-SXM2-32GB", "v100-sxm2-32gb"},
  };
  const auto found = kNames.find(gpu);
  if (found != kNames.end()) return found->second;
  for (const Device& device : devices()) {
    if (gpu == device.name || gpu == device.title) return device.name;
  }
  return std::nullopt;
}

std::optional<Regime> regime_of(std::string_view source) {
  for (const std::string_view burst : {"aic-", "vidur", "liger-", "headway-host"}) {
    if (source.starts_with(burst)) return Regime::kBurst;
  }
  for (const std::string_view sustained : {"simumax-", "azure-aibg", "stas00-mamf"}) {
    if (source.starts_with(sustained)) return Regime::kSustained;
  }
  for (const std::string_view framework : {"ds-profile-train", "aicb-", "pytorch-trace"}) {
    if (source.starts_with(framework)) return Regime::kInFramework;
  }
  return std::nullopt;
}

}  // namespace headway
