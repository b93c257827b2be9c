// Which of several simulated plans is the better one, and which cannot be told apart.
#pragma once

#include <vector>

#include "sim/search/plan_search.hpp"

namespace headway {

// The value of a plan that is smaller the better it is: seconds, GPU seconds or bytes.
double cost_of(const FoundPlan& plan, Objective objective);

// Whether the intervals of two plans meet, in time, or with kCost in GPU time.
bool overlaps(const FoundPlan& a, const FoundPlan& b, Objective objective);

// The best first: those whose interval overlaps the fastest one's are one tie, by memory margin,
// then fewer moving parts. With kCost by GPU time (at one price, by price), with kMemory by memory
// alone.
void rank_plans(std::vector<FoundPlan>& plans, Objective objective);

// How many mechanisms a plan switches on: of two equal plans the simpler one is better.
int moving_parts(const ParallelPlan& plan);

}  // namespace headway
