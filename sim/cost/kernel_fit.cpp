#include "sim/cost/kernel_fit.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "sim/cost/gemm_fit.hpp"

namespace headway {

namespace {

constexpr std::size_t kLeastSizes = 3;

struct Size {
  double elements, microseconds;
};
struct Line {
  double constant = 0, slope = 0;  // us, us per element
  double at(double elements) const { return constant + slope * elements; }
};

// Least squares of the relative errors; a negative constant is none.
Line fit_line(const std::vector<Size>& sizes) {
  double s00 = 0, s01 = 0, s11 = 0, b0 = 0, b1 = 0;
  for (const Size& size : sizes) {
    const double w = 1 / size.microseconds;
    const double x = size.elements * w;
    s00 += w * w;
    s01 += w * x;
    s11 += x * x;
    b0 += w;
    b1 += x;
  }
  const double determinant = s00 * s11 - s01 * s01;
  Line line;
  if (determinant > 1e-12 * s00 * s11) {
    line.constant = (b0 * s11 - b1 * s01) / determinant;
    line.slope = (b1 * s00 - b0 * s01) / determinant;
  }
  if (line.constant <= 0 || line.slope <= 0) line = {0, b1 / s11};
  return line;
}

FitError left_out(const std::vector<Size>& sizes) {
  std::map<double, int> groups;  // equal sizes are left out together
  for (const Size& size : sizes) groups[size.elements];
  std::vector<double> errors;
  if (groups.size() < kLeastSizes) return {};
  for (const auto& [elements, unused] : groups) {
    std::vector<Size> others;
    for (const Size& size : sizes) {
      if (size.elements != elements) others.push_back(size);
    }
    const Line line = fit_line(others);
    for (const Size& size : sizes) {
      if (size.elements == elements) errors.push_back(line.at(elements) / size.microseconds - 1);
    }
  }
  return summarize(std::move(errors));
}

// The numbers of a text such as "H=2048 M=2048", by name.
std::map<std::string, double> named_numbers(const std::string& text) {
  std::map<std::string, double> numbers;
  for (std::size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1)) {
    std::size_t start = at;
    while (start > 0 && text[start - 1] != ' ') --start;
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, value);
    if (error == std::errc()) numbers[text.substr(start, at - start)] = value;
  }
  return numbers;
}

// "rms_norm fwd 4096x8192" or "4096x8192": the product.
std::optional<double> product(const std::string& text) {
  const std::size_t cross = text.find('x');
  for (std::size_t at = cross; at != std::string::npos; at = text.find('x', at + 1)) {
    std::size_t start = at;
    while (start > 0 && text[start - 1] >= '0' && text[start - 1] <= '9') --start;
    double rows = 0, columns = 0;
    const char* const end = text.data() + text.size();
    const bool left =
        std::from_chars(text.data() + start, text.data() + at, rows).ec == std::errc();
    const bool right = std::from_chars(text.data() + at + 1, end, columns).ec == std::errc();
    if (left && right) return rows * columns;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> elements_of(const ElementwiseRow& row) {
  if (const auto both = product(row.shape)) return both;
  const auto numbers = named_numbers(row.shape);
  const auto all = [&](std::initializer_list<const char*> names) -> std::optional<double> {
    double elements = 1;
    for (const char* each : names) {
      const auto found = numbers.find(each);
      if (found == numbers.end()) return std::nullopt;
      elements *= found->second;
    }
    return elements;
  };
  if (numbers.contains("q_heads")) {
    const auto heads = all({"tokens", "hd"});
    if (heads) return *heads * (numbers.at("q_heads") + numbers.at("kv_heads"));
  }
  if (numbers.contains("num_q_heads") && numbers.contains("hidden_size")) {
    const double head = numbers.at("hidden_size") / numbers.at("num_q_heads");
    const double heads = numbers.at("num_q_heads") + numbers.at("num_kv_heads");
    if (numbers.contains("T")) return numbers.at("T") * heads * head;
    if (numbers.contains("seq_len")) return numbers.at("seq_len") * heads * head;
  }
  // A linear layer goes with these; they are no memory-bound kernels.
  if (numbers.contains("intermediate_size") || numbers.contains("BT")) return std::nullopt;
  for (const auto& names :
       std::initializer_list<std::initializer_list<const char*>>{{"B", "T", "D"},
                                                                 {"V", "B", "T"},
                                                                 {"V", "B", "S"},
                                                                 {"ffn_local", "S", "B"},
                                                                 {"H", "M"},
                                                                 {"N", "M"},
                                                                 {"H", "S", "B"}}) {
    if (const auto elements = all(names)) return elements;
  }
  return std::nullopt;
}

std::string pass_of(const ElementwiseRow& row) {
  const std::string pass = row.note.substr(0, row.note.find(';'));
  return pass == "fwd" ? "forward" : pass;
}

std::vector<MeasuredKernel> fit_kernels(const std::vector<ElementwiseRow>& rows,
                                        const std::string& gpu) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<Size>> sizes;
  std::map<std::string, std::string> sources;
  for (const ElementwiseRow& row : rows) {
    if (row.gpu != gpu || !row.flag.empty()) continue;
    const auto elements = elements_of(row);
    if (!elements) continue;
    const std::string pass = pass_of(row);
    if (pass != "forward" && pass != "backward" && pass != "full") continue;
    sizes[{row.operation, pass, row.dtype}].push_back({*elements, row.time_us});
    std::string& source = sources[row.operation];
    if (source.find(row.source) == std::string::npos) {
      source += (source.empty() ? "" : ", ") + row.source;
    }
  }
  std::vector<MeasuredKernel> kernels;
  for (const auto& [key, values] : sizes) {
    const auto& [operation, pass, type] = key;
    if (values.size() < kLeastSizes) continue;
    const Line line = fit_line(values);
    kernels.push_back({operation, pass, type, Time::from_microseconds(line.constant),
                       line.slope * 1e6, left_out(values), sources[operation]});
  }
  return kernels;
}

}  // namespace headway
