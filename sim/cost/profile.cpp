#include "sim/cost/profile.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/core/file.hpp"
#include "sim/core/json_reader.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/shipped_files.hpp"

namespace headway {

namespace {

constexpr std::string_view kFolder = "calibration/profiles/";
// Bounds of what a kernel or link can plausibly take; they catch a wrong unit, not a slow device.
constexpr double kMaxMicroseconds = 1e9;
constexpr std::int64_t kMaxNanoseconds = 1'000'000'000'000;
constexpr std::int64_t kMaxDimension = std::int64_t{1} << 40;
constexpr double kMaxFactor = 100;

constexpr std::array<std::string_view, 3> kRegimeNames = {"burst", "sustained", "in-framework"};
constexpr std::array<GemmRole, 3> kRoles = {GemmRole::kForward, GemmRole::kInputGradient,
                                            GemmRole::kWeightGradient};
constexpr std::array<Regime, 3> kRegimes = {Regime::kBurst, Regime::kSustained,
                                            Regime::kInFramework};
constexpr std::array<AttentionKernel, 5> kAttentionKernels = {
    AttentionKernel::kUnfused, AttentionKernel::kFlash1, AttentionKernel::kFlash2,
    AttentionKernel::kFlash3, AttentionKernel::kCudnn};
constexpr std::array<CollectiveKind, 7> kCollectiveKinds = {
    CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
    CollectiveKind::kBroadcast, CollectiveKind::kReduce,        CollectiveKind::kAllToAll,
    CollectiveKind::kSend};

template <typename Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) names.emplace_back(name(value));
  return names;
}

template <typename Values>
std::optional<typename Values::value_type> value_named(const Values& values,
                                                       const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  for (const auto value : values) {
    if (name(value) == *text) return value;
  }
  return std::nullopt;
}

std::vector<KernelKind> kernel_kinds() {
  std::vector<KernelKind> kinds;
  for (int i = 0; i <= static_cast<int>(KernelKind::kCastParameters); ++i) {
    kinds.push_back(static_cast<KernelKind>(i));
  }
  return kinds;
}

// "burst_forward": the key of a list of points, without its columns.
std::string points_key(Regime regime, GemmRole role) {
  return std::string(name(regime)) + "_" + std::string(name(role)) + "_rows_columns_depth_ns";
}

Time microseconds(ObjectReader& reader, std::string_view key) {
  return Time::from_microseconds(reader.require_number(key, {.min = 0, .max = kMaxMicroseconds}));
}

double factor(ObjectReader& reader, std::string_view key, double absent) {
  return reader.number(key, {.min = 0, .max = kMaxFactor, .min_excluded = true}).value_or(absent);
}

Grade grade(ObjectReader& reader, std::string_view key, Grade absent) {
  const auto text = reader.choice(key, {"measured", "fitted", "extrapolated", "anchored"});
  return text ? grade_named(*text).value_or(absent) : absent;
}

FitError read_error(ObjectReader& parent, std::string_view key) {
  FitError error;
  const auto node = parent.object(key);
  if (!node) return error;
  ObjectReader reader(*node, parent.problems());
  error.count = static_cast<int>(reader.require_integer("count", {.min = 0, .max = 10'000'000}));
  error.median = reader.require_number("median", {.min = 0});
  error.p90 = reader.require_number("p90", {.min = 0});
  error.worst = reader.require_number("worst", {.min = 0});
  reader.finish();
  return error;
}

std::vector<DataType> read_types(ObjectReader& reader, std::string_view key) {
  std::vector<DataType> types;
  const auto texts = reader.strings(key);
  if (!texts || texts->empty()) {
    reader.problem(key, "missing; expected a list of element types, e.g. [\"bf16\", \"fp16\"]");
    return types;
  }
  for (const std::string& text : *texts) {
    if (const auto type = data_type_named(text)) {
      types.push_back(*type);
    } else {
      reader.problem(key, "'" + text + "' is no element type");
    }
  }
  return types;
}

