#include "sim/cost/compute_cost.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "sim/cost/attention_cost.hpp"
#include "sim/cost/gemm_cost.hpp"

namespace headway {

namespace {

// Values read and written per score of unfused attention's kernels (Korthikanti et al. 2022,
// section 4.1 counts the same tensors): softmax one and one, backward two and one; dropout one and
// one, and a byte of mask, both ways.
struct ScorePasses {
  double reads = 0, writes = 0, bytes = 0;
  int kernels = 0;
};
ScorePasses score_passes(const Attention& attention) {
  ScorePasses passes = {attention.backward ? 2.0 : 1.0, 1, 0, 1};
  // Megatron-LM's fused kernel (scaled_upper_triang_masked_softmax.h) reads a row up to its
  // diagonal, and writes zeros beyond.
  if (attention.fused && attention.causal) passes.reads /= 2;
  // Eager: cast to fp32, fill in the mask, softmax, cast back; and the same backwards.
  if (!attention.fused) {
    constexpr double kWide = 4;
    passes = {1, 1, (attention.backward ? 7 : 6) * kWide, 4};
  }
  if (attention.dropout) {
    passes.reads += 1;
    passes.writes += 1;
    passes.bytes += 1;
    ++passes.kernels;
  }
  return passes;
}

// Bands of what was not measured: a grouped product against the batched one it is priced as, a
// permutation against a copy.
constexpr double kGroupedBand = 0.15;
constexpr double kRoutingBand = 0.3;

double bytes_of(DataType type) { return static_cast<double>(size_of(type, 2).count) / 2; }

// Heads come together and go apart in a copy of their own, read and written: forward of the context
// (permute and contiguous), backward of the gradients of queries, keys and values (the
// concatenation that undoes their split).
double arranged_bytes(const Attention& attention) {
  const std::int64_t tokens = attention.batch * attention.sequence_q;
  const std::int64_t columns =
      attention.backward ? attention.heads * attention.head_dim +
                               attention.kv_heads * (attention.head_dim + attention.head_dim_v)
                         : attention.heads * attention.head_dim_v;
  return 2 * static_cast<double>(tokens * columns) * bytes_of(attention.type);
}

GemmDevice gemm_device(const Profile& profile, DataType type, DataType output) {
  GemmDevice device;
  const auto peak = profile.device.dense_peak.find(type);
  if (peak == profile.device.dense_peak.end()) {
    throw InvalidInput(
        profile.name, "/device",
        "the device has no peak rate for " + std::string(name(type)) + " matrix multiplications");
  }
  device.peak = peak->second.per_second;
  device.memory_bandwidth = profile.device.memory_bandwidth.bytes_per_second;
  device.multiprocessors = profile.device.multiprocessors;
  device.input_bytes = bytes_of(type);
  device.output_bytes = bytes_of(output);
  return device;
}

Gemm batched(DataType type) {
  Gemm gemm;
  gemm.type = gemm.output = type;
  return gemm;
}

}  // namespace

struct ComputeCost::Tables {
  std::map<DataType, GemmCost> gemms;
  std::vector<std::pair<const AttentionRate*, AttentionCost>> attention;
  std::map<std::pair<KernelKind, bool>, const KernelRate*> kernels;
};

ComputeCost::ComputeCost(const Profile& profile, Regime regime)
    : profile_(profile), regime_(regime), tables_(std::make_unique<Tables>()) {
  for (const GemmTable& table : profile.gemms) {
    // One correction serves all types of a table: they share its points.
    const GemmDevice device = gemm_device(profile, table.types.front(), table.types.front());
    const GemmCost cost(table, device);
    for (const DataType type : table.types) tables_->gemms.emplace(type, cost);
  }
  for (const AttentionRate& rate : profile.attention) {
    if (!rate.implementation.empty()) continue;
    tables_->attention.emplace_back(&rate, AttentionCost(rate, profile.device.multiprocessors));
  }
  for (const KernelRate& rate : profile.memory.kernels) {
    tables_->kernels.emplace(std::pair{rate.kind, rate.fused}, &rate);
  }
}

ComputeCost::~ComputeCost() = default;

Price ComputeCost::price(const Operation& operation) const {
  return std::visit(
      [this](const auto& each) -> Price {
        using Kind = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Kind, Collective> || std::is_same_v<Kind, HostWork>) {
          assert(false && "priced by CollectiveCost and by the software");
          return {};
        } else {
          return price(each);
        }
      },
      operation);
}

Price ComputeCost::price(const Gemm& gemm) const {
  const auto cost = tables_->gemms.find(gemm.type);
  if (cost == tables_->gemms.end()) {
    std::vector<std::string> known;
    for (const auto& [type, each] : tables_->gemms) known.emplace_back(name(type));
    throw InvalidInput(profile_.name, "/gemm",
                       "the profile has no entry for matrix multiplications of " +
                           std::string(name(gemm.type)) + " inputs; it has " + any_of(known));
  }
  return cost->second.price(executed_shape(gemm), gemm.role, regime_, gemm.batch);
}

