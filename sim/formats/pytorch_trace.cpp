#include "sim/formats/pytorch_trace.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "sim/core/json_reader.hpp"
#include "sim/cost/gemm_fit.hpp"

namespace headway {

namespace {

// GPUs of a server, where a trace lists its ranks without saying where they sit.
constexpr int kServer = 8;

std::optional<std::string> text_of(const JsonNode& object, std::string_view key) {
  const auto found = object.find(key);
  return found && found->is_string() ? std::optional(found->string()) : std::nullopt;
}
std::optional<double> number_of(const JsonNode& object, std::string_view key) {
  const auto found = object.find(key);
  return found && found->is_number() ? std::optional(found->number()) : std::nullopt;
}

// "c10::BFloat16" -> "bf16"
std::optional<std::string> type_named(const std::string& type) {
  if (type == "c10::BFloat16" || type == "BFloat16") return "bf16";
  if (type == "c10::Half" || type == "Half") return "fp16";
  if (type == "float" || type == "Float") return "fp32";
  if (type.find("Float8") != std::string::npos) return "fp8";
  return std::nullopt;
}
double bytes_of(const std::string& type) {
  if (type == "fp32") return 4;
  return type == "fp8" ? 1 : 2;
}

using Matrix = std::vector<std::int64_t>;
std::vector<Matrix> matrices_of(const JsonNode& arguments, std::string_view key) {
  std::vector<Matrix> all;
  const auto found = arguments.find(key);
  if (!found || !found->is_array()) return all;
  for (const JsonNode& each : found->elements()) {
    all.push_back(each.is_array() ? each.integers().value_or(Matrix{}) : Matrix{});
  }
  return all;
}

struct Multiplication {
  std::string type, layout;
  GemmShape shape;
  friend auto operator<=>(const Multiplication&, const Multiplication&) = default;
};

// The two factors of aten::mm, or of aten::addmm after its summand.
std::optional<Multiplication> multiplication_of(const std::string& name,
                                                const JsonNode& arguments) {
  std::size_t first = 0;
  if (name == "aten::addmm") first = 1;
  if (first == 0 && name != "aten::mm") return std::nullopt;
  const std::vector<Matrix> shapes = matrices_of(arguments, "Input Dims");
  const auto types = arguments.find("Input type");
  if (shapes.size() < first + 2 || !types || !types->is_array()) return std::nullopt;
  const Matrix& a = shapes[first];
  const Matrix& b = shapes[first + 1];
  const std::vector<JsonNode> type_names = types->elements();
  if (a.size() != 2 || b.size() != 2 || a[1] != b[0] || type_names.size() <= first) {
    return std::nullopt;
  }
  if (!type_names[first].is_string()) return std::nullopt;
  const auto type = type_named(type_names[first].string());
  if (!type) return std::nullopt;
  Multiplication result{*type, "TN", {a[0], b[1], a[1]}};
  const std::vector<Matrix> strides = matrices_of(arguments, "Input Strides");
  if (strides.size() >= first + 2) {
    const auto transposed = [](const Matrix& stride) {
      return stride.size() == 2 && stride[0] == 1 && stride[1] != 1;
    };
    result.layout = transposed(strides[first])       ? "NT"
                    : transposed(strides[first + 1]) ? "TN"
                                                     : "NN";
  }
  return result;
}

bool multiplies(const std::string& kernel) {
  return kernel.find("gemm") != std::string::npos || kernel.find("nvjet") != std::string::npos ||
         kernel.find("cutlass") != std::string::npos;
}

struct Exchange {
  std::string operation, network;
  int ranks = 0;
  double bytes = 0;
  friend auto operator<=>(const Exchange&, const Exchange&) = default;
};

// "[0, 1, 2, ...]": whether the ranks share a server; nothing where they are not listed in full.
std::optional<bool> inside_server(const std::string& ranks, int size) {
  std::set<int> servers;
  int count = 0;
  for (std::size_t at = 0; at < ranks.size();) {
    if (std::isdigit(static_cast<unsigned char>(ranks[at])) == 0) {
      ++at;
      continue;
    }
    int rank = 0;
    const char* const start = ranks.data() + at;
    const auto [end, error] = std::from_chars(start, ranks.data() + ranks.size(), rank);
    if (error != std::errc()) return std::nullopt;
    servers.insert(rank / kServer);
    ++count;
    at += static_cast<std::size_t>(end - start);
  }
  return count == size ? std::optional(servers.size() == 1) : std::nullopt;
}

std::optional<Exchange> exchange_of(const JsonNode& arguments) {
  static const std::map<std::string, std::string> kOperations = {
      {"allreduce", "all_reduce"},
      {"all_reduce", "all_reduce"},
      {"_allgather_base", "all_gather"},
      {"allgather_into_tensor_coalesced", "all_gather"},
      {"_reduce_scatter_base", "reduce_scatter"},
      {"reduce_scatter_tensor_coalesced", "reduce_scatter"},
      {"all_to_allv", "alltoall"},
      {"all_to_all", "alltoall"}};
  const auto name = text_of(arguments, "Collective name");
  const auto size = number_of(arguments, "Group size");
  const auto in = number_of(arguments, "In msg nelems");
  const auto out = number_of(arguments, "Out msg nelems");
  const auto type = type_named(text_of(arguments, "dtype").value_or(""));
  const auto found = kOperations.find(name.value_or(""));
  if (found == kOperations.end() || !size || !in || !out || !type || *size < 2) {
    return std::nullopt;
  }
  Exchange exchange;
  exchange.operation = found->second;
  exchange.ranks = static_cast<int>(*size);
  exchange.bytes = std::max(*in, *out) * bytes_of(*type);
  const auto inside =
      inside_server(text_of(arguments, "Process Group Ranks").value_or(""), exchange.ranks);
  exchange.network = inside.value_or(false) ? "none(intra)" : "unstated";
  return exchange;
}

// One trace while it is read.
class Trace {
 public:
  void read(const JsonNode& events) {
    const std::vector<JsonNode> all = events.elements();
    for (const JsonNode& event : all) read_operator(event);
    for (const JsonNode& event : all) read_kernel(event);
  }

