#include "sim/program/training_step.hpp"

#include <gtest/gtest.h>

#include "sim/program/program_json.hpp"
#include "tests/program/small_job.hpp"

namespace headway {
namespace {

TEST(TrainingStep, EveryKindOfPlanLowersToASoundProgram) {
  int lowered = 0;
  for (const bool llama : {false, true}) {
    for (const int tp : {1, 2}) {
      for (const int pp : {1, 2, 4}) {
        for (const int dp : {1, 2}) {
          for (const int vpp : {1, 2}) {
            if (vpp > 1 && pp == 1) continue;
            for (int variant = 0; variant < 48; ++variant) {
              Job job = llama ? small_llama() : small_job();
              job.model.num_hidden_layers = 8;
              job = spread(job, tp, pp, dp, vpp);
              job.plan.sequence_parallel = (variant & 1) != 0;
              job.plan.overlap_p2p = (variant & 2) != 0;
              job.plan.overlap_grad_reduce = (variant & 4) != 0;
              job.plan.overlap_param_gather = (variant & 4) != 0;
              job.plan.scatter_gather = (variant & 8) != 0;
              job.software.dropout = (variant & 8) != 0 ? 0.1 : 0;
              job.software.fused_kernels = (variant & 1) == 0;
              job.plan.dp_kind = static_cast<DataParallelKind>(variant / 16);
              job.plan.recompute = static_cast<Recompute>(variant % 3);
              job.plan.bucket_elements = 2000;
              job.software.accumulation = static_cast<GradientAccumulation>((variant + 1) % 3);
              job.software.gathered_logits = variant % 5 == 0;
              job.software.fused_loss = variant % 7 < 3;
              job.software.p2p_synchronises = variant % 11 == 0;
              if (variant % 4 == 3) job.precision = Precision::kFp64;
              const Program program = lower(job);
              ASSERT_NO_THROW(check(program, "lowered"))
                  << "tp " << tp << " pp " << pp << " dp " << dp << " vpp " << vpp << " variant "
                  << variant;
              ++lowered;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(lowered, 48 * 2 * 2 * 2 * 5);
}

}  // namespace
}  // namespace headway
