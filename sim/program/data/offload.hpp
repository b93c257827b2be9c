// What ZeRO-Offload (Ren et al., arXiv 2101.06840) moves to the host: gradients go down as they are
// complete, the optimizer's state lives and is updated there, parameters come up again; with
// ZeRO-Infinity's offload_param, and FSDP's CPUOffloadPolicy, the shares of the parameters live
// there too and come up for every gather. Each direction has a stream of its own, the host's cores
// are another; buffers there are pinned.
//
// Gradients are added up over micro-batches where the device can: what has come down before comes
// up, is added to, and goes down again (DeepSpeed, stage3.py, partition_grads).
#pragma once

#include <string>
#include <vector>

#include "sim/program/program_builder.hpp"

namespace headway::offload {

// Streams of a rank: copies down, copies up, work of the host's cores.
int down(ProgramBuilder& builder);
int up(ProgramBuilder& builder);
int cores(ProgramBuilder& builder);

// Adds the copy of `elements` of `type`; it waits for the operations `after` of its template.
// Returns its index.
int to_host(ProgramBuilder& builder, OperationList& list, const std::string& name,
            std::vector<BufferRef> from, std::vector<BufferRef> to, std::int64_t elements,
            DataType type, Cause cause, std::vector<int> after = {});
int to_device(ProgramBuilder& builder, OperationList& list, const std::string& name,
              std::vector<BufferRef> from, std::vector<BufferRef> to, std::int64_t elements,
              DataType type, Cause cause, std::vector<int> after = {});

// The operations from `first` on, which follow one another on the compute stream: kernels over more
// than one element are the host's work. What follows on another stream than the operation before it
// waits for that one; the first waits for all that has gone down and all that was computed.
void move_to_cores(ProgramBuilder& builder, OperationList& list, int first);

}  // namespace headway::offload