// A flat list of integers, `width` to a point; nothing where its length is no multiple.
std::vector<std::int64_t> read_rows(ObjectReader& reader, std::string_view key, std::size_t width) {
  auto numbers = reader.integers(key, {.min = 0, .max = kMaxNanoseconds});
  if (!numbers) return {};
  if (numbers->size() % width != 0) {
    reader.problem(key, std::to_string(numbers->size()) + " numbers; expected " +
                            std::to_string(width) + " for each point");
    return {};
  }
  return std::move(*numbers);
}

void read_gemm_points(ObjectReader& reader, GemmTable& table) {
  for (const Regime regime : kRegimes) {
    for (const GemmRole role : kRoles) {
      const std::string key = points_key(regime, role);
      const std::vector<std::int64_t> rows = read_rows(reader, key, 4);
      for (std::size_t i = 0; i + 4 <= rows.size(); i += 4) {
        const bool in_range =
            std::all_of(rows.begin() + static_cast<std::ptrdiff_t>(i),
                        rows.begin() + static_cast<std::ptrdiff_t>(i) + 4,
                        [](std::int64_t n) { return n > 0 && n < kMaxDimension; });
        if (!in_range) {
          reader.problem(key, "point " + std::to_string(i / 4) +
                                  " has a dimension or time that is not positive");
          break;
        }
        table.points.push_back(
            {{rows[i], rows[i + 1], rows[i + 2]}, role, regime, Time{rows[i + 3] * 1000}});
      }
    }
  }
}

GemmModel read_gemm_model(ObjectReader& parent) {
  GemmModel model;
  const auto node = parent.object("model");
  if (!node) {
    parent.problem("model", "missing; expected the tile model's object");
    return model;
  }
  ObjectReader reader(*node, parent.problems());
  model.per_kernel = microseconds(reader, "per_kernel_us");
  model.per_wave = microseconds(reader, "per_wave_us");
  model.wave_softness = reader.require_number("wave_softness", {.min = 0, .max = 1});
  model.memory_share =
      reader.require_number("memory_share", {.min = 0, .max = 1.5, .min_excluded = true});
  if (const auto tiles = reader.array("tiles")) {
    for (const JsonNode& element : tiles->elements()) {
      ObjectReader tile(element, reader.problems());
      GemmTile read;
      read.rows = static_cast<int>(tile.require_integer("rows", {.min = 1, .max = 4096}));
      read.columns = static_cast<int>(tile.require_integer("columns", {.min = 1, .max = 4096}));
      read.efficiency =
          tile.require_number("efficiency", {.min = 0, .max = 1.5, .min_excluded = true});
      tile.finish();
      model.tiles.push_back(read);
    }
  }
  if (model.tiles.empty()) reader.problem("tiles", "missing; expected at least one tile");
  reader.finish();
  return model;
}

GemmTable read_gemm_table(const JsonNode& node, Problems& problems) {
  ObjectReader reader(node, problems);
  GemmTable table;
  table.types = read_types(reader, "types");
  table.source = reader.require_string("source");
  table.model = read_gemm_model(reader);
  table.sustained_factor = factor(reader, "sustained_factor", 1);
  table.input_gradient_factor = factor(reader, "input_gradient_factor", 1);
  table.weight_gradient_factor = factor(reader, "weight_gradient_factor", 1);
  table.misaligned_factor = factor(reader, "misaligned_factor", 1);
  table.reach = factor(reader, "reach_log2", 1);
  table.power = factor(reader, "power", 2);
  table.sustained_band = reader.number("sustained_band", {.min = 0, .max = 1}).value_or(0);
  table.floor = grade(reader, "grade", Grade::kMeasured);
  table.left_out = read_error(reader, "error_left_out");
  table.model_alone = read_error(reader, "error_model_alone");
  read_gemm_points(reader, table);
  reader.finish();
  return table;
}

