#include <chrono>

#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/microbenchmarks/channel_copy.hpp"
#include "kernels/microbenchmarks/device_points.hpp"
#include "kernels/microbenchmarks/operation_operands.hpp"
#include "kernels/microbenchmarks/sample_statistics.hpp"

namespace headway {
namespace {

constexpr int kLaunches = 1000;

// A kernel of one block that copies nothing.
void empty(DeviceStream& stream) { copy_by_channels(nullptr, nullptr, 0, 1, 0, stream.get()); }

// The host's time to enqueue `call`, on a stream that does not wait for it.
MeasuredPoint host_time(const std::string& name, const DeviceSampling::Call& call,
                        DeviceSampling& sampling) {
  std::vector<double> samples;
  constexpr int kSamples = 15;
  for (int sample = 0; sample < kSamples; ++sample) {
    sampling.stream().synchronise();
    const auto start = std::chrono::steady_clock::now();
    // Fewer than the driver's queue holds, behind which the host would wait.
    constexpr int kQueued = 200;
    for (int i = 0; i < kQueued; ++i) call(sampling.stream());
    samples.push_back(seconds_since(start) / kQueued);
  }
  sampling.stream().synchronise();
  std::sort(samples.begin(), samples.end());
  MeasuredPoint point;
  point.name = name;
  point.seconds = samples[kSamples / 2];
  point.counters["samples"] = kSamples;
  point.counters["spread"] = (samples[3 * kSamples / 4] - samples[kSamples / 4]) / point.seconds;
  return point;
}

class Graph {
 public:
  Graph(int kernels, DeviceStream& stream) {
    cudaGraph_t graph = nullptr;
    checked(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kernels; ++i) empty(stream);
    checked(cudaStreamEndCapture(stream.get(), &graph));
    checked(cudaGraphInstantiate(&executable_, graph, 0));
    checked(cudaGraphDestroy(graph));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }
  void launch(DeviceStream& stream) const { checked(cudaGraphLaunch(executable_, stream.get())); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

DevicePoints launch_points(bool) {
  DevicePoints points;
  points.push_back({"launch/kernel", [](DeviceSampling& sampling) {
                      return sampling.sample("launch/kernel", empty, Load::kBurst);
                    }});
  points.push_back({"launch/host", [](DeviceSampling& sampling) {
                      return host_time("launch/host", empty, sampling);
                    }});
  points.push_back({"issue/device", [](DeviceSampling& sampling) {
                      KernelOperands copy{KernelKind::kCopy, "x", "x"};
                      const OperationBenchmark of = benchmark_of(copy, DataType::kBf16, 1, 4);
                      const DeviceOperands operands(of, 1, sampling.stream());
                      return host_time(
                          "issue/device",
                          [&](DeviceStream& stream) {
                            compute_on_device(of.operation, operands.reads(), operands.writes(),
                                              of.placement, stream);
                          },
                          sampling);
                    }});
  for (const int kernels : {1, 10, 100, kLaunches}) {
    const std::string name = "launch/graph/" + std::to_string(kernels);
    points.push_back({name, [=](DeviceSampling& sampling) {
                        const Graph graph(kernels, sampling.stream());
                        MeasuredPoint point = sampling.sample(
                            name, [&](DeviceStream& stream) { graph.launch(stream); },
                            Load::kBurst);
                        point.counters["host_us"] =
                            host_time(
                                name, [&](DeviceStream& stream) { graph.launch(stream); }, sampling)
                                .seconds *
                            1e6;
                        return point;
                      }});
  }
  return points;
}

}  // namespace headway
