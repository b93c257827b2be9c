// Jobs from and to the arguments of Megatron-LM (megatron/training/arguments.py, v1.1 to core 0.19;
// Megatron-DeepSpeed's own among them). An import knows every flag these versions have: those that
// a job can say are taken over, those no cost depends on are listed as ignored, those a cost
// depends on and a job cannot say as not imported; any other flag is an error. An export states
// every value, so that read back it gives the same job, and refuses what Megatron-LM cannot do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/formats/job_draft.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// Reads the arguments in a launch script, in a bare list, or in YAML (`file` ends with .yaml or
// .yml: flags or their names with underscores, nested as may be). Throws InvalidInput with every
// problem.
JobDraft import_megatron(std::string_view text, const std::string& file);

// "torchrun ... pretrain_gpt.py" and its arguments, one a line. Throws InvalidInput with every part
// of the job that Megatron-LM cannot do and what it has instead; `name` stands for the job.
std::string export_megatron(const Job& job, const std::string& name);

// One row of "what Megatron-LM calls it -> our plan", for people and tests.
struct FlagMeaning {
  std::string flag;  // "--tensor-model-parallel-size"
  std::string key;   // "plan.tp"
};
const std::vector<FlagMeaning>& megatron_counts();
// Those that count with --multi-latent-attention alone.
const std::vector<FlagMeaning>& megatron_latent_attention();

}  // namespace headway
