#include "sim/cost/host_fit.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "sim/core/json_reader.hpp"
#include "sim/cost/compute_cost.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway {
namespace {

constexpr const char* kDevice = "host-cpu";
constexpr int kMeasuredRanks = 2;
// Of curves and rates measured on the very machine: repeats differ by a few percent, and a step
// finds other things in the caches than a benchmark.
constexpr double kCurveBand = 0.1;
constexpr double kRateBand = 0.15;
// A kernel's rate is read where its bytes do not fit the nearest caches, as in a step.
constexpr double kLargeBytes = 1 << 20;

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '/') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  // Google Benchmark adds what it was told to do ("iterations:1", "manual_time").
  while (!words.empty() &&
         (words.back() == "manual_time" || words.back().starts_with("iterations:"))) {
    words.pop_back();
  }
  return words;
}

// A benchmark's name, word by word.
class Name {
 public:
  explicit Name(const std::string& text) : words_(split(text)) {}

  const std::string& word(std::size_t i) const {
    static const std::string kNone;
    return i < words_.size() ? words_[i] : kNone;
  }
  std::size_t size() const { return words_.size(); }
  // 0 where it is no positive integer.
  std::int64_t number(std::size_t i) const {
    std::int64_t value = 0;
    const std::string& text = word(i);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : 0;
  }
  bool numbers(std::size_t first) const {
    for (std::size_t i = first; i < words_.size(); ++i) {
      if (number(i) <= 0) return false;
    }
    return true;
  }

 private:
  std::vector<std::string> words_;
};

bool add_gemm(const Name& name, double seconds, Regime regime, HostMeasurements& measured) {
  const auto role = gemm_role_named(name.word(1));
  const auto type = data_type_named(name.word(2));
  if (!role || !type || name.size() != 6 || !name.numbers(3)) return false;
  Gemm gemm;
  gemm.role = *role;
  gemm.m = name.number(3);
  gemm.n = name.number(4);
  gemm.k = name.number(5);
  measured.gemms[*type].push_back({executed_shape(gemm), *role, regime, seconds, kDevice});
  return true;
}

bool add_attention(const Name& name, double seconds, HostMeasurements& measured) {
  if (name.size() != 8 || !name.numbers(3)) return false;
  AttentionSample sample;
  sample.pass = name.word(1) == "backward" ? AttentionPass::kBackward : AttentionPass::kForward;
  sample.point.batch = name.number(3);
  sample.point.heads = name.number(4);
  sample.point.kv_heads = name.number(5);
  sample.point.sequence = name.number(6);
  sample.point.head_dim = sample.point.head_dim_v = name.number(7);
  sample.point.time = Time::from_seconds(seconds);
  measured.attention.push_back(sample);
  return true;
}

bool add_kernel(const Name& name, double seconds, HostMeasurements& measured) {
  const auto kind = kernel_kind_named(name.word(1));
  const auto type = data_type_named(name.word(2));
  if (!kind || !type || name.size() != 5 || !name.numbers(3)) return false;
  Kernel kernel;
  kernel.kind = *kind;
  kernel.type = kernel.output = *type;
  kernel.rows = name.number(3);
  kernel.columns = name.number(4);
  measured.kernels.push_back({kernel, seconds});
  return true;
}

bool add_communication(const Name& name, double seconds, HostMeasurements& measured) {
  if (name.word(0) == "issue") {
    measured.transports[name.word(1)].issue_s = seconds;
    return name.size() == 2;
  }
  const bool sends = name.word(0) == "send";
  const auto kind = sends ? CollectiveKind::kSend : collective_kind_named(name.word(1));
  if (!kind || name.size() != (sends ? 3U : 5U)) return false;
  if (!sends && name.number(3) != kMeasuredRanks) return false;
  const std::int64_t bytes = name.number(sends ? 2 : 4);
  if (bytes <= 0) return false;
  auto& transport = measured.transports[name.word(sends ? 1 : 2)];
  transport.collectives[*kind].push_back({static_cast<double>(bytes), seconds * 1e6});
  return true;
}

bool add(const Name& name, double seconds, HostMeasurements& measured) {
  const std::string& what = name.word(0);
  if (what == "gemm") return add_gemm(name, seconds, Regime::kBurst, measured);
  if (what == "gemm_sustained") return add_gemm(name, seconds, Regime::kSustained, measured);
  if (what == "attention") return add_attention(name, seconds, measured);
  if (what == "kernel") return add_kernel(name, seconds, measured);
  if (what == "collective" || what == "send" || what == "issue") {
    return add_communication(name, seconds, measured);
  }
  if (what == "launch") {
    if (name.word(1) == "kernel") measured.launch_s = seconds;
    return true;
  }
  static const std::set<std::string> kPriceless = {"memory_copy", "overlap", "gemm_hot",
                                                   "grouped_gemm", "clock"};
  return kPriceless.contains(what);
}

std::optional<double> seconds_of_unit(const std::string& unit) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit == "s") return 1;
  return std::nullopt;
}

void read_file_of(const std::string& file, HostMeasurements& measured, Problems& problems) {
  const JsonNode document = JsonNode::parse_file(file);
  const auto list = document.is_object() ? document.find("benchmarks") : std::nullopt;
  if (!list || !list->is_array()) {
    problems.add(file, "/benchmarks", "missing; expected the JSON that Google Benchmark writes");
    return;
  }
  for (const JsonNode& node : list->elements()) {
    if (node.find("error_occurred")) continue;
    const auto name = node.find("name"), time = node.find("real_time"),
               unit = node.find("time_unit");
    if (!name || !time || !unit || !time->is_number() || !(time->number() > 0)) {
      problems.add(file, node.pointer(), "expected name, real_time and time_unit");
      continue;
    }
    const auto scale = seconds_of_unit(unit->string());
    if (!scale || !add(Name(name->string()), time->number() * *scale, measured)) {
      problems.add(file, node.pointer(), "'" + name->string() + "' is no benchmark known here");
    }
  }
}

