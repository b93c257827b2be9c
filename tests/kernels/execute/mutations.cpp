#include "tests/kernels/execute/mutations.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/execute/plan_order.hpp"
#include "kernels/execute/reference_check.hpp"

namespace headway {
namespace {

// The Program without one operation of a template. What came after it no longer does; ports that it
// released are no longer awaited.
Program without(const Program& program, std::size_t list, int removed) {
  Program mutant = program;
  Template& changed = mutant.templates[list];
  const std::vector<PortRef> lost = changed.operations[static_cast<std::size_t>(removed)].releases;
  changed.operations.erase(changed.operations.begin() + removed);
  for (TemplateOperation& operation : changed.operations) {
    std::erase(operation.after, removed);
    for (int& before : operation.after) before -= before > removed ? 1 : 0;
  }
  for (Template& other : mutant.templates) {
    for (TemplateOperation& operation : other.operations) {
      std::erase_if(operation.awaits, [&](const PortRef& port) {
        return std::any_of(lost.begin(), lost.end(),
                           [&](const PortRef& gone) { return gone.family == port.family; });
      });
    }
  }
  return mutant;
}

bool passes(const ExecutionResult& result, const ExecutionResult& reference, DataType type) {
  return check_against(result, reference, type).passed;
}

// Whether the operand adds to what the buffer holds, so that the order of two of them does not
// matter.
bool accumulates(const TemplateOperation& operation, const BufferRef& buffer) {
  const auto holds = [&](const std::vector<BufferRef>& list) {
    return std::find(list.begin(), list.end(), buffer) != list.end();
  };
  if (!holds(operation.reads) || !holds(operation.writes)) return false;
  if (const auto* gemm = std::get_if<Gemm>(&operation.operation)) return gemm->accumulate;
  const auto* kernel = std::get_if<Kernel>(&operation.operation);
  if (kernel == nullptr) return false;
  switch (kernel->kind) {
    case KernelKind::kEmbeddingBackward:
    case KernelKind::kPositionBackward:
    case KernelKind::kRmsNormBackward:
    case KernelKind::kLayerNormBackward:
    case KernelKind::kGeluBackward:
    case KernelKind::kBiasBackward:
    case KernelKind::kBiasDropoutAddBackward:
    case KernelKind::kGradientAccumulate:
    case KernelKind::kLossSum:
    case KernelKind::kSquaredNorm:
      return true;
    default:
      return false;
  }
}

// What makes two plans of the same operations compute the same: the same memory for each operand,
// the same meetings, and the same order of any two operations that touch the same memory (one of
// them writing, and not both adding).
class SameNumbers {
 public:
  SameNumbers(const ExecutionPlan& whole, const PlanOrder& order) : whole_(whole), order_(order) {
    for (std::size_t r = 0; r < whole.ranks.size(); ++r) list_conflicts(static_cast<int>(r));
  }

  bool hold(const ExecutionPlan& mutant, const PlanOrder& order,
            const SwappedOperations& swapped) const {
    if (!order.ends()) return false;
    const auto moved = [&](int rank, int operation) {
      if (rank != swapped.rank) return operation;
      if (operation == swapped.first) return operation + 1;
      return operation == swapped.first + 1 ? operation - 1 : operation;
    };
    return same_memory(mutant, moved) && same_meetings(mutant, moved) &&
           std::all_of(conflicts_.begin(), conflicts_.end(), [&](const Conflict& conflict) {
             return order.before(conflict.rank, moved(conflict.rank, conflict.first),
                                 moved(conflict.rank, conflict.second));
           });
  }

 private:
  struct Conflict {
    int rank = 0, first = 0, second = 0;
  };

  static std::vector<std::vector<int>> touching(const RankPlan& plan) {
    std::vector<std::vector<int>> found(plan.allocations.size());
    for (std::size_t o = 0; o < plan.operations.size(); ++o) {
      for (const auto* list : {&plan.operations[o].reads, &plan.operations[o].writes}) {
        for (const int allocation : *list) {
          auto& operations = found[static_cast<std::size_t>(allocation)];
          if (operations.empty() || operations.back() != static_cast<int>(o)) {
            operations.push_back(static_cast<int>(o));
          }
        }
      }
    }
    return found;
  }

