// What a training framework can be told to do: the values of a plan that its launcher takes. A
// search for a framework stays within its reach, so that every answer can be started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/job.hpp"

namespace headway {

struct FrameworkReach {
  std::vector<std::string> frameworks;  // names of presets; empty: any other
  std::vector<std::string> schedules;   // with pp > 1, the plainest first
  std::vector<std::string> dp_kinds;    // the plainest first
  bool tensor_parallel = true, pipeline_parallel = true;
  // Whether a pipeline must have as many layers in each virtual stage, counting embedding and head
  // as one layer each where that makes it come out.
  bool even_stages = false;
  std::string source;
  std::vector<std::string> tp_overlaps = {"none"};  // the plainest first
};

// Of a framework's preset; of "any" everything that this version can lower.
const FrameworkReach& framework_reach(std::string_view framework);

// Why the framework cannot launch the job's plan, in words; empty where it can.
std::string launch_refusal(const FrameworkReach& reach, const Job& job);

}  // namespace headway
