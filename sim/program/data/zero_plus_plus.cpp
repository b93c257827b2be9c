#include "sim/program/data/zero_plus_plus.hpp"

#include <algorithm>
#include <utility>

namespace headway {

ZeroPlusPlus::ZeroPlusPlus(ProgramBuilder& builder) : builder_(builder) {
  const ParallelPlan& plan = builder_.job().plan;
  ranks_ = is_reference() ? plan.rounded_ranks : builder_.shape().data_ranks;
  neighbours_ = is_reference() ? plan.rounded_neighbours : plan.shard;
  nodes_ = ranks_ / neighbours_;
}

int ZeroPlusPlus::stream() { return builder_.shape().data_ranks > 1 ? builder_.stream("dp") : 0; }

int ZeroPlusPlus::node_group() {
  return nodes_ > 1 ? builder_.group({kShardAxis}) : builder_.data_group();
}

BufferRef ZeroPlusPlus::buffer(const std::string& what, const RoundedUnit& unit, DataType type,
                               std::int64_t rows, std::int64_t columns, int row_group) {
  BufferFamily family;
  family.name = what + "." + unit.name;
  family.category = BufferCategory::kCommunication;
  family.type = type;
  family.rows = rows;
  family.columns = columns;
  family.per_layer = unit.per_layer;
  family.row_group = row_group;
  return {builder_.named_buffer(family)};
}

void ZeroPlusPlus::kernel(OperationList& list, const std::string& what, const RoundedUnit& unit,
                          KernelKind kind, std::int64_t rows, std::int64_t columns, DataType type,
                          DataType output, std::vector<BufferRef> from, std::vector<BufferRef> to) {
  Kernel made;
  made.kind = kind;
  made.rows = rows;
  made.columns = columns;
  made.type = type;
  made.output = output;
  if (kind == KernelKind::kQuantise) {
    made.scaling = Scaling::kBlock;
    made.block_rows = kRoundingBlock;
    made.block_columns = 1;
  }
  list.add(what + "." + unit.name, made, std::move(from), std::move(to), Cause::kDataParallel);
  list.last().stream = stream();
}

void ZeroPlusPlus::collective(OperationList& list, const std::string& what, const RoundedUnit& unit,
                              CollectiveKind kind, std::int64_t elements, DataType type, int group,
                              std::vector<BufferRef> from, std::vector<BufferRef> to) {
  Collective made;
  made.kind = kind;
  made.elements = elements;
  made.type = type;
  list.add(what + "." + unit.name, made, std::move(from), std::move(to), Cause::kDataParallel);
  list.last().stream = stream();
  list.last().group = group;
}

// -- Parameters
// -------------------------------------------------------------------------------------

void ZeroPlusPlus::gather_forward(OperationList& list, const RoundedUnit& unit) {
  const DataType byte = DataType::kInt8;
  const std::int64_t own = unit.share, all = is_reference() ? own : own * ranks_;
  const BufferRef small = buffer("rounded_share", unit, byte, own, 1);
  BufferRef whole = small;
  kernel(list, "round", unit, KernelKind::kQuantise, own, 1, unit.type, byte, {{unit.parameter}},
         {small});
  if (!is_reference()) {
    whole = buffer("rounded", unit, byte, all, 1);
    collective(list, "gather", unit, CollectiveKind::kAllGather, all, byte, builder_.data_group(),
               {small}, {whole});
  }
  kernel(list, "widen", unit, KernelKind::kCastParameters, all, 1, byte, unit.type, {whole},
         unit.parameters);
  if (is_reference()) return;
  const BufferRef second =
      buffer("second_share", unit, unit.type, all / neighbours_, 1, node_group());
  kernel(list, "keep", unit, KernelKind::kSplitSequence, all / neighbours_, 1, unit.type, unit.type,
         unit.parameters, {second});
}

void ZeroPlusPlus::gather_backward(OperationList& list, const RoundedUnit& unit) {
  const std::int64_t all = unit.share * ranks_;
  const BufferRef second =
      buffer("second_share", unit, unit.type, all / neighbours_, 1, node_group());
  collective(list, "gather", unit, CollectiveKind::kAllGather, all, unit.type, node_group(),
             {second}, unit.parameters);
}

// -- Gradients
// --------------------------------------------------------------------------------------

// The share of the rank `local` of node j stands at j * neighbours + local. What goes to a
// neighbour are the shares of its place in all nodes, one node behind the other.
void ZeroPlusPlus::reduce(OperationList& list, const RoundedUnit& unit, BufferRef target) {
  const DataType wide = builder_.shape().gradient, half = DataType::kInt4;
  const std::int64_t all = unit.share * ranks_, sum = all / neighbours_;
  const CollectiveKind exchange = CollectiveKind::kAllToAll;
  BufferRef sent = buffer("rounded_gradient", unit, half, nodes_, neighbours_ * unit.share);
  kernel(list, "round_gradient", unit, KernelKind::kQuantise, all, 1, wide, half, unit.gradients,
         {sent});
  if (nodes_ > 1) {
    const BufferRef by_place =
        buffer("gradient_by_place", unit, half, neighbours_ * nodes_, unit.share);
    kernel(list, "by_place", unit, KernelKind::kSplitColumns, nodes_, neighbours_ * unit.share,
           half, half, {sent}, {by_place});
    sent = by_place;
  }
  const BufferRef received =
      buffer("gradient_of_node", unit, half, neighbours_ * nodes_, unit.share);
  collective(list, "exchange_in_node", unit, exchange, all, half, node_group(), {sent}, {received});
  const BufferRef of_node =
      nodes_ > 1 ? buffer("node_sum", unit, wide, nodes_, unit.share) : target;
  kernel(list, "sum_in_node", unit, KernelKind::kSumParts, neighbours_ * nodes_, unit.share, half,
         wide, {received}, {of_node});
  if (nodes_ == 1) return;
  const BufferRef again = buffer("rounded_sum", unit, half, nodes_, unit.share);
  const BufferRef from_nodes = buffer("gradient_of_nodes", unit, half, nodes_, unit.share);
  kernel(list, "round_sum", unit, KernelKind::kQuantise, sum, 1, wide, half, {of_node}, {again});
  collective(list, "exchange_nodes", unit, exchange, sum, half, builder_.group({kReplicaAxis}),
             {again}, {from_nodes});
  kernel(list, "sum_nodes", unit, KernelKind::kSumParts, nodes_, unit.share, half, wide,
         {from_nodes}, {target});
}

void ZeroPlusPlus::add_up(OperationList& list, const RoundedUnit& unit, BufferRef target,
                          std::int64_t position) {
  const DataType wide = builder_.shape().gradient, half = DataType::kInt4;
  const std::int64_t all = unit.share;
  const auto add = [&](const std::string& what, BufferRef sum, BufferRef part, bool first) {
    kernel(list, what, unit, first ? KernelKind::kCast : KernelKind::kGradientAccumulate, all, 1,
           first ? half : wide, wide,
           first ? std::vector<BufferRef>{part} : std::vector<BufferRef>{sum, part}, {sum});
  };
  const BufferRef rounded = buffer("rounded_gradient", unit, half, all, 1);
  kernel(list, "round_gradient", unit, KernelKind::kQuantise, all, 1, wide, half, unit.gradients,
         {rounded});
  const std::int64_t local = position % neighbours_, node = position / neighbours_;
  const BufferRef of_node = nodes_ > 1 ? buffer("node_sum", unit, wide, all, 1) : target;
  add("sum_in_node", of_node, rounded, local == 0);
  if (nodes_ == 1 || local + 1 < neighbours_) return;
  const BufferRef again = buffer("rounded_sum", unit, half, all, 1);
  kernel(list, "round_sum", unit, KernelKind::kQuantise, all, 1, wide, half, {of_node}, {again});
  add("sum_nodes", target, again, node == 0);
}

}  // namespace headway
