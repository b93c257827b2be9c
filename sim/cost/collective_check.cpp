#include "sim/cost/collective_check.hpp"

#include <cctype>
#include <cstdio>
#include <map>
#include <numeric>

#include "sim/cluster/topology_reader.hpp"
#include "sim/core/shipped_files.hpp"
#include "sim/cost/collective_cost.hpp"
#include "sim/cost/recipes/recipe.hpp"

namespace headway {

namespace {

std::string quoted(const std::string& text) {
  return text.find(',') == std::string::npos ? text : '"' + text + '"';
}

// Profiles and clusters are read once each.
class Answers {
 public:
  CheckedCollective check(const CollectiveRow& row) {
    CheckedCollective checked;
    checked.row = &row;
    const auto device = device_of_gpu(row.gpu);
    if (!device || find_shipped_file("calibration/profiles/" + *device + ".json") == nullptr) {
      checked.skipped = "no profile of " + row.gpu;
      return checked;
    }
    checked.device = *device;
    const auto kind = recipes::collective_kind_of(row.operation);
    if (!kind || *kind == CollectiveKind::kSend) {
      checked.skipped = "no cost of " + row.operation;
      return checked;
    }
    checked.inside = row.network == "none(intra)" || row.network == "NVL72";
    checked.stated = checked.inside || is_plain_network(row.network);
    const auto nic = checked.inside ? std::optional<std::string>("") : nics_in(row.network);
    if (!nic) {
      checked.skipped = "the network '" + row.network + "' does not say its NICs";
      return checked;
    }
    const Topology* const topology = cluster(*device, row.ranks, *nic);
    if (topology == nullptr) {
      checked.skipped = "no cluster of " + std::to_string(row.ranks) + " " + *device;
      return checked;
    }
    std::vector<int> ranks(static_cast<std::size_t>(row.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    const GroupPlacement placement = topology->placement(ranks);
    Collective collective;
    collective.kind = *kind;
    collective.type = DataType::kFp16;
    collective.elements = static_cast<std::int64_t>(row.bytes / 2 + 0.5);
    if (collective.elements == 0 || checked.inside != (placement.nodes == 1)) {
      checked.skipped = collective.elements == 0 ? "less than an element"
                                                 : "ranks are not where its cluster puts them";
      return checked;
    }
    const CollectivePrice price =
        CollectiveCost(without_curve(*device, *kind, checked.inside ? row.ranks : 0), *topology)
            .price(collective, placement);
    checked.predicted_us = price.alone.time.microseconds();
    checked.algorithm = price.algorithm;
    checked.protocol = price.protocol;
    checked.grade = price.alone.grade;
    return checked;
  }

 private:
  // The profile as if nothing of this operation and size had been measured; ranks 0: as it is.
  const Profile& without_curve(const std::string& device, CollectiveKind kind, int ranks) {
    const auto [found, is_new] = profiles_.try_emplace({device, kind, ranks});
    if (is_new) {
      found->second = read_profile(device);
      std::erase_if(found->second.collectives, [&](const CollectiveCurve& curve) {
        return curve.kind == kind && curve.nodes == 1 && curve.ranks == ranks;
      });
    }
    return found->second;
  }

  const Topology* cluster(const std::string& device, int gpus, const std::string& nic) {
    const auto [found, is_new] = clusters_.try_emplace({device, gpus, nic});
    if (is_new) {
      Problems problems;
      ClusterOptions options;
      options.gpu = device;
      options.gpus = gpus;
      if (!nic.empty()) options.nic = nic;
      found->second = cluster_in_one_line(options, problems);
      if (!problems.empty()) found->second.reset();
    }
    return found->second ? &*found->second : nullptr;
  }

  std::map<std::tuple<std::string, CollectiveKind, int>, Profile> profiles_;
  std::map<std::tuple<std::string, int, std::string>, std::optional<Topology>> clusters_;
};

}  // namespace

std::optional<std::string> nics_in(const std::string& network) {
  const auto digit = [&](std::size_t at) {
    return at < network.size() && std::isdigit(static_cast<unsigned char>(network[at])) != 0;
  };
  for (std::size_t cross = network.find('x'); cross != std::string::npos;
       cross = network.find('x', cross + 1)) {
    if (cross == 0 || !digit(cross - 1) || !digit(cross + 1)) continue;
    std::size_t begin = cross, end = cross + 1;
    while (begin > 0 && digit(begin - 1)) --begin;
    while (digit(end)) ++end;
    return network.substr(begin, end - begin) + " Gbit/s";
  }
  return std::nullopt;
}

bool is_plain_network(const std::string& network) {
  const bool known = network.starts_with("IB") || network.starts_with("RoCE");
  const bool sure = network.find('?') == std::string::npos;
  return known && sure && network.find("SHARP") == std::string::npos;
}

std::vector<CheckedCollective> check_collectives(const PointSet& points) {
  Answers answers;
  std::vector<CheckedCollective> all;
  for (const CollectiveRow& row : points.collectives) all.push_back(answers.check(row));
  return all;
}

std::string collectives_csv(const std::vector<CheckedCollective>& checked) {
  std::string text =
      "gpu,op,nranks,gpus_per_node,nic,bytes,measured_us,predicted_us,algorithm,protocol,grade,"
      "stated,source\n";
  for (const CheckedCollective& one : checked) {
    if (!one.skipped.empty()) continue;
    const CollectiveRow& row = *one.row;
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, ",%.0f,%.6g,%.6g,", row.bytes, row.time_us,
                  one.predicted_us);
    text += quoted(row.gpu) + ',' + row.operation + ',' + std::to_string(row.ranks) + ',' +
            std::to_string(row.gpus_per_node) + ',' + quoted(row.network) + numbers +
            one.algorithm + ',' + one.protocol + ',' + std::string(name(one.grade)) + ',' +
            (one.stated ? "yes" : "no") + ',' + quoted(row.source) + '\n';
  }
  return text;
}

}  // namespace headway