std::map<int, double> read_head_factors(ObjectReader& parent) {
  std::map<int, double> factors;
  const auto node = parent.object("head_factor");
  if (!node) return factors;
  ObjectReader reader(*node, parent.problems());
  for (const std::string& key : node->keys()) {
    const bool number =
        !key.empty() && key.size() < 6 &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number) {
      reader.problem(key, "expected a head dimension, e.g. \"128\"");
      continue;
    }
    factors[std::stoi(key)] =
        reader.number(key, {.min = 0, .max = kMaxFactor, .min_excluded = true}).value_or(1);
  }
  reader.finish();
  return factors;
}

AttentionRate read_attention(const JsonNode& node, Problems& problems) {
  ObjectReader reader(node, problems);
  AttentionRate rate;
  const auto kernel = reader.choice("kernel", names_of(kAttentionKernels));
  if (!kernel) reader.problem("kernel", "missing; expected " + any_of(names_of(kAttentionKernels)));
  rate.kernel = value_named(kAttentionKernels, kernel).value_or(AttentionKernel::kFlash2);
  rate.implementation = reader.string("implementation").value_or("");
  rate.backward = reader.choice("direction", {"forward", "backward"}).value_or("") == "backward";
  rate.rate.per_second =
      reader.require_number("rate_tflop_per_s", {.min = 0, .max = 1e6, .min_excluded = true}) *
      1e12;
  rate.per_kernel = microseconds(reader, "per_kernel_us");
  rate.half_sequence = reader.number("half_sequence", {.min = 0, .max = 1e6}).value_or(0);
  rate.half_sequence_full = reader.number("half_sequence_full", {.min = 0, .max = 1e6}).value_or(0);
  rate.tail_waves = reader.number("tail_waves", {.min = 0, .max = kMaxFactor}).value_or(0);
  rate.causal_factor = factor(reader, "causal_factor", 1);
  rate.head_factor = read_head_factors(reader);
  rate.sustained_factor = factor(reader, "sustained_factor", 1);
  rate.floor = grade(reader, "grade", Grade::kMeasured);
  rate.band = reader.require_number("band", {.min = 0, .max = 1});
  rate.left_out = read_error(reader, "error_left_out");
  rate.source = reader.require_string("source");
  const std::string key = "batch_heads_kv_sequence_qk_v_causal_ns";
  const std::vector<std::int64_t> rows = read_rows(reader, key, 8);
  for (std::size_t i = 0; i + 8 <= rows.size(); i += 8) {
    AttentionPoint point{rows[i],     rows[i + 1], rows[i + 2],      rows[i + 3],
                         rows[i + 4], rows[i + 5], rows[i + 6] != 0, Time{rows[i + 7] * 1000}};
    if (point.batch * point.heads * point.kv_heads * point.sequence * point.head_dim *
                point.head_dim_v ==
            0 ||
        point.time == Time::zero()) {
      reader.problem(
          key, "point " + std::to_string(i / 8) + " has a dimension or time that is not positive");
      break;
    }
    rate.points.push_back(point);
  }
  reader.finish();
  return rate;
}

MeasuredKernel read_measured(const JsonNode& node, Problems& problems) {
  ObjectReader reader(node, problems);
  MeasuredKernel kernel;
  kernel.operation = reader.require_string("operation");
  kernel.pass = reader.choice("pass", {"forward", "backward", "full"}).value_or("forward");
  kernel.type = reader.require_string("type");
  kernel.per_kernel = microseconds(reader, "per_kernel_us");
  kernel.picoseconds_per_element =
      reader.require_number("ps_per_element", {.min = 0, .max = 1e9, .min_excluded = true});
  kernel.left_out = read_error(reader, "error_left_out");
  kernel.source = reader.require_string("source");
  reader.finish();
  return kernel;
}

