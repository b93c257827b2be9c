// Files as the microbenchmarks write them, of a machine with round figures: 50 GFLOP/s, 10 GB/s, a
// microsecond for each operation, 20 us and 2 GB/s between two ranks.
#pragma once

#include <functional>
#include <string>

namespace headway {

inline std::string measured_host_json() {
  std::string list;
  const auto add = [&](const std::string& name, double us) {
    list += std::string(list.empty() ? "" : ",\n") + R"({"name": ")" + name +
            R"(/iterations:1/manual_time", "real_time": )" + std::to_string(us) +
            R"(, "time_unit": "us"})";
  };
  for (const int m : {64, 256, 1024}) {
    for (const int n : {64, 256, 1024}) {
      for (const int k : {64, 256, 1024}) {
        const double us = 2.0 * m * n * k / 50e3;
        for (const char* role : {"forward", "input_gradient", "weight_gradient"}) {
          add(std::string("gemm/") + role + "/fp32/" + std::to_string(m) + "/" + std::to_string(n) +
                  "/" + std::to_string(k),
              us);
        }
      }
    }
  }
  for (const int sequence : {64, 256, 1024}) {
    const double us = 2.0 * 4 * sequence * sequence * 128 / 2 / 10e3;
    const std::string shape = "/fp32/1/4/4/" + std::to_string(sequence) + "/64";
    add("attention/forward" + shape, us);
    add("attention/backward" + shape, 2.5 * us);
  }
  // fp32: a copy moves 8 bytes an element, AdamW 28.
  add("kernel/copy/fp32/1024/1024", 8.0 * 1024 * 1024 / 10e3);
  add("kernel/adam/fp32/1024/1024", 28.0 * 1024 * 1024 / 10e3);
  for (const char* transport : {"threads", "mpi"}) {
    const std::string by = transport;
    add("issue/" + by, 1);
    for (const int bytes : {1024, 65536, 4194304}) {
      const double us = 20 + bytes / 2e3;
      add("collective/all_reduce/" + by + "/2/" + std::to_string(bytes), us);
      add("send/" + by + "/" + std::to_string(bytes), us);
    }
  }
  add("memory_copy/4096", 1);
  return "{\"context\": {}, \"benchmarks\": [\n" + list + "\n]}\n";
}

}  // namespace headway
