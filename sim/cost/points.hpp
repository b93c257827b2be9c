// Published measured points: the CSV files of calibration/points, one row per measurement, as their
// README describes them. Readers are strict; rows that a source marks (flag) are kept and marked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cost/profile.hpp"

namespace headway {

struct GemmRow {
  std::string gpu, dtype, layout, flag, source;  // layout TN forward, NN input, NT weight gradient
  GemmShape shape;                               // as executed
  double time_us = 0;
};
struct AttentionRow {
  std::string gpu, dtype, kind, implementation, flag, source;  // kind: fwd, bwd, fwd+bwd
  AttentionPoint point;
};
struct ElementwiseRow {
  std::string gpu, operation, dtype, shape, flag, source, note;
  double time_us = 0;
};
struct CollectiveRow {
  std::string gpu, operation, network, flag, source;
  int ranks = 0, gpus_per_node = 0;
  double bytes = 0, time_us = 0;
  bool in_place = false;
};

struct PointSet {
  std::vector<GemmRow> gemm;
  std::vector<AttentionRow> attention;
  std::vector<ElementwiseRow> elementwise;
  std::vector<CollectiveRow> collectives;
};

// Reads gemm.csv, gemm-host-cpu.csv, attention.csv, elementwise.csv and collectives.csv of
// `folder`. Throws InvalidInput with every bad line.
PointSet read_points(const std::string& folder);

// The regime a source measured in (README of the points); nothing where it is unknown.
std::optional<Regime> regime_of(std::string_view source);

}  // namespace headway