// One launch over all experts, each of which is a matrix multiplication of its own with the even
// share of the rows: their tiles fill the device together, as in a batched product, but a last tile
// of rows is each expert's own. No grouped product has been measured here.
Price ComputeCost::price(const GroupedGemm& gemm) const {
  const auto cost = tables_->gemms.find(gemm.type);
  Gemm each;
  each.role = gemm.role;
  // Counts are what they are; an odd mean shall not look like a misaligned matrix.
  constexpr std::int64_t kAligned = 8;
  each.m = (gemm.m + gemm.groups * kAligned - 1) / (gemm.groups * kAligned) * kAligned;
  each.n = gemm.n;
  each.k = gemm.k;
  each.type = gemm.type;
  each.output = gemm.output;
  if (cost == tables_->gemms.end()) return price(each);  // says what is missing
  Price result = cost->second.price(executed_shape(each), each.role, regime_, gemm.groups);
  result.grade = std::max(result.grade, Grade::kExtrapolated);
  result.band = std::max(result.band, kGroupedBand);
  return result;
}

Price ComputeCost::price(const Attention& attention) const {
  if (attention.kernel == AttentionKernel::kUnfused) return unfused(attention);
  for (const auto& [rate, cost] : tables_->attention) {
    if (rate->kernel == attention.kernel && rate->backward == attention.backward) {
      return cost.price(attention, regime_);
    }
  }
  std::vector<std::string> known = {std::string(name(AttentionKernel::kUnfused))};
  for (const AttentionRate& rate : profile_.attention) {
    if (rate.implementation.empty() && rate.backward == attention.backward)
      known.emplace_back(name(rate.kernel));
  }
  throw InvalidInput(
      profile_.name, "/attention",
      "the profile has no rate for attention kernel " + std::string(name(attention.kernel)) + " " +
          (attention.backward ? "backward" : "forward") + "; it has " + any_of(known));
}

// Batched multiplications around a softmax that goes through memory.
Price ComputeCost::unfused(const Attention& attention) const {
  const auto cost = tables_->gemms.find(attention.type);
  if (cost == tables_->gemms.end()) return price(batched(attention.type));  // says what is missing
  const std::int64_t batch = attention.batch * attention.heads;
  const GemmShape scores = {attention.sequence_q, attention.sequence_kv, attention.head_dim};
  const GemmShape context = {attention.sequence_q, attention.head_dim_v, attention.sequence_kv};
  const double count = static_cast<double>(batch * attention.sequence_q * attention.sequence_kv);
  const ScorePasses passes = score_passes(attention);
  const double bytes = passes.bytes + (passes.reads + passes.writes) * bytes_of(attention.type);
  const double moved = count * bytes + arranged_bytes(attention);
  const MemoryModel& memory = profile_.memory;
  const double rate = memory.efficiency * profile_.device.memory_bandwidth.bytes_per_second;
  Price total{Time::from_seconds(moved / rate + (passes.kernels + 1) * memory.per_kernel.seconds()),
              memory.grade, memory.band};
  const auto multiply = [&](const GemmShape& shape) {
    total = total + cost->second.price(shape, GemmRole::kForward, regime_, batch);
  };
  if (!attention.backward) {
    multiply(scores);
    multiply(context);
  } else {
    multiply({attention.sequence_kv, attention.head_dim_v, attention.sequence_q});  // dv
    multiply({attention.sequence_q, attention.sequence_kv, attention.head_dim_v});  // dscores
    multiply({attention.sequence_q, attention.head_dim, attention.sequence_kv});    // dq
    multiply({attention.sequence_kv, attention.head_dim, attention.sequence_q});    // dk
  }
  return total;
}

// By the bytes they move, as other memory-bound kernels; gathers of whole rows were not measured.
Price ComputeCost::price(const Routing& routing) const {
  const MemoryModel& memory = profile_.memory;
  const double rate = memory.efficiency * profile_.device.memory_bandwidth.bytes_per_second;
  const auto bytes = static_cast<double>(bytes_moved(routing).count);
  return {
      Time::from_seconds(bytes / rate + headway::launches(routing) * memory.per_kernel.seconds()),
      std::max(memory.grade, Grade::kExtrapolated), std::max(memory.band, kRoutingBand)};
}

Price ComputeCost::price(const Kernel& kernel) const {
  const MemoryModel& memory = profile_.memory;
  double rate = memory.efficiency * profile_.device.memory_bandwidth.bytes_per_second;
  Price price{Time::zero(), memory.grade, memory.band};
  const auto own = tables_->kernels.find({kernel.kind, kernel.fused});
  if (own != tables_->kernels.end()) {
    rate = own->second->rate.bytes_per_second;
    price.grade = own->second->grade;
    price.band = own->second->band;
  }
  const auto bytes = static_cast<double>(bytes_moved(kernel).count);
  price.time =
      Time::from_seconds(bytes / rate + headway::launches(kernel) * memory.per_kernel.seconds());
  return price;
}

int ComputeCost::launches(const Operation& operation) const {
  if (const auto* kernel = std::get_if<Kernel>(&operation)) return headway::launches(*kernel);
  if (const auto* routing = std::get_if<Routing>(&operation)) return headway::launches(*routing);
  if (const auto* attention = std::get_if<Attention>(&operation)) {
    if (attention->kernel == AttentionKernel::kUnfused) {
      return (attention->backward ? 4 : 2) + score_passes(*attention).kernels + 1;
    }
    return attention->backward ? 3 : 1;  // FlashAttention: row sums, gradients, dq's conversion
  }
  return std::holds_alternative<HostWork>(operation) ? 0 : 1;
}

}  // namespace headway