MemoryModel read_memory(ObjectReader& parent) {
  MemoryModel memory;
  const auto node = parent.object("memory");
  if (!node) {
    parent.problem("memory", "missing; expected the object of memory-bound kernels");
    return memory;
  }
  ObjectReader reader(*node, parent.problems());
  memory.efficiency =
      reader.require_number("efficiency", {.min = 0, .max = 1, .min_excluded = true});
  memory.per_kernel = microseconds(reader, "per_kernel_us");
  memory.band = reader.require_number("band", {.min = 0, .max = 1});
  memory.grade = grade(reader, "grade", Grade::kFitted);
  memory.source = reader.require_string("source");
  const auto kinds = kernel_kinds();
  if (const auto kernels = reader.array("kernels")) {
    for (const JsonNode& element : kernels->elements()) {
      ObjectReader kernel(element, reader.problems());
      KernelRate rate;
      const auto kind = kernel.choice("kind", names_of(kinds));
      if (!kind) kernel.problem("kind", "missing; expected a kernel's name");
      rate.kind = value_named(kinds, kind).value_or(KernelKind::kCopy);
      rate.fused = kernel.boolean("fused").value_or(true);
      rate.rate.bytes_per_second =
          kernel.require_number("rate_gb_per_s", {.min = 0, .max = 1e6, .min_excluded = true}) *
          1e9;
      rate.band = kernel.require_number("band", {.min = 0, .max = 1});
      rate.grade = grade(kernel, "grade", Grade::kFitted);
      rate.source = kernel.require_string("source");
      kernel.finish();
      memory.kernels.push_back(rate);
    }
  }
  if (const auto measured = reader.array("measured")) {
    for (const JsonNode& element : measured->elements()) {
      memory.measured.push_back(read_measured(element, reader.problems()));
    }
  }
  reader.finish();
  return memory;
}

CollectiveCurve read_collective(const JsonNode& node, Problems& problems) {
  ObjectReader reader(node, problems);
  CollectiveCurve curve;
  const auto kind = reader.choice("kind", names_of(kCollectiveKinds));
  if (!kind) reader.problem("kind", "missing; expected " + any_of(names_of(kCollectiveKinds)));
  curve.kind = value_named(kCollectiveKinds, kind).value_or(CollectiveKind::kAllReduce);
  curve.ranks = static_cast<int>(reader.require_integer("ranks", {.min = 2, .max = 1 << 24}));
  curve.nodes = static_cast<int>(reader.integer("nodes", {.min = 1, .max = 1 << 24}).value_or(1));
  curve.floor = grade(reader, "grade", Grade::kMeasured);
  curve.band = reader.require_number("band", {.min = 0, .max = 1});
  curve.source = reader.require_string("source");
  std::vector<CurvePoint> points;
  const std::vector<std::int64_t> rows = read_rows(reader, "bytes_ns", 2);
  for (std::size_t i = 0; i + 2 <= rows.size(); i += 2) {
    if (rows[i] == 0 || rows[i + 1] == 0) {
      reader.problem("bytes_ns", "point " + std::to_string(i / 2) + " is not positive");
      break;
    }
    points.push_back({static_cast<double>(rows[i]), static_cast<double>(rows[i + 1]) * 1e-3});
  }
  if (points.empty()) {
    reader.problem("bytes_ns", "no points; expected pairs of bytes and nanoseconds");
  } else {
    curve.time_us = Curve(std::move(points));
  }
  reader.finish();
  return curve;
}

SendModel read_send(ObjectReader& parent) {
  SendModel send;
  const auto node = parent.object("send");
  if (!node) {
    parent.problem("send", "missing; expected the object of messages between two devices");
    return send;
  }
  ObjectReader reader(*node, parent.problems());
  send.same_node_latency = microseconds(reader, "same_node_latency_us");
  send.network_latency = microseconds(reader, "network_latency_us");
  send.same_node_share =
      reader.require_number("same_node_share", {.min = 0, .max = 1, .min_excluded = true});
  send.network_share =
      reader.require_number("network_share", {.min = 0, .max = 1, .min_excluded = true});
  send.band = reader.require_number("band", {.min = 0, .max = 1});
  send.source = reader.require_string("source");
  reader.finish();
  return send;
}

