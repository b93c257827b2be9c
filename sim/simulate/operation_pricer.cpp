#include "sim/simulate/operation_pricer.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace headway {

double rate_alone(const CollectivePrice& price) {
  const Time moving = price.alone.time - price.latency;
  if (price.wire_bytes <= 0 || moving <= Time::zero()) return 0;
  return static_cast<double>(price.wire_bytes) / moving.seconds();
}

// With this share of the bandwidth left, what is no latency takes longer.
static void slow_down(CollectivePrice& price, double left) {
  if (left == 1) return;
  const Time moving = price.alone.time - price.latency;
  price.alone.time = price.latency + Time::from_seconds(moving.seconds() / left);
  price.alone.grade = std::max(price.alone.grade, Grade::kExtrapolated);
}

// Inside a training step the ranks of a collective do not arrive together: each has its own host,
// and its own gaps between kernels. Medians of five collectives of tensor parallelism inside a step
// (aicb-a100-example in calibration/points/collectives.csv: 8 KiB to 16 MiB, two ranks) lie 41 to
// 70 us above the same alone (aic-nccl2.27.3). Not where graphs launch, nor on threads of one host.
constexpr double kSkewUs = 60;

static void add_skew(CollectivePrice& price, const Device& device, const Software& software,
                     bool in_graph) {
  const bool alone = price.alone.time == Time::zero();
  if (alone || device.multiprocessors <= 1) return;
  if (software.launch == Launch::kCudaGraph && (in_graph || !software.graph_scope.any())) return;
  const Time skew = Time::from_microseconds(kSkewUs);
  price.latency += skew;
  price.alone.time += skew;
}

// What a rank at `place` of its ring computes of an operation; nothing where all of it is masked.
static std::optional<Operation> computed_at(int place, const Operation& operation) {
  const auto* attention = std::get_if<Attention>(&operation);
  if (attention == nullptr) return operation;
  const std::optional<Attention> part = computed_part(*attention, place);
  return part ? std::optional<Operation>(*part) : std::nullopt;
}

OperationPrice price_of(const TemplateOperation& operation, const Role* role, int place,
                        const PriceBook& prices, const CollectiveCost& collectives,
                        const HostCost& host, const Software& software) {
  OperationPrice result;
  if (std::holds_alternative<HostWork>(operation.operation)) {
    result.launches = 0;
    if (const auto& work = std::get<HostWork>(operation.operation); work.kind == HostKind::kPause) {
      result.price.time = work.time;
    }
  } else if (HostCost::prices(operation.operation)) {
    result.price = prices.corrected(host.price(operation.operation), operation.cause);
    result.launches = std::get<Kernel>(operation.operation).on_host ? 0 : 1;
  } else if (role == nullptr) {
    const std::optional<Operation> part = computed_at(place, operation.operation);
    result.launches = 0;
    if (!part) return result;
    const PriceBook::Entry entry = prices.price(*part);
    result.price = prices.corrected(entry.price, operation.cause);
    result.launches = entry.launches;
  } else if (const Collective& collective = *collective_of(operation); is_message(operation)) {
    result.group_size = 2;
    result.collective = collectives.send(size(collective), role->same_node);
    result.collective.latency += software.p2p_blocking;
    result.collective.alone.time += software.p2p_blocking;
  } else {
    result.group_size = role->placement.ranks;
    result.collective =
        collectives.price(collective, role->placement, network_efficiency(operation, software));
    // Hops round a ring follow one another: who comes late is waited for once, by what needs them.
    if (collective.kind != CollectiveKind::kShift) {
      add_skew(result.collective, prices.profile().device, software, operation.graph >= 0);
    }
  }
  if (role != nullptr) {
    result.collective.latency = prices.corrected(result.collective.latency, operation.cause);
    result.collective.alone = prices.corrected(result.collective.alone, operation.cause);
    result.price = result.collective.alone;
  }
  return result;
}

OperationPricer::OperationPricer(const Program& program, const PriceBook& prices,
                                 const Topology& topology, const Software& software,
                                 const Encounters& encounters)
    : program_(program),
      software_(software),
      encounters_(encounters),
      book_(prices),
      collective_(prices.profile(), topology),
      host_(topology) {}

