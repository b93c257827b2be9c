// Times of fused attention kernels: a rate by kernel and direction with corrections for the
// sequence, the head dimension, the causal mask and a grid too small for the device
// (AttentionRate), then corrected by the measured shapes nearest to the one asked for.
#pragma once

#include "sim/cost/neighbours.hpp"
#include "sim/cost/profile.hpp"

namespace headway {

// FLOPs by the convention of the FlashAttention papers: 2 b h sq skv (dqk + dv), halved where
// causal, 2.5 times that backward. Of a window the keys met count (keys_met), and the rate is that
// of a sequence as long: a block of queries passes over as many.
Flops executed_flops(const Attention& attention);

// Seconds by the rate alone, burst.
double model_seconds(const AttentionRate& rate, int multiprocessors, const Attention& attention);

class AttentionCost {
 public:
  // REQUIRES: the rate outlives this.
  AttentionCost(const AttentionRate& rate, int multiprocessors);
  Price price(const Attention& attention, Regime regime) const;

 private:
  Price packed_price(Attention attention, Regime regime) const;

  const AttentionRate& rate_;
  int multiprocessors_;
  Neighbours neighbours_;
};

}  // namespace headway