GemmTable gemm_table(DataType type, std::vector<DataType> types, std::vector<GemmSample> samples,
                     const Device& device, double issue_s, const std::string& source) {
  for (GemmSample& sample : samples) sample.seconds += issue_s;
  GemmTable start = recipes::start_table(std::move(types));
  // A core has no tiles to fill, only vector registers: small blocks stand for them.
  start.model.tiles = {{64, 64, 0.9}, {16, 16, 0.8}, {64, 16, 0.8}};
  start.model.per_kernel = Time::from_microseconds(0.5);
  start.model.per_wave = Time::from_microseconds(0.1);
  start.source = source;
  return fit_gemm_table(samples, recipes::gemm_device(device, type), start, kDevice);
}

void fit_attention_rates(std::vector<AttentionSample> samples, double issue_s,
                         const std::string& source, Profile& profile) {
  for (AttentionSample& sample : samples) {
    sample.point.time += Time::from_seconds(issue_s);
  }
  const AttentionFit fit =
      fit_attention(samples, AttentionKernel::kFlash2, profile.device.multiprocessors, 1);
  // The CPU has one fused kernel, whatever a job calls it.
  for (const AttentionKernel kernel : {AttentionKernel::kFlash1, AttentionKernel::kFlash2,
                                       AttentionKernel::kFlash3, AttentionKernel::kCudnn}) {
    for (AttentionRate rate : {fit.forward, fit.backward}) {
      rate.kernel = kernel;
      rate.source = source;
      rate.band = std::min(rate.band, 1.0);  // a busy machine may say anything
      profile.attention.push_back(std::move(rate));
    }
  }
}

void require(bool there, const char* benchmark) {
  if (!there) {
    throw InvalidInput("measurements", "",
                       std::string("no ") + benchmark + " benchmark; calibrate runs them all");
  }
}

}  // namespace

std::vector<KernelRate> kernel_rates(const std::vector<HostMeasurements::KernelTime>& times,
                                     const std::string& source) {
  std::map<KernelKind, std::vector<double>> large, all;
  for (const auto& [kernel, seconds] : times) {
    const auto bytes = static_cast<double>(bytes_moved(kernel).count);
    all[kernel.kind].push_back(bytes / seconds);
    if (bytes >= kLargeBytes) large[kernel.kind].push_back(bytes / seconds);
  }
  std::vector<KernelRate> rates;
  for (const auto& [kind, any] : all) {
    const auto found = large.find(kind);
    KernelRate rate;
    rate.kind = kind;
    rate.rate = {median(found == large.end() ? any : found->second)};
    rate.band = kRateBand;
    rate.grade = Grade::kMeasured;
    rate.source = source;
    for (const bool fused : {true, false}) {
      rate.fused = fused;
      rates.push_back(rate);
    }
  }
  return rates;
}

HostMeasurements read_host_measurements(const std::vector<std::string>& files) {
  HostMeasurements measured;
  Problems problems;
  for (const std::string& file : files) read_file_of(file, measured, problems);
  problems.throw_if_any();
  return measured;
}

Profile fit_host(const HostMeasurements& measured, const std::string& transport,
                 const std::string& source) {
  const auto gemms = measured.gemms.find(DataType::kFp32);
  require(gemms != measured.gemms.end(), "gemm/*/fp32");
  require(!measured.attention.empty(), "attention");
  require(!measured.kernels.empty(), "kernel");
  const auto between = measured.transports.find(transport);
  require(between != measured.transports.end() &&
              between->second.collectives.contains(CollectiveKind::kSend),
          "communication");
  Profile profile;
  profile.name = kDevice;
  profile.device = recipes::device_named(kDevice);
  profile.sources = source;
  profile.core_communicates = true;
  const double issue_s = between->second.issue_s;
  // 16-bit types are computed in fp32 and rounded.
  profile.gemms.push_back(gemm_table(DataType::kFp32,
                                     {DataType::kFp32, DataType::kBf16, DataType::kFp16},
                                     gemms->second, profile.device, issue_s, source));
  if (const auto wide = measured.gemms.find(DataType::kFp64); wide != measured.gemms.end()) {
    profile.gemms.push_back(gemm_table(DataType::kFp64, {DataType::kFp64}, wide->second,
                                       profile.device, issue_s, source));
  }
  fit_attention_rates(measured.attention, issue_s, source, profile);
  profile.memory.kernels = kernel_rates(measured.kernels, source);
  profile.memory.per_kernel = Time::from_seconds(issue_s);
  profile.memory.band = kRateBand;
  profile.memory.source = source;
  for (const KernelRate& rate : profile.memory.kernels) {
    // Kernels without a rate of their own move bytes as a copy does.
    if (rate.kind == KernelKind::kCopy) {
      profile.memory.efficiency =
          rate.rate.bytes_per_second / profile.device.memory_bandwidth.bytes_per_second;
    }
  }
  for (const auto& [kind, points] : between->second.collectives) {
    std::vector<CurvePoint> curve = points;
    std::sort(curve.begin(), curve.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
    profile.collectives.push_back({kind, kMeasuredRanks, 1, Curve(std::move(curve)),
                                   Grade::kMeasured, kCurveBand, source + ", " + transport});
  }
  const Curve& message = profile.collectives.back().time_us;
  profile.send = {Time::from_microseconds(message.at(message.min_x())),
                  Time::from_microseconds(message.at(message.min_x())),
                  1,
                  1,
                  kCurveBand,
                  "the curve of messages stands before this"};
  return profile;
}

}  // namespace headway
