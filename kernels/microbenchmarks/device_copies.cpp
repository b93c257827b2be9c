#include "kernels/cuda/cuda_error.hpp"
#include "kernels/cuda/device_operators.hpp"
#include "kernels/microbenchmarks/device_points.hpp"

namespace headway {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 30;

DevicePoint copy_point(const char* where, std::int64_t bytes) {
  const std::string name = std::string("memory_copy/") + where + "/" + std::to_string(bytes);
  const std::string direction = where;
  return {name, [=](DeviceSampling& sampling) {
            const auto size = static_cast<std::size_t>(bytes);
            const DeviceMemory device(size), other(direction == "device" ? size : 0);
            const PinnedMemory host(direction == "device" ? 1 : size);
            void* to = direction == "device"    ? other.data()
                       : direction == "to_host" ? host.data()
                                                : device.data();
            const void* from = direction == "to_device" ? host.data() : device.data();
            const cudaMemcpyKind kind = direction == "device"    ? cudaMemcpyDeviceToDevice
                                        : direction == "to_host" ? cudaMemcpyDeviceToHost
                                                                 : cudaMemcpyHostToDevice;
            return sampling.sample(
                name,
                [&](DeviceStream& stream) {
                  checked(cudaMemcpyAsync(to, from, size, kind, stream.get()));
                },
                Load::kBurst);
          }};
}

// Two ranks that share the device, each with a buffer of its own.
DevicePoint collective_point(CollectiveKind kind, std::int64_t bytes) {
  const bool sends = kind == CollectiveKind::kSend;
  const std::string name = sends ? "send/device/" + std::to_string(bytes)
                                 : "collective/" + std::string(headway::name(kind)) + "/device/2/" +
                                       std::to_string(bytes);
  return {name, [=](DeviceSampling& sampling) {
            const DataType type = DataType::kBf16;
            const std::int64_t whole = bytes / 2;
            const std::int64_t given = kind == CollectiveKind::kAllGather ? whole / 2 : whole;
            const std::int64_t taken = kind == CollectiveKind::kReduceScatter ? whole / 2 : whole;
            std::vector<DeviceMemory> memory;
            const auto operand = [&](std::int64_t elements) {
              memory.emplace_back(static_cast<std::size_t>(2 * elements));
              checked(cudaMemsetAsync(memory.back().data(), 0, memory.back().bytes(),
                                      sampling.stream().get()));
              return Operand{type, 1, elements, memory.back().data()};
            };
            std::vector<CollectiveMember> members;
            for (int member = 0; member < 2; ++member) {
              const Operand read = operand(given);
              const bool in_place = kind == CollectiveKind::kAllReduce;
              const Operand write = in_place ? read : operand(taken);
              members.push_back({{read}, {write}});
            }
            if (sends) {
              members[0].writes.clear();
              members[1].reads.clear();
            }
            Collective collective;
            collective.kind = kind;
            collective.elements = whole;
            collective.type = type;
            return sampling.sample(
                name,
                [&](DeviceStream& stream) { communicate_on_device(collective, members, stream); },
                Load::kBurst);
          }};
}

}  // namespace

DevicePoints copy_points(bool quick) {
  DevicePoints points;
  for (const char* where : {"device", "to_host", "to_device"}) {
    for (std::int64_t bytes = 4096; bytes <= kLargest; bytes *= quick ? 64 : 4) {
      points.push_back(copy_point(where, bytes));
    }
  }
  return points;
}

DevicePoints collective_points(bool quick) {
  DevicePoints points;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kSend}) {
    for (std::int64_t bytes = 4096; bytes <= (std::int64_t{256} << 20); bytes *= quick ? 64 : 4) {
      points.push_back(collective_point(kind, bytes));
    }
  }
  return points;
}

}  // namespace headway
