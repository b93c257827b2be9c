// How each shipped profile is made: which published points it uses, at which level, and what is
// carried over from a sister device by a named ratio. One file for each generation of devices; the
// selections they share stand in selection.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/attention_fit.hpp"
#include "sim/cost/gemm_fit.hpp"
#include "sim/cost/kernel_fit.hpp"
#include "sim/cost/points.hpp"
#include "sim/cost/profile.hpp"

namespace headway::recipes {

// Ampere and Volta.
Profile a100_80gb(const PointSet& points);
Profile a100_40gb(const PointSet& points);
Profile v100(const PointSet& points, const std::string& name);
// Hopper.
Profile h100(const PointSet& points);
Profile h100_96gb(const PointSet& points);
Profile h800(const PointSet& points);
Profile h200(const PointSet& points);
// Instinct.
Profile mi300x(const PointSet& points);
// Blackwell.
Profile b200(const PointSet& points);
Profile b300(const PointSet& points);
Profile gb200(const PointSet& points);
Profile gb300(const PointSet& points);
// This kind of machine.
Profile host_cpu(const PointSet& points);

// ---- selections
// ------------------------------------------------------------------------------------

// What the points' words mean; nothing where they are others.
std::optional<GemmRole> role_of(const std::string& layout);  // "TN", "NN", "NT"
std::optional<CollectiveKind> collective_kind_of(const std::string& operation);
std::optional<AttentionKernel> attention_kernel_of(const std::string& implementation);  // "FA2"

// GEMM rows of a GPU whose source begins with one of `sources`, without flagged ones.
std::vector<GemmSample> gemm_samples(const PointSet& points, const std::string& gpu,
                                     const std::vector<std::string>& sources,
                                     const std::vector<std::string>& types);
// fp8 rows that include the activation's quantisation, without it: rows x depth elements at the
// rate of the same source's quantise kernels, `bytes_per_second` over 3 bytes per element.
std::vector<GemmSample> without_quantisation(std::vector<GemmSample> samples,
                                             double bytes_per_second);
GemmDevice gemm_device(const Device& device, DataType type);
const Device& device_named(const std::string& name);
// Where the tile model's search starts: every tile at 70 % of peak.
GemmTable start_table(std::vector<DataType> types);
// Tables of types nobody measured, with the tiles and factors of `from` at the other type's peak.
void add_transferred_types(Profile& profile, const GemmTable& from,
                           const std::vector<DataType>& types);
// The same points and model on a sister device, graded extrapolated.
void mark_transferred(Profile& profile, const std::string& how);

std::vector<AttentionSample> attention_samples(const PointSet& points, const std::string& gpu,
                                               const std::string& implementation, bool sister);
// An inference library's kernel, kept for checks only.
void add_checked_attention(const PointSet& points, const std::string& gpu,
                           const std::string& implementation, Profile& profile);

std::vector<CollectiveCurve> collective_curves(const PointSet& points, const std::string& gpu,
                                               const std::string& source, Grade floor);

// Rates of a kernel from a measured implementation: the bytes it moves per element over its slope,
// less the slope of `less` where the measured pass includes another.
struct RateSource {
  KernelKind kind;
  bool fused;
  DataType type;
  std::string operation, pass, less;
};
void add_kernel_rates(const std::vector<RateSource>& sources, MemoryModel& memory);

}  // namespace headway::recipes
