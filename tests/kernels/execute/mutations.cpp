#include "tests/kernels/execute/mutations.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/execute/reference_check.hpp"
#include "tests/kernels/execute/value_numbers.hpp"

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

class Mutations {
 public:
  Mutations(const Program& program, const ExecutionResult& reference, const ExecuteOptions& options,
            bool try_harmless)
      : program_(program),
        reference_(reference),
        options_(options),
        try_harmless_(try_harmless),
        plan_(program),
        type_(parameter_type(program)) {
    options_.preference = Preference::kLastIssued;
    results_ = results(plan_, PlanOrder(plan_), table_);
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
  void remove_collectives() {
    for (std::size_t t = 0; t < program_.templates.size(); ++t) {
      const Template& list = program_.templates[t];
      for (std::size_t o = 0; o < list.operations.size(); ++o) {
        if (!std::holds_alternative<Collective>(list.operations[o].operation) || !is_used(t)) {
          continue;
        }
        ++count_.removed;
        judge(without(program_, t, static_cast<int>(o)), std::nullopt,
              "removed " + list.operations[o].name + " of " + list.name);
      }
    }
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
      const int first = static_cast<int>(i);
      judge(program_, SwappedOperations{rank, first},
            "swapped " + plan_.words(rank, first) + " and " + plan_.words(rank, first + 1));
    }
  }

  void judge(const Program& mutant, std::optional<SwappedOperations> swapped,
             const std::string& what) {
    const ExecutionPlan plan(mutant, swapped);
    const PlanOrder order(plan);
    const bool ordered = order.ends() && order.unordered().empty();
    const bool harmless = ordered && results(plan, order, table_) == results_;
    if (harmless) {
      ++count_.harmless;
      if (try_harmless_ && !runs_as_before(mutant, swapped)) {
        count_.missed.push_back("harmless by rule, yet found: " + what);
      }
    } else if (!order.ends()) {
      ++count_.deadlocked;
      if (try_harmless_ && runs_as_before(mutant, swapped)) {
        count_.missed.push_back("has a cycle, yet ended: " + what);
      }
    } else if (!runs_as_before(mutant, swapped)) {
      ++count_.differed;
    } else if (!ordered) {
      ++count_.unordered;
    } else {
      count_.missed.push_back(what);
    }
  }

  bool runs_as_before(const Program& mutant, std::optional<SwappedOperations> swapped) const {
    ExecuteOptions options = options_;
    options.swapped = swapped;
    const ExecutionResult result = execute(mutant, options);
    return result.outcome == Outcome::kFinished && check_against(result, reference_, type_).passed;
  }

  const Program& program_;
  const ExecutionResult& reference_;
  ExecuteOptions options_;
  bool try_harmless_;
  ExecutionPlan plan_;
  DataType type_;
  ValueTable table_;
  std::vector<ValueTable::Key> results_;
  MutationCount count_;
};

bool is_real(DataType type) {
  return type == DataType::kFp32 || type == DataType::kTf32 || type == DataType::kBf16 ||
         type == DataType::kFp16;
}

void widen(DataType& type) {
  if (is_real(type)) type = DataType::kFp64;
}

struct Widen {
  void operator()(Gemm& gemm) const {
    widen(gemm.type);
    widen(gemm.output);
  }
  void operator()(GroupedGemm& gemm) const {
    widen(gemm.type);
    widen(gemm.output);
  }
  void operator()(Attention& attention) const { widen(attention.type); }
  void operator()(Routing& routing) const { widen(routing.type); }
  void operator()(Kernel& kernel) const {
    widen(kernel.type);
    widen(kernel.output);
  }
  void operator()(Collective& collective) const { widen(collective.type); }
  void operator()(HostWork&) const {}
};

}  // namespace

Program in_fp64(Program program) {
  for (BufferFamily& family : program.buffers) widen(family.type);
  for (Template& list : program.templates) {
    for (TemplateOperation& operation : list.operations) std::visit(Widen{}, operation.operation);
  }
  return program;
}

MutationCount count_mutations(const Program& program, const ExecutionResult& reference,
                              const ExecuteOptions& options, bool try_harmless) {
  return Mutations(program, reference, options, try_harmless).run();
}

}  // namespace headway
