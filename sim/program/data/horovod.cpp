// Horovod (Sergeev, Del Balso, arXiv 1802.05799): every rank holds everything; a thread of its own
// looks once a cycle which gradients all ranks have, copies those that fit together into the fusion
// buffer, all-reduces it and copies them back (horovod/common/operations.cc, RunLoopOnce). A tensor
// that would overflow the buffer opens the next one; a single tensor is reduced where it stands.
//
// A Program's order is fixed before anything has a time, so a full buffer stands for what a cycle
// finds, and waits half a cycle, as gradients that come at any time do on average; buffers fill
// while others are on their way. How the ranks agree on what is there (a message of some bits
// between hosts) takes no time.
#include "sim/program/data/rule.hpp"

namespace headway::horovod {

std::vector<Bucket> buckets(const ProgramBuilder& builder, ChunkPlace place,
                            const std::vector<FiredTensor>& tensors) {
  const std::int64_t limit = builder.job().plan.bucket_elements.value_or(0);
  std::vector<Bucket> buckets;
  for (const FiredTensor& fired : tensors) {
    const Parameter& parameter = builder.parameter(fired.tensor.parameter);
    const bool fits = !buckets.empty() && buckets.back().expert == parameter.expert &&
                      buckets.back().elements + parameter.elements() <= limit;
    if (!fits) {
      Bucket fresh;
      fresh.name = "rank" + std::to_string(place.rank) + ".chunk" + std::to_string(place.chunk) +
                   ".bucket" + std::to_string(buckets.size());
      fresh.type = builder.shape().storage;
      fresh.expert = parameter.expert;
      buckets.push_back(std::move(fresh));
    }
    Bucket& bucket = buckets.back();
    bucket.tensors.push_back(fired.tensor);
    bucket.step = fired.step;
    bucket.elements += parameter.elements();
  }
  return buckets;
}

int reduce(ProgramBuilder& builder, OperationList& list, const Bucket& bucket) {
  const int stream = builder.stream("dp");
  const std::vector<BufferRef> gradients = gradients_of(builder, bucket.tensors);
  const DataType type = builder.shape().gradient;
  const int cycle =
      list.add("cycle." + bucket.name,
               HostWork{HostKind::kPause, Time{builder.job().plan.cycle_time.picoseconds / 2}}, {},
               {}, Cause::kDataParallel);
  list.last().stream = builder.stream("horovod");
  const auto copy = [&](const char* name, KernelKind kind, std::vector<BufferRef> from,
                        std::vector<BufferRef> to) {
    Kernel kernel;
    kernel.kind = kind;
    kernel.rows = bucket.elements;
    kernel.columns = 1;
    kernel.type = kernel.output = type;
    list.add(name + bucket.name, kernel, std::move(from), std::move(to), Cause::kDataParallel);
    list.last().stream = stream;
  };
  std::vector<BufferRef> reduced = gradients;
  if (bucket.tensors.size() > 1) {
    BufferFamily family;
    family.name = "fusion_buffer." + bucket.name;
    family.category = BufferCategory::kCommunication;
    family.type = type;
    family.rows = bucket.elements;
    family.columns = 1;
    reduced = {{builder.buffer(std::move(family))}};
    copy("fuse.", KernelKind::kSplitSequence, gradients, reduced);
    list.last().after = {cycle};
  }
  Collective collective;
  collective.elements = bucket.elements;
  collective.type = type;
  list.add("reduce." + bucket.name, collective, reduced, reduced, Cause::kDataParallel);
  list.last().group = builder.reducing_group(bucket.expert);
  list.last().stream = stream;
  if (bucket.tensors.size() == 1) {
    list.last().after = {cycle};
  } else {
    copy("split.", KernelKind::kCastParameters, reduced, gradients);
  }
  return cycle;
}

}  // namespace headway::horovod