std::string stem(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
  if (base.ends_with(".json")) base.resize(base.size() - 5);
  return base;
}

Profile read_profile_node(const JsonNode& node, const std::string& file) {
  Problems problems;
  ObjectReader reader(node, problems);
  Profile profile;
  profile.name = stem(file);
  const std::string device = reader.require_string("device");
  if (const Device* found = find_device(device)) {
    profile.device = *found;
  } else if (!device.empty()) {
    std::vector<std::string> known;
    for (const Device& each : devices()) known.push_back(each.name);
    reader.problem("device", "'" + device + "' is no known device; expected " + any_of(known));
  }
  profile.sources = reader.require_string("sources");
  profile.note = reader.string("note").value_or("");
  if (const auto tables = reader.array("gemm")) {
    for (const JsonNode& table : tables->elements()) {
      profile.gemms.push_back(read_gemm_table(table, problems));
    }
  }
  if (profile.gemms.empty()) reader.problem("gemm", "missing; expected at least one GEMM table");
  if (const auto rates = reader.array("attention")) {
    for (const JsonNode& rate : rates->elements()) {
      profile.attention.push_back(read_attention(rate, problems));
    }
  }
  profile.memory = read_memory(reader);
  if (const auto curves = reader.array("collectives")) {
    for (const JsonNode& curve : curves->elements()) {
      profile.collectives.push_back(read_collective(curve, problems));
    }
  }
  profile.core_communicates = reader.boolean("core_communicates").value_or(false);
  profile.collective_band = reader.number("collective_model_band", {.min = 0, .max = 1})
                                .value_or(profile.collective_band);
  profile.send = read_send(reader);
  reader.finish();
  problems.throw_if_any();
  return profile;
}

// ---- writing
// ---------------------------------------------------------------------------------------

// A flat list with one point on a line, so that a difference of two profiles can be read.
std::string rows_text(const std::vector<std::int64_t>& numbers, std::size_t width) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ',';
    if (i > 0 && i % width == 0) text += '\n';
    text += std::to_string(numbers[i]);
  }
  return text + "]";
}

// Fitted numbers are known to four digits at best.
double rounded(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 4 - std::ceil(std::log10(std::abs(value))));
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value);
}

std::int64_t nanoseconds(Time time) { return (time.picoseconds + 500) / 1000; }

void write_error(JsonWriter& json, std::string_view key, const FitError& error) {
  if (error.count == 0) return;
  json.key(key).begin_object(true);
  json.field("count", error.count).field("median", rounded(error.median));
  json.field("p90", rounded(error.p90)).field("worst", rounded(error.worst));
  json.end_object();
}

void write_gemm(JsonWriter& json, const GemmTable& table) {
  json.begin_object();
  json.key("types").begin_array(true);
  for (const DataType type : table.types) json.value(name(type));
  json.end_array();
  json.field("source", std::string_view(table.source));
  json.field("grade", name(table.floor));
  json.key("model").begin_object();
  json.field("per_kernel_us", rounded(table.model.per_kernel.microseconds()));
  json.field("per_wave_us", rounded(table.model.per_wave.microseconds()));
  json.field("wave_softness", rounded(table.model.wave_softness));
  json.field("memory_share", rounded(table.model.memory_share));
  json.key("tiles").begin_array();
  for (const GemmTile& tile : table.model.tiles) {
    json.begin_object(true);
    json.field("rows", tile.rows).field("columns", tile.columns);
    json.field("efficiency", rounded(tile.efficiency)).end_object();
  }
  json.end_array().end_object();
  json.field("sustained_factor", rounded(table.sustained_factor));
  json.field("sustained_band", table.sustained_band);
  json.field("input_gradient_factor", rounded(table.input_gradient_factor));
  json.field("weight_gradient_factor", rounded(table.weight_gradient_factor));
  json.field("misaligned_factor", table.misaligned_factor);
  json.field("reach_log2", table.reach).field("power", table.power);
  write_error(json, "error_left_out", table.left_out);
  write_error(json, "error_model_alone", table.model_alone);
  for (const Regime regime : kRegimes) {
    for (const GemmRole role : kRoles) {
      std::vector<std::int64_t> rows;
      for (const GemmPoint& point : table.points) {
        if (point.role != role || point.regime != regime) continue;
        rows.insert(rows.end(), {point.shape.rows, point.shape.columns, point.shape.depth,
                                 nanoseconds(point.time)});
      }
      if (!rows.empty()) json.key(points_key(regime, role)).raw(rows_text(rows, 4));
    }
  }
  json.end_object();
}

