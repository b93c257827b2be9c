#include "sim/program/sequence/megatron_sequence.hpp"

namespace headway::megatron_sequence {

namespace {

Collective of_tokens(const ProgramBuilder& builder, CollectiveKind kind, std::int64_t columns) {
  Collective collective;
  collective.kind = kind;
  collective.elements = builder.shape().tokens * columns;
  collective.type = builder.shape().storage;
  return collective;
}

}  // namespace

int gather(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef part,
           BufferRef whole, std::int64_t columns) {
  return gather(builder, list, name, part, whole, columns, builder.shape().storage);
}

int gather(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef part,
           BufferRef whole, std::int64_t columns, DataType type) {
  Collective collective = of_tokens(builder, CollectiveKind::kAllGather, columns);
  collective.type = type;
  const int index = list.add(name, collective, {part}, {whole}, Cause::kTensorParallel);
  list.at(index).group = builder.tensor_group();
  return index;
}

int scatter(ProgramBuilder& builder, OperationList& list, const std::string& name, BufferRef whole,
            BufferRef part, std::int64_t columns) {
  const int index = list.add(name, of_tokens(builder, CollectiveKind::kReduceScatter, columns),
                             {whole}, {part}, Cause::kTensorParallel);
  list.at(index).group = builder.tensor_group();
  return index;
}

}  // namespace headway::megatron_sequence
