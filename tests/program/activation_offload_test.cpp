#include "sim/program/activation_offload.hpp"

#include <gtest/gtest.h>

#include <string>

#include "sim/program/lifetime.hpp"
#include "sim/program/training_step.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

// The steps of a pass: "F2" and "B2" compute layer 2, "d2" takes what is saved of it down, "w2"
// waits until it has gone, "u2" brings it up; "E", "H": embedding and head.
std::string text(const Program& program, const std::string& pass_name) {
  std::string result;
  for (const Pass& pass : program.kinds[0].passes) {
    if (pass.name != pass_name) continue;
    for (const Step& step : pass.steps) {
      const std::string name =
          program.templates[static_cast<std::size_t>(step.template_index)].name;
      const std::string layer = std::to_string(step.layer);
      std::string what;
      if (name.find(".gone_down") != std::string::npos) {
        what = "w" + layer;
      } else if (name.find(".down") != std::string::npos) {
        what = "d" + layer;
      } else if (name.find(".up") != std::string::npos) {
        what = "u" + layer;
      } else if (name.starts_with("layer")) {
        what = (name.find(".forward") != std::string::npos ? "F" : "B") + layer;
      } else if (name.find("head") != std::string::npos) {
        what = "H";
      } else {
        continue;
      }
      result += (result.empty() ? "" : " ") + what;
    }
  }
  return result;
}

Job offloading(std::int64_t layers) {
  Job job = spread(small_llama(), 1, 1, 1);
  job.plan.offload.activations = true;
  job.plan.offload.layers = layers;
  return job;
}

// A layer's input is the output of the one before, so it goes down behind its own forward pass.
TEST(ActivationOffload, GoesDownBehindALayerAndUpBeforeTheNext) {
  const Program program = lower(offloading(0));
  EXPECT_EQ(text(program, "0F"), "F0 d0 F1 w0 d1 F2 w1 d2 F3 w2 d3 H w3");
  EXPECT_EQ(text(program, "0B"), "u3 H u2 B3 u1 B2 u0 B1 B0");
}

TEST(ActivationOffload, OfTheFirstLayersLeavesTheOthers) {
  const Program program = lower(offloading(2));
  EXPECT_EQ(text(program, "0F"), "F0 d0 F1 w0 d1 F2 w1 F3 H");
  EXPECT_EQ(text(program, "0B"), "u1 H B3 B2 u0 B1 B0");
}

// Of four layers at most two are on the device; all are on the host before the first comes up.
TEST(ActivationOffload, MovesTheSavedBytesToTheHost) {
  Job job = spread(small_llama(), 1, 1, 1);
  const Program stays = lower(job);
  job.plan.offload.activations = true;
  const Program goes = lower(job);
  const MemoryUse before = memory_use(stays, stays.kinds[0]),
                  after = memory_use(goes, goes.kinds[0]);
  EXPECT_EQ(before.host_peak.count, 0);
  const auto activations = [](const MemoryUse& use) {
    return use.at_peak[static_cast<std::size_t>(BufferCategory::kActivation)].count;
  };
  EXPECT_LT(activations(after), activations(before));
  std::int64_t saved = 0;  // of a layer
  for (const BufferFamily& family : goes.buffers) {
    if (family.on_host) saved += family.size().count;
  }
  EXPECT_EQ(after.host_peak.count, 4 * saved);
  // Two of four layers have left when the forward pass ends.
  EXPECT_GE(activations(before) - activations(after), 2 * saved);
}

}  // namespace
}  // namespace headway