void write_attention(JsonWriter& json, const AttentionRate& rate) {
  json.begin_object();
  json.field("kernel", name(rate.kernel));
  if (!rate.implementation.empty()) {
    json.field("implementation", std::string_view(rate.implementation));
  }
  json.field("direction", rate.backward ? "backward" : "forward");
  json.field("rate_tflop_per_s", rounded(rate.rate.per_second * 1e-12));
  json.field("per_kernel_us", rounded(rate.per_kernel.microseconds()));
  json.field("half_sequence", rounded(rate.half_sequence));
  json.field("half_sequence_full", rounded(rate.half_sequence_full));
  json.field("tail_waves", rounded(rate.tail_waves));
  json.field("causal_factor", rounded(rate.causal_factor));
  json.key("head_factor").begin_object(true);
  for (const auto& [head, value] : rate.head_factor)
    json.field(std::to_string(head), rounded(value));
  json.end_object();
  json.field("sustained_factor", rounded(rate.sustained_factor));
  json.field("grade", name(rate.floor)).field("band", rounded(rate.band));
  write_error(json, "error_left_out", rate.left_out);
  json.field("source", std::string_view(rate.source));
  std::vector<std::int64_t> rows;
  for (const AttentionPoint& point : rate.points) {
    rows.insert(rows.end(),
                {point.batch, point.heads, point.kv_heads, point.sequence, point.head_dim,
                 point.head_dim_v, point.causal ? 1 : 0, nanoseconds(point.time)});
  }
  if (!rows.empty()) json.key("batch_heads_kv_sequence_qk_v_causal_ns").raw(rows_text(rows, 8));
  json.end_object();
}

void write_memory(JsonWriter& json, const MemoryModel& memory) {
  json.key("memory").begin_object();
  json.field("efficiency", rounded(memory.efficiency));
  json.field("per_kernel_us", rounded(memory.per_kernel.microseconds()));
  json.field("band", memory.band).field("grade", name(memory.grade));
  json.field("source", std::string_view(memory.source));
  json.key("kernels").begin_array();
  for (const KernelRate& rate : memory.kernels) {
    json.begin_object(true);
    json.field("kind", name(rate.kind)).field("fused", rate.fused);
    json.field("rate_gb_per_s", rounded(rate.rate.bytes_per_second * 1e-9));
    json.field("band", rounded(rate.band)).field("grade", name(rate.grade));
    json.field("source", std::string_view(rate.source)).end_object();
  }
  json.end_array();
  json.key("measured").begin_array();
  for (const MeasuredKernel& kernel : memory.measured) {
    json.begin_object(true);
    json.field("operation", std::string_view(kernel.operation));
    json.field("pass", std::string_view(kernel.pass));
    json.field("type", std::string_view(kernel.type));
    json.field("per_kernel_us", rounded(kernel.per_kernel.microseconds()));
    json.field("ps_per_element", rounded(kernel.picoseconds_per_element));
    write_error(json, "error_left_out", kernel.left_out);
    json.field("source", std::string_view(kernel.source)).end_object();
  }
  json.end_array().end_object();
}

