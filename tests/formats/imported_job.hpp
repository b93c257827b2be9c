// Jobs for round trips through other tools' files: random plans that those tools can express, and a
// resolved job as text without what a round trip cannot keep (origins, notes).
#pragma once

#include <random>
#include <string>
#include <vector>

#include "sim/formats/job_draft.hpp"
#include "sim/plan/job.hpp"

namespace headway {

// A job of an inline model on 16 GPUs or so, told key by key.
class RandomPlan {
 public:
  explicit RandomPlan(unsigned seed);

  std::string one_of(const std::vector<std::string>& words);
  std::int64_t one_of(const std::vector<std::int64_t>& values);
  bool flip() { return one_of(std::vector<std::int64_t>{0, 1}) == 1; }

  template <typename Value>
  void set(const std::string& key, const Value& value) {
    draft_.set(key, value);
  }
  bool has(const std::string& key) const { return draft_.has(key); }

  // Sets plan.micro_batch and global_batch so that the batch divides.
  void choose_batch();

  std::string json() const { return draft_.json(); }
  // Reads it. A problem fails the test and throws.
  Job job() const;

 private:
  std::mt19937 random_;
  JobDraft draft_;
};

// The resolved values of a job, one "key = value" a line.
std::string resolved(const Job& job);

// What a draft becomes once the surroundings of `plan` fill it.
std::string job_with(const RandomPlan& plan, JobDraft draft);

// Reads a draft as a job.
Job job_of(const JobDraft& draft);

}  // namespace headway
