#include "kernels/execute/operation_placement.hpp"

#include "kernels/execute/executor.hpp"
#include "kernels/execute/rank_memory.hpp"

namespace headway {
namespace {

class Locator {
 public:
  Locator(const Program& program, int rank, const PlannedOperation& planned)
      : program_(program), rank_(rank), operation_(*planned.operation) {}

  const BufferFamily* read(std::size_t i) const { return family(operation_.reads, i); }
  const BufferFamily* write(std::size_t i) const { return family(operation_.writes, i); }

  std::int64_t first_row(const BufferFamily* of) const {
    return of == nullptr ? 0 : index(of->row_group) * of->rows;
  }
  std::int64_t first_column(const BufferFamily* of) const {
    return of == nullptr ? 0 : index(of->column_group) * of->columns;
  }
  // Of a table sharded along its rows.
  std::int64_t first_entry(const BufferFamily* of) const {
    if (of == nullptr || of->parts.empty() || of->parts.front().sharded_dimension != 0) return 0;
    return index(of->parts.front().group) * of->rows;
  }
  std::int64_t index(int group) const {
    if (group < 0) return 0;
    return program_.grid.index_in_group(program_.groups[static_cast<std::size_t>(group)], rank_);
  }

 private:
  const BufferFamily* family(const std::vector<BufferRef>& list, std::size_t i) const {
    return i < list.size() ? &program_.buffers[static_cast<std::size_t>(list[i].family)] : nullptr;
  }

  const Program& program_;
  int rank_;
  const TemplateOperation& operation_;
};

// The table a vocabulary entry is looked up in; its gradient may be kept in a scratch buffer
// without parts, but the forward pass and the loss name theirs.
std::int64_t table_entry(const Program& program, const Locator& locator, const BufferFamily* table,
                         std::int64_t columns) {
  if (table == nullptr) return 0;
  if (!table->parts.empty()) return locator.first_entry(table);
  // A scratch gradient has the shape of the one sharded table of that width.
  for (const BufferFamily& family : program.buffers) {
    if (family.category == BufferCategory::kParameter && family.rows == table->rows &&
        family.columns == columns && family.name + "_micro_batch_gradient" == table->name) {
      return locator.first_entry(&family);
    }
  }
  return 0;
}

// The rows of a rank's run among those of its group.
void place_gemm(const Gemm& gemm, const PlannedOperation& planned, const Locator& locator,
                Placement& placement) {
  if (gemm.runs == 1) return;
  placement.run = locator.index(planned.operation->group);
  placement.first_row = (placement.run - gemm.distance + gemm.runs) % gemm.runs * gemm.m;
}

void place_kernel(const Program& program, const Kernel& kernel, const Locator& locator,
                  Placement& placement) {
  switch (kernel.kind) {
    case KernelKind::kEmbeddingForward:
      placement.first_column = locator.first_entry(locator.read(1));
      break;
    case KernelKind::kEmbeddingBackward:
      placement.first_column = table_entry(program, locator, locator.read(2), kernel.columns);
      break;
    case KernelKind::kCrossEntropyMaximum:
    case KernelKind::kCrossEntropySums:
    case KernelKind::kCrossEntropyBackward:
    case KernelKind::kFusedCrossEntropyForward:
    case KernelKind::kFusedCrossEntropyBackward:
      placement.first_column = locator.first_column(locator.read(0));
      break;
    case KernelKind::kPositionBackward:
      placement.first_row = locator.first_row(locator.read(0));
      break;
    default:
      placement.first_row = locator.first_row(locator.write(0));
      placement.first_column = locator.first_column(locator.write(0));
      break;
  }
}

// Whether the ranks that share an expert stand side by side, rather than those that share the
// experts.
bool slices_innermost(const RankGrid& grid) {
  for (const FoldedAxis& axis : grid.folded()) {
    if (axis.name == "etp") return true;
    if (axis.name == "ep") return false;
  }
  return true;
}

}  // namespace

Placement placement_of(const Program& program, int rank, const PlannedOperation& planned, int step,
                       const ExecuteOptions& options) {
  const Locator locator(program, rank, planned);
  Placement placement;
  placement.seed = options.seed;
  placement.first_token = first_token(program, rank, planned.micro_batch, step);
  placement.map = token_map(program.layout, program.grid, rank, program.sequence_length);
  placement.vocabulary = program.vocab_size;
  placement.dropout = program.dropout;
  placement.learning_rate = options.learning_rate.value_or(program.learning_rate);
  placement.clip_norm = program.clip_norm;
  placement.step = step + 1;
  placement.optimizer = options.optimizer;
  // A dropout is named by the mask that it saves for its backward pass, or is the layer's
  // attention.
  const BufferFamily* saved = locator.write(1);
  if (const auto* attention = std::get_if<Attention>(&planned.operation->operation)) {
    const BufferFamily* queries = locator.read(attention->backward ? 1 : 0);
    const std::int64_t share = locator.index(queries->column_group);
    placement.first_token += locator.first_row(queries);
    placement.first_head = (share * placement.map.parts + placement.map.part) * attention->heads;
    placement.site = "attention." + std::to_string(planned.layer);
    if (attention->document > 0 && !program.packs.empty()) placement.packs = &program.packs;
    return placement;
  }
  if (const auto* gemm = std::get_if<Gemm>(&planned.operation->operation)) {
    place_gemm(*gemm, planned, locator, placement);
    return placement;
  }
  if (const auto* kernel = std::get_if<Kernel>(&planned.operation->operation)) {
    place_kernel(program, *kernel, locator, placement);
  } else if (std::holds_alternative<Routing>(planned.operation->operation)) {
    placement.first_row = locator.first_row(locator.write(0));
    placement.expert_rank = program.grid.coordinate(rank, "ep");
    placement.expert_slice = program.grid.coordinate(rank, "etp");
    placement.slices_innermost = slices_innermost(program.grid);
  }
  if (saved != nullptr) {
    placement.site = saved->name;
    if (saved->per_layer) placement.site += "." + std::to_string(planned.layer);
  }
  return placement;
}

}  // namespace headway
