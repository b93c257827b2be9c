#include "sim/program/pipeline/schedule_csv.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace headway {
namespace {

// Beyond any pipeline, and small enough that no table of a broken file fills the memory.
constexpr int kMostStages = 1 << 16;
constexpr int kMostMicroBatches = 1 << 20;

// An action and the cell it stands in.
struct Cell {
  Action action;
  int number = 0;
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// "2SEND_F0", "1UNSHARD", "0REDUCE_GRAD": what PyTorch's runtime does beside computing.
bool is_communication(std::string_view token) {
  const std::size_t word = token.find_first_not_of("0123456789");
  if (word == std::string_view::npos || word == 0) return false;
  constexpr std::array<std::string_view, 7> kWords = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                      "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view known) { return token.substr(word).starts_with(known); });
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : name_(name) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (trimmed(line).empty() && trimmed(text).empty()) break;
      read_row(line);
    }
  }

  CsvSchedule run() {
    if (faults_.empty()) find_shape();
    if (faults_.empty()) check_complete();
    if (faults_.empty()) play();
    CsvSchedule result;
    result.shape = shape_;
    result.faults = std::move(faults_);
    const bool plays = std::all_of(result.faults.begin(), result.faults.end(),
                                   [](const ScheduleFault& fault) { return fault.deadlock; });
    if (plays) result.schedule = make();
    return result;
  }

 private:
  void fault(std::size_t row, int cell, std::string message, bool deadlock = false) {
    faults_.push_back({static_cast<int>(row) + 1, cell, std::move(message), deadlock});
  }

