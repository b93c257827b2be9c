// Measured points: the CSV files of calibration/points, one row per measurement, as their README
// describes them, and files of the same columns that others write. Readers are strict; rows that a
// source marks (flag) are kept and marked.
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

// A message or copy between two GPUs.
struct SendRow {
  std::string gpu, link, kind, source;
  double bytes = 0, time_us = 0;
};
// A multiplication of grouped matrices, or a kernel or exchange of a mixture of experts.
struct ExpertRow {
  std::string gpu, kind, shape, source;
};

struct PointSet {
  std::vector<GemmRow> gemm;
  std::vector<AttentionRow> attention;
  std::vector<ElementwiseRow> elementwise;
  std::vector<CollectiveRow> collectives;
  std::vector<SendRow> sends;
  std::vector<ExpertRow> experts;
  int ratios = 0;  // rows of busbw_ratio_simai.csv, of no device: counted
};

// Adds the rows of a CSV file, whose columns say what it holds: those of gemm.csv, attention.csv,
// elementwise.csv, collectives.csv, p2p.csv, moe.csv or busbw_ratio_simai.csv, in any order and
// with any others beside.
void read_points_file(const std::string& path, PointSet& set, Problems& problems);

// Reads gemm.csv, gemm-host-cpu.csv, attention.csv, elementwise.csv and collectives.csv of
// `folder`. Throws InvalidInput with every bad line.
PointSet read_points(const std::string& folder);

// The device of a GPU as the points, the driver or this project name it ("A100-SXM4-80GB"); nothing
// where it is no device with a profile of its own (README of the points).
std::optional<std::string> device_of_gpu(const std::string& gpu);

// The regime a source measured in (README of the points); nothing where it is unknown.
std::optional<Regime> regime_of(std::string_view source);

}  // namespace headway