  PyTorchTracePoints add_to(PointSet& set, const std::string& gpu,
                            const std::string& source) const {
    PyTorchTracePoints added;
    added.without_shape = without_shape_;
    for (const auto& [what, times] : multiplications_) {
      set.gemm.push_back({gpu, what.type, what.layout, "", source, what.shape, median(times)});
      ++added.multiplications;
    }
    for (const auto& [what, times] : exchanges_) {
      CollectiveRow row;
      row.gpu = gpu;
      row.operation = what.operation;
      row.network = what.network;
      row.source = source;
      row.ranks = what.ranks;
      row.gpus_per_node = std::min(what.ranks, kServer);
      row.bytes = what.bytes;
      row.time_us = median(times);
      set.collectives.push_back(row);
      ++added.collectives;
    }
    return added;
  }

 private:
  static std::optional<JsonNode> arguments_of(const JsonNode& event, std::string_view category) {
    if (!event.is_object() || text_of(event, "cat") != category) return std::nullopt;
    const auto arguments = event.find("args");
    return arguments && arguments->is_object() ? arguments : std::nullopt;
  }

  void read_operator(const JsonNode& event) {
    const auto arguments = arguments_of(event, "cpu_op");
    if (!arguments) return;
    const auto id = number_of(*arguments, "External id");
    const auto found = multiplication_of(text_of(event, "name").value_or(""), *arguments);
    if (id && found) operators_[static_cast<std::int64_t>(*id)] = *found;
  }

  void read_kernel(const JsonNode& event) {
    const auto arguments = arguments_of(event, "kernel");
    const auto duration = number_of(event, "dur");
    if (!arguments || !duration || !(*duration > 0)) return;
    const std::string name = text_of(event, "name").value_or("");
    if (name.starts_with("nccl")) {
      if (const auto exchange = exchange_of(*arguments)) exchanges_[*exchange].push_back(*duration);
      return;
    }
    if (!multiplies(name)) return;
    const auto id = number_of(*arguments, "External id");
    const auto found = operators_.find(id ? static_cast<std::int64_t>(*id) : -1);
    if (found == operators_.end()) {
      ++without_shape_;
    } else {
      multiplications_[found->second].push_back(*duration);
    }
  }

  std::map<std::int64_t, Multiplication> operators_;  // by external id
  std::map<Multiplication, std::vector<double>> multiplications_;
  std::map<Exchange, std::vector<double>> exchanges_;
  int without_shape_ = 0;
};

}  // namespace

bool is_pytorch_trace(std::string_view text) {
  return text.starts_with("{") && text.find("\"traceEvents\"") != std::string_view::npos;
}

PyTorchTracePoints read_pytorch_trace(std::string_view text, const std::string& file, PointSet& set,
                                      Problems& problems) {
  const JsonNode root = JsonNode::parse_text(text, file);
  const auto events = root.find("traceEvents");
  if (!events || !events->is_array()) {
    problems.add(file, "/traceEvents", "is no list; expected a trace of the PyTorch profiler");
    return {};
  }
  std::optional<std::string> gpu;
  if (const auto devices = root.find("deviceProperties"); devices && devices->is_array()) {
    for (const JsonNode& device : devices->elements()) {
      if (!gpu && device.is_object()) gpu = text_of(device, "name");
    }
  }
  if (!gpu) {
    problems.add(file, "/deviceProperties", "names no GPU; expected [{\"name\": \"NVIDIA ...\"}]");
    return {};
  }
  Trace trace;
  trace.read(*events);
  const PyTorchTracePoints added = trace.add_to(set, *gpu, "pytorch-trace " + file);
  if (added.multiplications + added.collectives == 0) {
    problems.add(file, "/traceEvents",
                 "holds no kernel with a shape; expected a trace recorded with record_shapes=True");
  }
  return added;
}

}  // namespace headway
