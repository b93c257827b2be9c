// A schedule as a file: the CSV of torch.distributed.pipelining, one row per pipeline rank, a cell
// per action ("2F0", "(0F3;3B1)OVERLAP_F_B", empty: nothing). What PyTorch adds for communication
// ("2SEND_F0", "1UNSHARD") is left out: a Program has its own messages. A file is checked whole:
// every action where its stage lives, every micro-batch through every stage once, and the orders
// played to their end, so that a schedule that skips an action or deadlocks is refused with the
// step at fault.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/schedule.hpp"

namespace headway {

// Rows and cells count from 1, as a spreadsheet shows them; 0: the whole file, the whole row.
struct ScheduleFault {
  int row = 0, cell = 0;
  std::string message;
  bool deadlock = false;
};
std::string to_text(const ScheduleFault& fault);  // "row 2, cell 5: ..."

struct CsvSchedule {
  std::shared_ptr<const Schedule> schedule;  // nothing where there are faults but a deadlock
  ScheduleShape shape;                       // the one shape that it is written for
  std::vector<ScheduleFault> faults;
};

// `name`: what the schedule is called, the file's path.
CsvSchedule parse_schedule_csv(std::string_view text, const std::string& name);

// REQUIRES: schedule.refusal(shape) is empty.
std::string to_csv(const Schedule& schedule, const ScheduleShape& shape);

}  // namespace headway