  void list_conflicts(int rank) {
    const RankPlan& plan = whole_.ranks[static_cast<std::size_t>(rank)];
    const auto touched = touching(plan);
    for (std::size_t a = 0; a < touched.size(); ++a) {
      const int allocation = static_cast<int>(a);
      for (const int first : touched[a]) {
        for (const int second : touched[a]) {
          if (first == second || !order_.before(rank, first, second)) continue;
          const Touch one = touch(plan, first, allocation), other = touch(plan, second, allocation);
          if (one == Touch::kReads && other == Touch::kReads) continue;
          if (one == Touch::kAdds && other == Touch::kAdds) continue;
          conflicts_.push_back({rank, first, second});
        }
      }
    }
  }

  enum class Touch : std::uint8_t { kReads, kAdds, kWrites };
  static Touch touch(const RankPlan& plan, int operation, int allocation) {
    const PlannedOperation& planned = plan.operations[static_cast<std::size_t>(operation)];
    const auto found = std::find(planned.writes.begin(), planned.writes.end(), allocation);
    if (found == planned.writes.end()) return Touch::kReads;
    const BufferRef& buffer =
        planned.operation->writes[static_cast<std::size_t>(found - planned.writes.begin())];
    return accumulates(*planned.operation, buffer) ? Touch::kAdds : Touch::kWrites;
  }

  // The buffer of an allocation and who made it, named as in the whole plan.
  template <typename Moved>
  static std::pair<BufferInstance, int> identity(const RankPlan& plan, int allocation, int rank,
                                                 Moved moved) {
    const Allocation& made = plan.allocations[static_cast<std::size_t>(allocation)];
    return {made.buffer, made.maker < 0 ? -1 : moved(rank, made.maker)};
  }

  template <typename Moved>
  bool same_memory(const ExecutionPlan& mutant, Moved moved) const {
    const auto stay = [](int, int operation) { return operation; };
    for (std::size_t r = 0; r < whole_.ranks.size(); ++r) {
      const int rank = static_cast<int>(r);
      for (std::size_t o = 0; o < whole_.ranks[r].operations.size(); ++o) {
        const PlannedOperation& a = whole_.ranks[r].operations[o];
        const PlannedOperation& b =
            mutant.ranks[r].operations[static_cast<std::size_t>(moved(rank, static_cast<int>(o)))];
        for (const auto& [mine, other] :
             {std::pair(&a.reads, &b.reads), std::pair(&a.writes, &b.writes)}) {
          for (std::size_t i = 0; i < mine->size(); ++i) {
            // Moving is its own inverse.
            if (identity(whole_.ranks[r], (*mine)[i], rank, stay) !=
                identity(mutant.ranks[r], (*other)[i], rank, moved)) {
              return false;
            }
          }
        }
      }
    }
    return true;
  }

  template <typename Moved>
  bool same_meetings(const ExecutionPlan& mutant, Moved moved) const {
    const auto all = [](const ExecutionPlan& plan, auto named) {
      std::set<std::vector<std::pair<int, int>>> meetings;
      for (const Meeting& meeting : plan.meetings) {
        std::vector<std::pair<int, int>> members;
        for (const Meeting::Member& member : meeting.members) {
          members.emplace_back(member.rank, named(member.rank, member.operation));
        }
        meetings.insert(std::move(members));
      }
      return meetings;
    };
    return all(whole_, [](int, int operation) { return operation; }) == all(mutant, moved);
  }

  const ExecutionPlan& whole_;
  const PlanOrder& order_;
  std::vector<Conflict> conflicts_;
};

class Mutations {
 public:
  Mutations(const Program& program, const ExecutionResult& reference, const ExecuteOptions& options,
            bool try_harmless)
      : program_(program),
        reference_(reference),
        options_(options),
        try_harmless_(try_harmless),
        plan_(program),
        order_(plan_),
        same_(plan_, order_),
        type_(parameter_type(program)) {
    options_.preference = Preference::kLastIssued;
  }

  MutationCount run() {
    remove_collectives();
    std::set<int> kinds;
    for (int rank = 0; rank < static_cast<int>(plan_.ranks.size()); ++rank) {
      if (kinds.insert(plan_.ranks[static_cast<std::size_t>(rank)].kind).second) {
        swap_neighbours(rank);
      }
    }
    return std::move(count_);
  }

 private:
  // Templates with the same operation under the same name differ only in how they are entered.
  void remove_collectives() {
    std::set<std::string> seen;
    for (std::size_t t = 0; t < program_.templates.size(); ++t) {
      const Template& list = program_.templates[t];
      for (std::size_t o = 0; o < list.operations.size(); ++o) {
        const TemplateOperation& operation = list.operations[o];
        if (!std::holds_alternative<Collective>(operation.operation) || !is_used(t)) continue;
        if (!seen.insert(list.name + "/" + operation.name).second) continue;
        ++count_.removed;
        if (repeats(operation)) {
          ++count_.removed_harmless;
          continue;
        }
        const ExecutionResult result = execute(without(program_, t, static_cast<int>(o)), options_);
        if (result.outcome != Outcome::kFinished || !passes(result, reference_, type_)) {
          ++count_.removed_caught;
        } else {
          count_.missed.push_back("removed " + operation.name + " of " + list.name);
        }
      }
    }
  }

