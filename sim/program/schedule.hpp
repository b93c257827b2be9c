// A pipeline schedule as data: for each pipeline rank the ordered list of its actions, in the text
// form of torch.distributed.pipelining ("2F0": stage 2, forward of micro-batch 0; B: full backward,
// I and W: its input- and weight-gradient halves). Each schedule of the field is one file in
// pipeline/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headway {

enum class ActionKind : std::uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct Action {
  int stage = 0;  // virtual stage, 0 .. stages - 1 in the order a micro-batch passes them
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;
  // The first half of an overlapped pair (DualPipe's F&B): it and the next action are issued
  // together.
  bool overlaps_next = false;
  friend bool operator==(const Action&, const Action&) = default;
};

std::string to_text(const Action& action);  // "2F0"
// "0F0 0F1 0B0 0B1"; an overlapped pair is PyTorch's "(0F3;3B1)OVERLAP_F_B".
std::string to_text(const std::vector<Action>& actions);
// The inverse; the suffix of a pair may be left out. Throws std::invalid_argument naming the token.
std::vector<Action> parse_actions(std::string_view text);

struct ScheduleShape {
  int ranks = 1;            // pipeline ranks p
  int stages_per_rank = 1;  // virtual stages v
  int micro_batches = 1;    // m
  int group = 0;            // interleaved: micro-batches of a chunk in a row; 0: ranks
  friend bool operator==(const ScheduleShape&, const ScheduleShape&) = default;
};

// One schedule of the field: how it is called, which shapes it takes, where a stage lives, and the
// actions of a rank.
struct Schedule {
  std::string name;    // as in a job: "1f1b"
  std::string source;  // paper or code it follows
  // Empty where the shape is legal, else what is wrong and what is expected.
  std::function<std::string(const ScheduleShape&)> refusal;
  std::function<int(int stage, const ScheduleShape&)> rank_of;
  // REQUIRES: refusal(shape) is empty, 0 <= rank < shape.ranks.
  std::function<std::vector<Action>(int rank, const ScheduleShape&)> actions;

  // Virtual stages that every rank holds; 0: as many as the plan says (`vpp`).
  int fixed_stages_per_rank = 1;
  // Copies of the model: with 2 the second half of the stages is the whole model again, passed by
  // the second half of the micro-batches (DualPipe).
  int copies = 1;
  // Whether backward passes come in halves (I and W): what W needs then lives until W.
  bool splits_backward = false;
  // Whether its runtime posts messages as soon as it can and waits for a tensor only where one is
  // needed, whatever the plan says of p2p.
  bool asynchronous = false;
  // Whether full recomputation keeps the input of a stage alone and runs all of it again before its
  // backward pass (GPipe, arXiv 1811.06965, section 2.3; torch's Pipe); others keep every layer's.
  bool rematerialises_stages = false;
  // Whether its runtime can take the optimizer's step before the norm of the whole gradient is
  // known and validate it in the next step (arXiv 2401.10241, section 4).
  bool validates_afterwards = false;
  // Whether a Program can be lowered from it; if not, a job that asks for it is reported as not
  // built.
  bool lowered = true;
};

// The table of all schedules, in the order people see them.
const std::vector<Schedule>& schedules();
const Schedule* find_schedule(std::string_view name);  // nullptr where unknown

}  // namespace headway