void write_collective(JsonWriter& json, const CollectiveCurve& curve) {
  json.begin_object();
  json.field("kind", name(curve.kind)).field("ranks", curve.ranks).field("nodes", curve.nodes);
  json.field("grade", name(curve.floor)).field("band", curve.band);
  json.field("source", std::string_view(curve.source));
  std::vector<std::int64_t> rows;
  for (const CurvePoint& point : curve.time_us.points()) {
    rows.push_back(std::llround(point.x));
    rows.push_back(std::llround(point.y * 1e3));
  }
  json.key("bytes_ns").raw(rows_text(rows, rows.size()));
  json.end_object();
}

}  // namespace

std::string_view name(Regime regime) { return kRegimeNames[static_cast<std::size_t>(regime)]; }

GemmShape executed_shape(const Gemm& gemm) {
  switch (gemm.role) {
    case GemmRole::kForward:
      return {gemm.m, gemm.n, gemm.k};
    case GemmRole::kInputGradient:
      return {gemm.m, gemm.k, gemm.n};
    case GemmRole::kWeightGradient:
      return {gemm.n, gemm.k, gemm.m};
  }
  return {};
}

const GemmTable* Profile::gemm_table(DataType type) const {
  for (const GemmTable& table : gemms) {
    if (std::find(table.types.begin(), table.types.end(), type) != table.types.end()) return &table;
  }
  return nullptr;
}

const AttentionRate* Profile::attention_rate(AttentionKernel kernel, bool backward) const {
  for (const AttentionRate& rate : attention) {
    if (!rate.implementation.empty()) continue;
    if (rate.kernel == kernel && rate.backward == backward) return &rate;
  }
  return nullptr;
}

Profile parse_profile(std::string_view text, const std::string& file) {
  return read_profile_node(JsonNode::parse_text(text, file), file);
}

Profile read_profile(const std::string& name) {
  const ShippedFile* shipped = find_shipped_file(std::string(kFolder) + name + ".json");
  if (shipped != nullptr) return parse_profile(shipped->content, name + ".json");
  if (name.find('/') == std::string::npos && !name.ends_with(".json")) {
    std::vector<std::string> known;
    for (const std::string_view each : shipped_names(kFolder)) known.emplace_back(each);
    const std::string near = nearest(name, known);
    throw InvalidInput(name, "",
                       "no such profile" + (near.empty() ? "" : "; did you mean " + near + "?") +
                           " Shipped are " + any_of(known) + "; or give a path");
  }
  return read_profile_node(JsonNode::parse_file(name), name);
}

std::string profile_text(const Profile& profile) {
  JsonWriter json;
  json.begin_object();
  json.field("device", std::string_view(profile.device.name));
  json.field("sources", std::string_view(profile.sources));
  if (!profile.note.empty()) json.field("note", std::string_view(profile.note));
  json.key("gemm").begin_array();
  for (const GemmTable& table : profile.gemms) write_gemm(json, table);
  json.end_array();
  json.key("attention").begin_array();
  for (const AttentionRate& rate : profile.attention) write_attention(json, rate);
  json.end_array();
  write_memory(json, profile.memory);
  json.key("collectives").begin_array();
  for (const CollectiveCurve& curve : profile.collectives) write_collective(json, curve);
  json.end_array();
  json.field("collective_model_band", profile.collective_band);
  if (profile.core_communicates) json.field("core_communicates", true);
  json.key("send").begin_object();
  json.field("same_node_latency_us", profile.send.same_node_latency.microseconds());
  json.field("network_latency_us", profile.send.network_latency.microseconds());
  json.field("same_node_share", profile.send.same_node_share);
  json.field("network_share", profile.send.network_share);
  json.field("band", profile.send.band);
  json.field("source", std::string_view(profile.send.source));
  json.end_object();
  json.end_object();
  return json.text();
}

std::vector<ProfileName> shipped_profiles() {
  std::vector<ProfileName> names;
  for (const std::string_view each : shipped_names(kFolder)) {
    const Profile profile = read_profile(std::string(each));
    int points = 0;
    for (const GemmTable& table : profile.gemms) points += static_cast<int>(table.points.size());
    names.push_back({profile.name, profile.device.title, profile.sources, points});
  }
  return names;
}

}  // namespace headway