  // Whether each time it gathers what the same collective on another place has gathered before into
  // the same buffer, and nobody has written since to what it reads or writes.
  bool repeats(const TemplateOperation& operation) const {
    return std::all_of(plan_.ranks.begin(), plan_.ranks.end(), [&](const RankPlan& rank) {
      for (std::size_t o = 0; o < rank.operations.size(); ++o) {
        if (rank.operations[o].operation == &operation && !repeats(rank, o)) return false;
      }
      return true;
    });
  }
  bool repeats(const RankPlan& rank, std::size_t at) const {
    const PlannedOperation& again = rank.operations[at];
    const auto buffers = [&](const PlannedOperation& of, const std::vector<BufferRef>& list) {
      std::set<BufferInstance> named;
      for (const BufferRef& reference : list) {
        named.insert(instance_of(program_, reference, of.layer, of.micro_batch));
      }
      return named;
    };
    std::set<BufferInstance> held = buffers(again, again.operation->reads);
    held.merge(buffers(again, again.operation->writes));
    for (std::size_t o = at; o-- > 0;) {
      const PlannedOperation& earlier = rank.operations[o];
      const auto written = buffers(earlier, earlier.operation->writes);
      if (std::none_of(written.begin(), written.end(),
                       [&](const BufferInstance& one) { return held.contains(one); })) {
        continue;
      }
      return earlier.operation->operation == again.operation->operation &&
             earlier.operation->group == again.operation->group && earlier.reads == again.reads &&
             written == buffers(again, again.operation->writes);
    }
    return false;
  }

  bool is_used(std::size_t list) const {
    for (const RankKind& kind : program_.kinds) {
      for (const Issue& issue : kind.order) {
        for (const Step& step : kind.passes[static_cast<std::size_t>(issue.pass)].steps) {
          if (step.template_index == static_cast<int>(list)) return true;
        }
      }
    }
    return false;
  }

  void swap_neighbours(int rank) {
    const auto& operations = plan_.ranks[static_cast<std::size_t>(rank)].operations;
    std::set<std::tuple<const TemplateOperation*, const TemplateOperation*>> seen;
    for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
      if (!seen.insert({operations[i].operation, operations[i + 1].operation}).second) continue;
      ++count_.swapped;
      const SwappedOperations swapped{rank, static_cast<int>(i)};
      const ExecutionPlan mutant(program_, swapped);
      const bool harmless = same_.hold(mutant, PlanOrder(mutant), swapped);
      if (harmless) ++count_.harmless;
      if (harmless && !try_harmless_) continue;
      const bool caught = is_caught(rank, static_cast<int>(i), !harmless);
      if (caught == harmless) {
        count_.missed.push_back(std::string(harmless ? "harmless, yet found: " : "swapped ") +
                                plan_.words(rank, static_cast<int>(i)) + " and " +
                                plan_.words(rank, static_cast<int>(i) + 1));
      }
    }
  }

  bool is_caught(int rank, int first, bool counts) {
    ExecuteOptions options = options_;
    options.swapped = SwappedOperations{rank, first};
    const ExecutionResult result = execute(program_, options);
    if (result.outcome != Outcome::kFinished) {
      count_.deadlocked += counts ? 1 : 0;
      return true;
    }
    if (!passes(result, reference_, type_)) {
      count_.differed += counts ? 1 : 0;
      return true;
    }
    // Right this time; but could it have been otherwise?
    const ExecutionPlan mutant(program_, options.swapped);
    if (!PlanOrder(mutant).unordered().empty()) {
      count_.unordered += counts ? 1 : 0;
      return true;
    }
    return false;
  }

  const Program& program_;
  const ExecutionResult& reference_;
  ExecuteOptions options_;
  bool try_harmless_;
  ExecutionPlan plan_;
  PlanOrder order_;
  SameNumbers same_;
  DataType type_;
  MutationCount count_;
};

}  // namespace

MutationCount count_mutations(const Program& program, const ExecutionResult& reference,
                              const ExecuteOptions& options, bool try_harmless) {
  return Mutations(program, reference, options, try_harmless).run();
}

}  // namespace headway
