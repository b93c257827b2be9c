#include "sim/price/flops.hpp"

#include <variant>
#include <vector>

namespace headway {

ExecutedFlops executed_flops(const Program& program, const RankKind& kind) {
  std::vector<ExecutedFlops> of_template(program.templates.size());
  for (std::size_t t = 0; t < program.templates.size(); ++t) {
    for (const TemplateOperation& operation : program.templates[t].operations) {
      const bool attention = std::holds_alternative<Attention>(operation.operation);
      (attention ? of_template[t].attention : of_template[t].gemm) += flops(operation.operation);
    }
  }
  std::vector<double> issues(kind.passes.size(), 0);
  for (const Issue& issue : kind.order) issues[static_cast<std::size_t>(issue.pass)] += 1;
  ExecutedFlops sum;
  for (std::size_t p = 0; p < kind.passes.size(); ++p) {
    for (const Step& step : kind.passes[p].steps) {
      const ExecutedFlops& once = of_template[static_cast<std::size_t>(step.template_index)];
      sum.gemm += once.gemm * issues[p];
      sum.attention += once.attention * issues[p];
    }
  }
  return sum;
}

Flops hardware_flops(const Program& program) {
  const int ranks_per_stage = program.grid.size() / program.grid.axis_size("pp");
  Flops sum;
  for (const RankKind& kind : program.kinds) {
    const double ranks = static_cast<double>(kind.stages.size()) * ranks_per_stage;
    sum += executed_flops(program, kind).total() * ranks;
  }
  return sum;
}

}  // namespace headway