namespace {

std::int64_t times(std::int64_t rows, double load) {
  return static_cast<std::int64_t>(std::llround(static_cast<double>(rows) * load));
}

// The operation with as many rows as really come.
struct AtLoad {
  double load = 1;
  Operation operator()(GroupedGemm gemm) const {
    gemm.m = times(gemm.m, load);
    return gemm;
  }
  Operation operator()(Kernel kernel) const {
    kernel.rows = times(kernel.rows, load);
    return kernel;
  }
  Operation operator()(Routing routing) const {
    routing.rows = times(routing.rows, load);
    return routing;
  }
  Operation operator()(Collective collective) const {
    collective.elements = times(collective.elements, load);
    if (collective.network_elements > 0)
      collective.network_elements = times(collective.network_elements, load);
    return collective;
  }
  template <typename Other>
  Operation operator()(const Other& other) const {
    return other;
  }
};

}  // namespace

double OperationPricer::load_of(const TemplateOperation& operation, int rank, int layer) const {
  if (!operation.by_load || program_.expert_loads.empty() || layer < 0) return 1;
  if (operation.group < 0) return program_.expert_load(rank, layer);
  double hottest = 0;
  for (const int member :
       program_.grid.members(program_.groups[static_cast<std::size_t>(operation.group)], rank)) {
    hottest = std::max(hottest, program_.expert_load(member, layer));
  }
  return hottest;
}

// Operations are priced once per role, speed and load, not per rank.
int OperationPricer::index(const TemplateOperation& operation, int rank, int layer) {
  const int role_index = encounters_.role_index(operation);
  const int role_class =
      role_index == kNoIndex
          ? kNoIndex
          : placement_class(encounters_.role(rank, role_index), is_message(operation));
  const double load = load_of(operation, rank, layer);
  const bool alone = role_index == kNoIndex;
  const Key key{&operation, role_class, alone ? encounters_.speed_class(rank) : 0,
                alone ? encounters_.place_class(rank) : 0, load};
  const auto [found, is_new] = indices_.try_emplace(key, static_cast<int>(prices_.size()));
  if (is_new) prices_.push_back(compute(operation, rank, role_index, load));
  return found->second;
}

int OperationPricer::placement_class(const Role& role, bool message) {
  const auto& p = role.placement;
  const auto key = std::tuple(p.ranks, p.nodes, p.ranks_per_node, p.neighbours_sharing_nic,
                              message ? (role.same_node ? 1 : 2) : 0, role.left_inside);
  return placement_classes_.try_emplace(key, static_cast<int>(placement_classes_.size()))
      .first->second;
}

OperationPrice OperationPricer::compute(const TemplateOperation& even, int rank, int role_index,
                                        double load) const {
  TemplateOperation operation = even;
  if (load != 1) operation.operation = std::visit(AtLoad{load}, even.operation);
  if (role_index == kNoIndex) {
    OperationPrice result = price_of(operation, nullptr, encounters_.place_class(rank), book_,
                                     collective_, host_, software_);
    const double factor = encounters_.speed_factor(rank);
    if (factor != 1.0) {
      result.price.time = Time::from_seconds(result.price.time.seconds() * factor);
    }
    return result;
  }
  const Role& mine = encounters_.role(rank, role_index);
  OperationPrice result = price_of(operation, &mine, 0, book_, collective_, host_, software_);
  if (mine.same_node) slow_down(result.collective, mine.left_inside);
  result.price = result.collective.alone;
  return result;
}

double OperationPricer::fastest(std::size_t group) {
  const FoldingStructure& structure = encounters_.structure();
  const int rank =
      structure.members[static_cast<std::size_t>(structure.groups[group].first_member)];
  const int kind = encounters_.kind_of(rank);
  const int role_index = encounters_.group_role(group);
  const Role& mine = encounters_.role(rank, role_index);
  const bool message = encounters_.is_message_role(role_index);
  const auto key = std::tuple(kind, role_index, placement_class(mine, message));
  const auto found = fastest_.find(key);
  if (found != fastest_.end()) return found->second;
  double best = 0;
  for_each_operation(program_, kind, [&](const TemplateOperation& operation) {
    if (encounters_.role_index(operation) != role_index) return;
    const int layers = static_cast<int>(operation.by_load ? program_.expert_loads.size() : 0);
    for (int layer = layers > 1 ? 0 : -1; layer < layers; ++layer) {
      best = std::max(best, rate_alone(price(index(operation, rank, layer)).collective));
    }
  });
  fastest_.emplace(key, best);
  return best;
}

}  // namespace headway