  void read_row(std::string_view line) {
    const std::size_t row = rows_.size();
    rows_.emplace_back();
    int number = 0;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t end = std::min(line.find(',', at), line.size());
      const std::string_view token = trimmed(line.substr(at, end - at));
      at = end + 1;
      ++number;
      if (token.empty() || is_communication(token)) continue;
      try {
        for (const Action& action : parse_actions(token)) rows_.back().push_back({action, number});
      } catch (const std::invalid_argument& error) {
        fault(row, number, error.what());
      }
    }
  }

  template <typename Visit>
  void each(Visit visit) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (const Cell& cell : rows_[row]) visit(row, cell);
    }
  }

  void find_shape() {
    int stages = 0;
    each([&](std::size_t row, const Cell& cell) {
      if (cell.action.stage >= kMostStages || cell.action.micro_batch >= kMostMicroBatches) {
        fault(row, cell.number, to_text(cell.action) + ": no pipeline is that large");
        return;
      }
      stages = std::max(stages, cell.action.stage + 1);
      shape_.micro_batches = std::max(shape_.micro_batches, cell.action.micro_batch + 1);
    });
    if (!faults_.empty()) return;
    const auto ranks = static_cast<int>(rows_.size());
    shape_.ranks = std::max(1, ranks);
    if (stages == 0) return faults_.push_back({0, 0, "no action in any row", false});
    if (stages % ranks != 0) {
      return faults_.push_back({0, 0,
                                std::to_string(stages) + " stages on " + std::to_string(ranks) +
                                    " rows; expected equally many on each",
                                false});
    }
    shape_.stages_per_rank = stages / ranks;
    place_stages(stages);
  }

  // Stages go round the ranks, or fold back: then messages only cross neighbours.
  void place_stages(int stages) {
    const int p = shape_.ranks;
    const auto folded = [p](int stage) {
      const int within = stage % (2 * p);
      return within < p ? within : 2 * p - 1 - within;
    };
    bool folds = false;
    if (shape_.stages_per_rank == 2 && p > 1) {
      each([&](std::size_t row, const Cell& cell) {
        if (cell.action.stage == p) folds = static_cast<int>(row) == p - 1;
      });
    }
    for (int s = 0; s < stages; ++s) rank_of_.push_back(folds ? folded(s) : s % p);
    each([&](std::size_t row, const Cell& cell) {
      const int expected = rank_of_[static_cast<std::size_t>(cell.action.stage)];
      if (static_cast<int>(row) == expected) return;
      fault(row, cell.number,
            to_text(cell.action) + ": stage " + std::to_string(cell.action.stage) +
                " belongs to row " + std::to_string(expected + 1));
    });
  }

  using Key = std::tuple<int, int>;  // stage, micro-batch

  // Each micro-batch passes each stage forward once, then backward once, whole or in halves.
  void check_complete() {
    std::map<Key, std::set<ActionKind>> seen;
    each([&](std::size_t row, const Cell& cell) {
      const Action& action = cell.action;
      std::set<ActionKind>& done = seen[{action.stage, action.micro_batch}];
      const std::string text = to_text(action);
      const auto has = [&](ActionKind kind) { return done.contains(kind); };
      const auto named = [&](ActionKind kind) {
        return to_text(Action{action.stage, kind, action.micro_batch});
      };
      const bool backward =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
      if (has(action.kind)) {
        fault(row, cell.number, text + " comes a second time");
      } else if (backward && !has(ActionKind::kForward)) {
        fault(row, cell.number, text + " comes before " + named(ActionKind::kForward));
      } else if (action.kind == ActionKind::kBackwardWeight && !has(ActionKind::kBackwardInput)) {
        fault(row, cell.number, text + " comes before " + named(ActionKind::kBackwardInput));
      } else if (backward && (has(ActionKind::kBackward) || has(ActionKind::kBackwardInput))) {
        fault(row, cell.number, text + ": the backward pass is there already");
      }
      done.insert(action.kind);
    });
    for (int stage = 0; stage < static_cast<int>(rank_of_.size()); ++stage) {
      for (int i = 0; i < shape_.micro_batches; ++i) report_missing(stage, i, seen[{stage, i}]);
    }
  }

  void report_missing(int stage, int micro_batch, const std::set<ActionKind>& done) {
    const auto row = static_cast<std::size_t>(rank_of_[static_cast<std::size_t>(stage)]);
    const auto missing = [&](ActionKind kind) {
      fault(row, 0, to_text(Action{stage, kind, micro_batch}) + " is missing");
    };
    if (!done.contains(ActionKind::kForward)) missing(ActionKind::kForward);
    if (done.contains(ActionKind::kBackward)) return;
    if (!done.contains(ActionKind::kBackwardInput)) return missing(ActionKind::kBackward);
    if (!done.contains(ActionKind::kBackwardWeight)) missing(ActionKind::kBackwardWeight);
  }

  // What an action needs besides its own rank's order: a forward or backward pass of a neighbour.
  std::pair<bool, Key> needs(const Action& action) const {
    if (action.kind == ActionKind::kForward) return {true, {action.stage - 1, action.micro_batch}};
    if (action.kind == ActionKind::kBackwardWeight) return {false, {-1, 0}};
    const int next = action.stage + 1;
    return {false, {next < static_cast<int>(rank_of_.size()) ? next : -1, action.micro_batch}};
  }
  bool is_ready(const Action& action) const {
    const auto [forward, key] = needs(action);
    return std::get<0>(key) < 0 || (forward ? forward_ : backward_).contains(key);
  }
  void note(const Action& action) {
    if (action.kind == ActionKind::kBackwardWeight) return;
    (action.kind == ActionKind::kForward ? forward_ : backward_)
        .insert({action.stage, action.micro_batch});
  }

  void play() {
    next_.assign(rows_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        while (next_[row] < rows_[row].size() && step(row)) moved = true;
      }
    }
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (next_[row] < rows_[row].size()) return report_deadlock(row);
    }
  }

  // Runs the row's next action, or both halves of a pair; false where it cannot.
  bool step(std::size_t row) {
    const std::vector<Cell>& cells = rows_[row];
    const std::size_t first = next_[row], end = first + (cells[first].action.overlaps_next ? 2 : 1);
    for (std::size_t k = first; k < end; ++k) {
      if (!is_ready(cells[k].action)) return false;
    }
    for (std::size_t k = first; k < end; ++k) note(cells[k].action);
    next_[row] = end;
    return true;
  }

  // The action of a stuck row that waits, and what for.
  std::pair<Cell, Action> waiting(std::size_t row) const {
    std::size_t at = next_[row];
    if (is_ready(rows_[row][at].action)) ++at;  // the second half of a pair
    const Action& action = rows_[row][at].action;
    const auto [forward, key] = needs(action);
    const auto [stage, micro_batch] = key;
    Action wanted{stage, forward ? ActionKind::kForward : ActionKind::kBackward, micro_batch};
    for (const Cell& cell : rows_[owner(stage)]) {
      if (cell.action.stage == stage && cell.action.micro_batch == micro_batch &&
          cell.action.kind == ActionKind::kBackwardInput && !forward) {
        wanted.kind = ActionKind::kBackwardInput;
      }
    }
    return {rows_[row][at], wanted};
  }
  std::size_t owner(int stage) const {
    return static_cast<std::size_t>(rank_of_[static_cast<std::size_t>(stage)]);
  }

  // Follows who waits for whom until a row comes again: that is the cycle.
  void report_deadlock(std::size_t row) {
    std::vector<std::size_t> path;
    while (std::find(path.begin(), path.end(), row) == path.end()) {
      path.push_back(row);
      row = owner(waiting(row).second.stage);
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), row));
    const auto [first, wanted] = waiting(path.front());
    std::string message = "deadlock: " + to_text(first.action) + " waits for " + to_text(wanted);
    for (std::size_t k = 1; k < path.size(); ++k) {
      const auto [cell, next] = waiting(path[k]);
      message += ", which stands behind " + to_text(cell.action) + " (row " +
                 std::to_string(path[k] + 1) + ", cell " + std::to_string(cell.number) +
                 "), which waits for " + to_text(next);
    }
    fault(path.front(), first.number, message + ", which stands behind " + to_text(first.action),
          true);
  }

  std::shared_ptr<const Schedule> make() const {
    auto schedule = std::make_shared<Schedule>();
    schedule->name = name_;
    schedule->source = "a file";
    std::vector<std::vector<Action>> orders;
    for (const auto& row : rows_) {
      orders.emplace_back();
      for (const Cell& cell : row) {
        orders.back().push_back(cell.action);
        if (cell.action.kind == ActionKind::kBackwardInput || cell.action.overlaps_next)
          schedule->splits_backward = true;
      }
    }
    schedule->fixed_stages_per_rank = shape_.stages_per_rank;
    schedule->asynchronous = true;
    schedule->refusal = [own = shape_](const ScheduleShape& shape) { return refusal(own, shape); };
    schedule->rank_of = [ranks = rank_of_](int stage, const ScheduleShape&) {
      return ranks[static_cast<std::size_t>(stage)];
    };
    schedule->actions = [orders](int rank, const ScheduleShape&) {
      return orders[static_cast<std::size_t>(rank)];
    };
    return schedule;
  }

  static std::string refusal(const ScheduleShape& own, const ScheduleShape& shape) {
    const auto differs = [](int expected, int given, const char* what) {
      return "is written for " + std::to_string(expected) + " " + what + ", not " +
             std::to_string(given);
    };
    if (own.ranks != shape.ranks) return differs(own.ranks, shape.ranks, "pipeline ranks");
    if (own.stages_per_rank != shape.stages_per_rank)
      return differs(own.stages_per_rank, shape.stages_per_rank, "stages per rank");
    if (own.micro_batches != shape.micro_batches)
      return differs(own.micro_batches, shape.micro_batches, "micro-batches");
    return {};
  }

  std::string name_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<ScheduleFault> faults_;
  ScheduleShape shape_;
  std::vector<int> rank_of_;  // by stage
  std::set<Key> forward_, backward_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::string to_text(const ScheduleFault& fault) {
  if (fault.row == 0) return fault.message;
  std::string where = "row " + std::to_string(fault.row);
  if (fault.cell > 0) where += ", cell " + std::to_string(fault.cell);
  return where + ": " + fault.message;
}

CsvSchedule parse_schedule_csv(std::string_view text, const std::string& name) {
  return Reader(text, name).run();
}

std::string to_csv(const Schedule& schedule, const ScheduleShape& shape) {
  std::string text;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::string row = to_text(schedule.actions(rank, shape));
    std::replace(row.begin(), row.end(), ' ', ',');
    text += row + "\n";
  }
  return text;
}

}  // namespace headway
