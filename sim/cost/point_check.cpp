#include "sim/cost/point_check.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>
#include <variant>

#include "sim/cluster/topology_reader.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/shipped_files.hpp"
#include "sim/cost/attention_cost.hpp"
#include "sim/cost/collective_check.hpp"
#include "sim/cost/collective_cost.hpp"
#include "sim/cost/compute_cost.hpp"
#include "sim/cost/gemm_fit.hpp"
#include "sim/cost/kernel_fit.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway {

namespace {

constexpr double kMicro = 1e-6;

// Either a prediction or why there is none.
using Answer = std::variant<double, std::string>;

// What a profile says of points, in any regime.
class Oracle {
 public:
  explicit Oracle(Profile profile) : profile_(std::move(profile)) {
    for (const AttentionRate& rate : profile_.attention) {
      attention_.emplace_back(&rate, AttentionCost(rate, profile_.device.multiprocessors));
    }
  }

  const std::string& device() const { return profile_.device.name; }
  const std::string& name() const { return profile_.name; }

  Answer gemm(const GemmRow& row, Regime regime);
  Answer attention(const AttentionRow& row, Regime regime) const;
  Answer elementwise(const ElementwiseRow& row) const;
  Answer collective(const CollectiveRow& row);
  Answer send(const SendRow& row);

 private:
  const ComputeCost& compute(Regime regime) {
    std::unique_ptr<ComputeCost>& cost = compute_[regime];
    if (!cost) cost = std::make_unique<ComputeCost>(profile_, regime);
    return *cost;
  }
  const AttentionCost* attention_cost(const std::string& implementation, bool backward) const;
  double quantise_seconds(const GemmShape& shape) const;
  // A cluster of `nodes` servers of this device; `nic` empty: as its best known one.
  const Topology* cluster(int gpus, const std::string& nic);

