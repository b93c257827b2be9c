// What each operation of a Program costs on each class of ranks: computation by the device's
// profile, collectives and messages by where their group sits. Each is priced once.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/cost/collective_cost.hpp"
#include "sim/cost/host_cost.hpp"
#include "sim/simulate/encounters.hpp"
#include "sim/simulate/price_book.hpp"

namespace headway {

// What one operation of a template costs on one class of ranks.
struct OperationPrice {
  Price price;  // alone
  int launches = 1;
  CollectivePrice collective;  // of collectives and messages
  int group_size = 1;
};

// Bytes per second that a collective or message moves per link of load 1 where nothing competes.
double rate_alone(const CollectivePrice& price);

// What an operation costs in a role, at the device's own speed on sound links. `role` is nothing
// for work of the rank alone, which may depend on its `place` in its ring
// (Encounters::place_class).
OperationPrice price_of(const TemplateOperation& operation, const Role* role, int place,
                        const PriceBook& prices, const CollectiveCost& collectives,
                        const HostCost& host, const Software& software);

class OperationPricer {
 public:
  // REQUIRES: all outlive this.
  OperationPricer(const Program& program, const PriceBook& prices, const Topology& topology,
                  const Software& software, const Encounters& encounters);

  // The number of the price of an operation of a layer on a rank; throws InvalidInput where the
  // profile lacks what it needs.
  int index(const TemplateOperation& operation, int rank, int layer);
  const OperationPrice& price(int index) const { return prices_[static_cast<std::size_t>(index)]; }
  const std::vector<OperationPrice>& prices() const { return prices_; }

  // The most that a group of the structure can put on a link of load 1: operations of one group
  // follow each other, so it counts with its fastest.
  double fastest(std::size_t group);

 private:
  struct Key {
    const TemplateOperation* operation = nullptr;
    int role_class = 0, speed = 0, place = 0;
    double load = 1;  // of the rank's experts
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      const auto spread = (static_cast<std::size_t>(key.role_class) << 32U) +
                          (static_cast<std::size_t>(key.place) << 24U) +
                          static_cast<std::size_t>(key.speed);
      return std::hash<const void*>()(key.operation) ^ (spread * 0x9e3779b97f4a7c15ULL) ^
             std::hash<double>()(key.load);
    }
  };

  OperationPrice compute(const TemplateOperation& operation, int rank, int role_index,
                         double load) const;
  // What comes to the experts of a rank, over even routing; of a collective, to its hottest member.
  double load_of(const TemplateOperation& operation, int rank, int layer) const;
  int placement_class(const Role& role, bool message);

  const Program& program_;
  const Software& software_;
  const Encounters& encounters_;
  const PriceBook& book_;
  CollectiveCost collective_;
  HostCost host_;
  std::vector<OperationPrice> prices_;
  std::unordered_map<Key, int, KeyHash> indices_;
  std::map<std::tuple<int, int, int, int, int, double>, int> placement_classes_;
  std::map<std::tuple<int, int, int>, double> fastest_;
};

}  // namespace headway
