// headway_fit POINTS_FOLDER PROFILES_FOLDER [NAME...]: writes the shipped profiles anew from the
// published points, and prints how wrong each is on shapes it did not see.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "sim/core/file.hpp"
#include "sim/cost/fit.hpp"

namespace {

void print(const std::string& profile, const std::string& what, const headway::FitError& error) {
  if (error.count == 0) return;
  std::printf("%-16s %-34s %5d points  median %5.1f %%  p90 %5.1f %%  worst %6.1f %%\n",
              profile.c_str(), what.c_str(), error.count, 100 * error.median, 100 * error.p90,
              100 * error.worst);
}

void print(const headway::Profile& profile) {
  for (const headway::GemmTable& table : profile.gemms) {
    const std::string types(headway::name(table.types.front()));
    if (table.left_out.count == 0) continue;
    print(profile.name, "gemm " + types, table.left_out);
    print(profile.name, "gemm " + types + ", model alone", table.model_alone);
    std::printf("  sustained %.3f  dgrad %.3f  wgrad %.3f  reach %.1f power %.0f\n",
                table.sustained_factor, table.input_gradient_factor, table.weight_gradient_factor,
                table.reach, table.power);
    for (const headway::GemmTile& tile : table.model.tiles) {
      std::printf("  %dx%d %.3f", tile.rows, tile.columns, tile.efficiency);
    }
    std::printf("\n  kernel %.2f us wave %.2f us softness %.2f memory %.2f\n",
                table.model.per_kernel.microseconds(), table.model.per_wave.microseconds(),
                table.model.wave_softness, table.model.memory_share);
  }
  for (const headway::AttentionRate& rate : profile.attention) {
    print(profile.name,
          "attention " +
              (rate.implementation.empty() ? std::string(headway::name(rate.kernel))
                                           : rate.implementation) +
              (rate.backward ? " backward" : " forward"),
          rate.left_out);
    std::printf("  rate %.0f half %.0f/%.0f causal %.2f tail %.2f\n", rate.rate.per_second * 1e-12,
                rate.half_sequence, rate.half_sequence_full, rate.causal_factor, rate.tail_waves);
  }
  for (const headway::MeasuredKernel& kernel : profile.memory.measured) {
    print(profile.name, kernel.operation + " " + kernel.pass, kernel.left_out);
  }
  for (const headway::KernelRate& rate : profile.memory.kernels) {
    std::printf("  %s%s %.0f GB/s\n", std::string(headway::name(rate.kind)).c_str(),
                rate.fused ? "" : " (eager)", rate.rate.bytes_per_second * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: headway_fit POINTS_FOLDER PROFILES_FOLDER [NAME...]\n");
    return 2;
  }
  try {
    const headway::PointSet points = headway::read_points(argv[1]);
    std::vector<std::string> names(argv + 3, argv + argc);
    if (names.empty()) names = headway::fitted_profiles();
    for (const std::string& name : names) {
      const headway::Profile profile = headway::fit_profile(name, points);
      print(profile);
      headway::write_file(std::string(argv[2]) + "/" + name + ".json",
                          headway::profile_text(profile));
    }
  } catch (const headway::InvalidInput& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
