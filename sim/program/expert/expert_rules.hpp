// What the kinds of mixtures of experts decide: how a router scores, how a capacity is filled, and
// who learns how much is sent. One file states each kind's; the way through the experts
// (megatron_moe) is the same for all.
#pragma once

#include "sim/model/operation.hpp"
#include "sim/plan/job.hpp"

namespace headway {

struct ExpertRules {
  RouterScore score = RouterScore::kSoftmaxOfChosen;
  // With a capacity: every expert takes exactly as many rows, empty ones too, so that all shapes
  // are fixed; else what exceeds it is cut off.
  bool padded = false;
  // Which choices a full expert keeps: those of the highest weight, or the first.
  bool by_score = false;
  // The host must know how many rows come before it can launch what works on them.
  bool host_learns_counts = true;
  // Coefficient of the loss that keeps experts even.
  double auxiliary = 0;
};

// Of the job's kind. REQUIRES: the model has experts.
ExpertRules expert_rules(const Job& job);

namespace megatron_moe {
ExpertRules rules(const Job& job);
}
namespace gshard {
ExpertRules rules(const Job& job);
}
namespace switch_transformer {
ExpertRules rules(const Job& job);
}
namespace glam {
ExpertRules rules(const Job& job);
}
namespace deepspeed_moe {
ExpertRules rules(const Job& job);
}
namespace deepseek_moe {
ExpertRules rules(const Job& job);
}

}  // namespace headway