  Profile profile_;
  std::map<Regime, std::unique_ptr<ComputeCost>> compute_;
  std::vector<std::pair<const AttentionRate*, AttentionCost>> attention_;
  std::map<std::pair<int, std::string>, std::optional<Topology>> clusters_;
};

// The job's dimensions of what is executed (inverse of executed_shape()).
Gemm gemm_of(const GemmShape& shape, GemmRole role, DataType type) {
  Gemm gemm;
  gemm.role = role;
  gemm.type = gemm.output = type;
  gemm.m = shape.rows;
  gemm.n = shape.columns;
  gemm.k = shape.depth;
  if (role == GemmRole::kInputGradient) std::swap(gemm.n, gemm.k);
  if (role == GemmRole::kWeightGradient) {
    gemm.n = shape.rows;
    gemm.k = shape.columns;
    gemm.m = shape.depth;
  }
  return gemm;
}

// Dynamic quantisation of the activation before an fp8 multiplication, where it was measured with
// it (calibration/points/README.md: fp8_dyn).
double Oracle::quantise_seconds(const GemmShape& shape) const {
  for (const MeasuredKernel& kernel : profile_.memory.measured) {
    if (!kernel.operation.starts_with("fp8_quantise")) continue;
    return static_cast<double>(shape.rows) * static_cast<double>(shape.depth) *
           kernel.picoseconds_per_element * 1e-12;
  }
  return 0;
}

Answer Oracle::gemm(const GemmRow& row, Regime regime) {
  const bool quantised = row.dtype == "fp8_dyn";
  const auto type = data_type_named(quantised ? "fp8" : row.dtype);
  if (!type || profile_.gemm_table(*type) == nullptr) {
    return "no multiplications of " + row.dtype + " in the profile";
  }
  // Benchmarks that state no layout multiply forward.
  const GemmRole role = recipes::role_of(row.layout).value_or(GemmRole::kForward);
  const Gemm gemm = gemm_of(row.shape, role, *type);
  double seconds = compute(regime).price(gemm).time.seconds();
  // Where both are short they overlap: no more than once again.
  if (quantised) seconds += std::min(seconds, quantise_seconds(row.shape));
  return seconds;
}

const AttentionCost* Oracle::attention_cost(const std::string& implementation,
                                            bool backward) const {
  const auto kernel = recipes::attention_kernel_of(implementation);
  for (const auto& [rate, cost] : attention_) {
    if (rate->backward != backward) continue;
    const bool named = rate->implementation == implementation;
    const bool called = rate->implementation.empty() && kernel == rate->kernel;
    if (named || called) return &cost;
  }
  return nullptr;
}

Answer Oracle::attention(const AttentionRow& row, Regime regime) const {
  double seconds = 0;
  for (const bool backward : {false, true}) {
    if (row.kind == (backward ? "fwd" : "bwd")) continue;
    const AttentionCost* cost = attention_cost(row.implementation, backward);
    if (cost == nullptr) {
      return "no " + row.implementation + (backward ? " backward" : " forward") +
             " attention in the profile";
    }
    Attention shape;
    shape.backward = backward;
    shape.batch = row.point.batch;
    shape.heads = row.point.heads;
    shape.kv_heads = row.point.kv_heads;
    shape.sequence_q = shape.sequence_kv = row.point.sequence;
    shape.head_dim = row.point.head_dim;
    shape.head_dim_v = row.point.head_dim_v;
    shape.causal = row.point.causal;
    seconds += cost->price(shape, regime).time.seconds();
  }
  return seconds;
}

Answer Oracle::elementwise(const ElementwiseRow& row) const {
  const auto elements = elements_of(row);
  if (!elements) return "the shape of " + row.operation + " is not understood";
  const std::string pass = pass_of(row);
  for (const MeasuredKernel& kernel : profile_.memory.measured) {
    if (kernel.operation != row.operation || kernel.pass != pass) continue;
    if (kernel.type != row.dtype) continue;
    return kernel.per_kernel.seconds() + kernel.picoseconds_per_element * 1e-12 * *elements;
  }
  return "no measured kernel " + row.operation + " " + pass + " in the profile";
}

// Nothing for transports that NCCL's own model does not describe.
std::optional<std::string> nic_option(const std::string& network) {
  const bool known = network.starts_with("IB") || network.starts_with("RoCE");
  return known ? nics_in(network) : std::nullopt;
}

const Topology* Oracle::cluster(int gpus, const std::string& nic) {
  auto [found, is_new] = clusters_.try_emplace({gpus, nic});
  if (is_new) {
    Problems problems;
    ClusterOptions options;
    options.gpu = profile_.device.name;
    options.gpus = gpus;
    if (!nic.empty()) options.nic = nic;
    found->second = cluster_in_one_line(options, problems);
    if (!problems.empty()) found->second.reset();
  }
  return found->second ? &*found->second : nullptr;
}

Answer Oracle::collective(const CollectiveRow& row) {
  const auto kind = recipes::collective_kind_of(row.operation);
  if (!kind) return "no cost of " + row.operation;
  const bool inside = row.network == "none(intra)" || row.network == "NVL72";
  const auto nic = inside ? std::optional<std::string>("") : nic_option(row.network);
  if (!nic) return "no cost over the network '" + row.network + "'";
  const Topology* topology = cluster(row.ranks, *nic);
  if (topology == nullptr) {
    return "no cluster of " + std::to_string(row.ranks) + " " + profile_.device.name;
  }
  std::vector<int> ranks(static_cast<std::size_t>(row.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const GroupPlacement placement = topology->placement(ranks);
  if (inside != (placement.nodes == 1)) return "ranks are not where its cluster puts them";
  Collective collective;
  collective.kind = *kind;
  collective.type = DataType::kFp16;
  collective.elements = static_cast<std::int64_t>(row.bytes / 2 + 0.5);
  if (collective.elements == 0) return "less than an element";
  return CollectiveCost(profile_, *topology).price(collective, placement).alone.time.seconds();
}

Answer Oracle::send(const SendRow& row) {
  // A ring of messages shares links, and copies are no messages.
  if (row.kind != "nccl send/recv") return "no cost of " + row.kind;
  if (!row.link.starts_with("intra-node NVLink")) return "no cost over '" + row.link + "'";
  const Topology* topology = cluster(2, "");
  if (topology == nullptr) return "no cluster of " + profile_.device.name;
  return CollectiveCost(profile_, *topology)
      .send({static_cast<std::int64_t>(row.bytes)}, true)
      .alone.time.seconds();
}

class Checker {
 public:
  explicit Checker(const std::optional<std::string>& profile) {
    if (profile) only_ = std::make_unique<Oracle>(read_profile(*profile));
  }

  void add(const GemmRow& row) {
    measure("gemm", row, row.time_us,
            [&](Oracle& oracle, Regime regime) { return oracle.gemm(row, regime); });
  }
  void add(const AttentionRow& row) {
    measure("attention", row, row.point.time.microseconds(),
            [&](Oracle& oracle, Regime regime) { return oracle.attention(row, regime); });
  }
  void add(const ElementwiseRow& row) {
    measure("elementwise", row, row.time_us,
            [&](Oracle& oracle, Regime) { return oracle.elementwise(row); });
  }
  void add(const CollectiveRow& row) {
    measure(row.operation, row, row.time_us,
            [&](Oracle& oracle, Regime) { return oracle.collective(row); });
  }
  void add(const SendRow& row) {
    measure("send", row, row.time_us, [&](Oracle& oracle, Regime) { return oracle.send(row); });
  }
  void add(const ExpertRow& row) {
    skip("expert", device_of_gpu(row.gpu).value_or(row.gpu),
         "no cost of " + row.kind.substr(0, row.kind.find(' ')));
  }

  void add_ratios(int count) {
    for (int i = 0; i < count; ++i) skip("ratio", "unstated", "ratios of unstated hardware");
  }

  PointCheck result() {
    std::vector<double> all;
    for (const auto& [operation, devices] : errors_) {
      for (const auto& [device, regimes] : devices) {
        std::vector<double> together;
        for (const auto& [regime, errors] : regimes) {
          together.insert(together.end(), errors.begin(), errors.end());
          check_.by_regime[operation][device][regime] = summarize(errors);
        }
        all.insert(all.end(), together.begin(), together.end());
        check_.by[operation][device].errors = summarize(std::move(together));
      }
    }
    check_.all.errors = summarize(std::move(all));
    return std::move(check_);
  }

 private:
  template <typename Row, typename Predict>
  void measure(const std::string& operation, const Row& row, double time_us, Predict predict) {
    const auto known = device_of_gpu(row.gpu);
    const std::string device = known.value_or(row.gpu);
    if (const std::string why = unusable(row); !why.empty()) return skip(operation, device, why);
    if (only_ && known != only_->device()) {
      return skip(operation, device, "not of the device of " + only_->name());
    }
    Oracle* oracle = known ? oracle_of(*known) : nullptr;
    if (oracle == nullptr) return skip(operation, device, "no profile of " + row.gpu);
    // A source of no stated regime is a benchmark of its own: a short loop.
    const Regime regime = regime_of(row.source).value_or(Regime::kBurst);
    const Answer answer = predict(*oracle, regime);
    if (const auto* why = std::get_if<std::string>(&answer)) return skip(operation, device, *why);
    errors_[operation][oracle->name()][std::string(name(regime))].push_back(
        std::get<double>(answer) / (time_us * kMicro) - 1);
  }

  template <typename Row>
  static std::string unusable(const Row& row) {
    if constexpr (requires { row.flag; }) {
      if (!row.flag.empty()) return "marked by its source's compiler: " + row.flag;
    }
    if (row.source.starts_with("stas00-mamf")) return "a ceiling found by search (stas00-mamf)";
    return row.source.starts_with("aic-vllm") ? "measured on uninitialised memory (aic-vllm)" : "";
  }

  void skip(const std::string& operation, const std::string& device, const std::string& why) {
    ++check_.all.skipped;
    ++check_.by[operation][device].skipped;
    ++check_.skipped[why];
  }

  Oracle* oracle_of(const std::string& device) {
    if (only_) return only_.get();
    std::unique_ptr<Oracle>& oracle = oracles_[device];
    if (!oracle && find_shipped_file("calibration/profiles/" + device + ".json") != nullptr) {
      oracle = std::make_unique<Oracle>(read_profile(device));
    }
    return oracle.get();
  }

  std::unique_ptr<Oracle> only_;
  std::map<std::string, std::unique_ptr<Oracle>> oracles_;
  // By operation, device, regime.
  std::map<std::string, std::map<std::string, std::map<std::string, std::vector<double>>>> errors_;
  PointCheck check_;
};

void write_figures(JsonWriter& json, const FitError& errors) {
  json.field("count", errors.count).field("median", errors.median);
  json.field("p90", errors.p90).field("worst", errors.worst);
}

std::string row_text(const std::string& title, const FitError& errors, int skipped) {
  char text[160];
  std::snprintf(text, sizeof text, "%-44s %6d %8.1f %% %8.1f %% %9.1f %%", title.c_str(),
                errors.count, 100 * errors.median, 100 * errors.p90, 100 * errors.worst);
  return std::string(text) + (skipped > 0 ? "  " + std::to_string(skipped) + " skipped" : "") +
         "\n";
}

}  // namespace

PointCheck check_points(const PointSet& points, const std::optional<std::string>& profile) {
  Checker checker(profile);
  for (const GemmRow& row : points.gemm) checker.add(row);
  for (const AttentionRow& row : points.attention) checker.add(row);
  for (const ElementwiseRow& row : points.elementwise) checker.add(row);
  for (const CollectiveRow& row : points.collectives) checker.add(row);
  for (const SendRow& row : points.sends) checker.add(row);
  for (const ExpertRow& row : points.experts) checker.add(row);
  checker.add_ratios(points.ratios);
  return checker.result();
}

std::string check_text(const PointCheck& check) {
  char head[160];
  std::snprintf(head, sizeof head, "%-44s %6s %10s %10s %11s\n", "points", "count", "median", "p90",
                "worst");
  std::string text = head;
  for (const auto& [operation, devices] : check.by) {
    for (const auto& [device, figures] : devices) {
      const auto regimes = check.by_regime.find(operation);
      int skipped = figures.skipped;
      if (figures.errors.count == 0) {
        text += row_text(operation + ", " + device, {}, skipped);
        continue;
      }
      for (const auto& [regime, errors] : regimes->second.at(device)) {
        text += row_text(operation + ", " + device + ", " + regime, errors, skipped);
        skipped = 0;
      }
    }
  }
  text += row_text("all", check.all.errors, check.all.skipped);
  for (const auto& [why, count] : check.skipped) {
    text += "  " + std::to_string(count) + " skipped: " + why + "\n";
  }
  return text;
}

std::string check_json(const PointCheck& check) {
  JsonWriter json;
  json.begin_object();
  write_figures(json, check.all.errors);
  json.field("skipped", check.all.skipped);
  json.key("by").begin_object();
  for (const auto& [operation, devices] : check.by) {
    json.key(operation).begin_object();
    for (const auto& [device, figures] : devices) {
      json.key(device).begin_object(true);
      write_figures(json, figures.errors);
      json.field("skipped", figures.skipped);
      json.key("regimes").begin_object(true);
      if (figures.errors.count > 0) {
        for (const auto& [regime, errors] : check.by_regime.at(operation).at(device)) {
          json.key(regime).begin_object(true);
          write_figures(json, errors);
          json.end_object();
        }
      }
      json.end_object().end_object();
    }
    json.end_object();
  }
  json.end_object();
  json.key("reasons").begin_array();
  for (const auto& [why, count] : check.skipped) {
    json.begin_object(true).field("why", why).field("count", count).end_object();
  }
  json.end_array().end_object();
  return json.text();
}

}  // namespace headway
