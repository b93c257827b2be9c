// Every operation of a Program on a CUDA device, enqueued on a stream: the counterpart of
// kernels/cpu/operators, with the same operands in the same order, the same arithmetic (in double
// where any operand is fp64, else in float, rounded to the operand's type) and the same random
// numbers. Buffers hold their declared types. Two numbers differ from the CPU's: sums are added in
// another order, always the same one.
#pragma once

#include <span>

#include "kernels/cpu/collectives.hpp"
#include "kernels/cpu/operators.hpp"
#include "kernels/cuda/device_stream.hpp"

namespace headway {

// Returns when it is enqueued. Throws std::invalid_argument, naming the operation, where the
// operands do not fit it or the device does not execute it; DeviceFailure where CUDA fails.
void compute_on_device(const Operation& operation, std::span<const Operand> reads,
                       std::span<const Operand> writes, const Placement& placement,
                       DeviceStream& stream);

// A collective among ranks whose buffers all lie on one device, or a message: kernels on `stream`
// that read and write the members' memory. Throws as communicate() does.
void communicate_on_device(const Collective& collective, std::span<const CollectiveMember> members,
                           DeviceStream& stream);

// Why the device does not execute an operation, which the CPU does; empty where it does.
std::string not_on_device(const Operation& operation);

}  // namespace headway
