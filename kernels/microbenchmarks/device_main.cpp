// headway-measure-cuda: measures a CUDA device, point by point, into files that are whole after
// every one. One program for all things, because it travels to machines where nothing can be
// installed.
//   headway-measure-cuda FOLDER [--things gemm,attention,...] [--for SECONDS] [--quick] [--list]
// FOLDER/THING.json; points that are there already are not measured again.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/microbenchmarks/device_clock.hpp"
#include "kernels/microbenchmarks/device_points.hpp"
#include "sim/core/error.hpp"

namespace headway {
namespace {

struct Thing {
  const char* name;
  DevicePoints (*points)(bool quick);
};
// What nobody has published comes first.
constexpr Thing kThings[] = {
    {"gemm", gemm_points},      {"optimizers", optimizer_points},   {"launch", launch_points},
    {"clock", clock_points},    {"overlap", overlap_points},        {"attention", attention_points},
    {"kernels", kernel_points}, {"collectives", collective_points}, {"memory_copy", copy_points}};

struct Arguments {
  std::string folder;
  std::vector<std::string> things;
  double seconds = 1e9;
  bool quick = false, list = false;
  std::int64_t most = -1;  // points of each thing
};

std::map<std::string, std::string> context_of(bool quick) {
  cudaDeviceProp properties{};
  checked(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  checked(cudaDriverGetVersion(&driver));
  return {{"device", properties.name},
          {"multiprocessors", std::to_string(properties.multiProcessorCount)},
          {"capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"cuda_runtime", std::to_string(CUDART_VERSION)},
          {"cuda_driver", std::to_string(driver)},
          {"quick", quick ? "true" : "false"},
          {"headway", HEADWAY_VERSION}};
}

bool wanted(const Arguments& arguments, const std::string& thing) {
  return arguments.things.empty() || std::find(arguments.things.begin(), arguments.things.end(),
                                               thing) != arguments.things.end();
}

// Returns how many points are still missing.
int measure(const Thing& thing, const Arguments& arguments, DeviceSampling& sampling,
            std::chrono::steady_clock::time_point deadline) {
  PointFile file(
      (std::filesystem::path(arguments.folder) / (std::string(thing.name) + ".json")).string(),
      context_of(arguments.quick));
  DevicePoints points = thing.points(arguments.quick);
  if (arguments.most >= 0 && static_cast<std::int64_t>(points.size()) > arguments.most) {
    points.resize(static_cast<std::size_t>(arguments.most));
  }
  int missing = 0;
  for (const DevicePoint& point : points) {
    if (file.has(point.name)) continue;
    if (std::chrono::steady_clock::now() >= deadline) {
      ++missing;
      continue;
    }
    MeasuredPoint measured;
    try {
      measured = point.measure(sampling);
    } catch (const std::invalid_argument& refused) {
      measured.error = refused.what();  // a type or shape that the library does not have
    }
    measured.name = point.name;
    file.add(std::move(measured));
  }
  return missing;
}

int run(const Arguments& arguments) {
  if (arguments.list) {
    for (const Thing& thing : kThings) {
      if (!wanted(arguments, thing.name)) continue;
      for (const DevicePoint& point : thing.points(arguments.quick)) {
        std::cout << thing.name << ' ' << point.name << '\n';
      }
    }
    return 0;
  }
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(arguments.seconds));
  require_device();
  std::filesystem::create_directories(arguments.folder);
  DeviceSampling sampling(arguments.quick);
  int missing = 0;
  for (const Thing& thing : kThings) {
    if (!wanted(arguments, thing.name)) continue;
    const int left = measure(thing, arguments, sampling, deadline);
    std::cout << thing.name << ": "
              << (left == 0 ? "complete" : std::to_string(left) + " points left") << std::endl;
    missing += left;
  }
  return missing == 0 ? 0 : 3;
}

}  // namespace
}  // namespace headway

int main(int count, char** values) try {
  headway::Arguments arguments;
  CLI::App app("Measures a CUDA device.", "headway-measure-cuda");
  app.add_option("FOLDER", arguments.folder, "where THING.json are kept")->required();
  app.add_option("--things", arguments.things, "gemm, attention, ...; all where absent")
      ->delimiter(',');
  app.add_option("--for", arguments.seconds, "seconds after which no point is begun (exit code 3)");
  app.add_option("--most", arguments.most, "points of each thing");
  app.add_flag("--quick", arguments.quick, "fewer points and samples");
  app.add_flag("--list", arguments.list, "the points, without a device");
  app.footer("example: headway-measure-cuda measurements --things gemm --for 400");
  try {
    app.parse(count, values);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return 2;
  }
  return headway::run(arguments);
} catch (const std::exception& error) {
  std::cerr << "headway-measure-cuda: " << error.what() << '\n';
  return 1;
}
