// A template as text that people can read and compare: a line an operation, with its shape, stream,
// group, operands and dependencies.
#pragma once

#include <string>

#include "sim/program/program.hpp"

namespace headway {

// attention.qkv | gemm forward 8 x 48 x 16 bf16 | attention.norm_output attention.qkv_weight
//     -> attention.qkv_output
// A stream other than "compute" stands in brackets before the operation, `after`, `joins`, `awaits`
// and `releases` behind the operands.
std::string to_text(const Program& program, const Template& list);

const Template& template_named(const Program& program, const std::string& name);

}  // namespace headway
