// Every operation of a Program on one CPU core, behind one function. Operand orders are those of
// sim/model/operation.hpp; arithmetic is in double where any operand is fp64, else in float (which
// is what a GEMM with 16-bit inputs accumulates in), and results are rounded to their operand's
// type. Collectives are not here: they need all members at once (kernels/cpu/collectives).
//
// Constants that operations do not carry are those of the published models: norm epsilon 1e-5 and
// rotary base 10,000 (Llama 2), GeLU by its tanh form (GPT-2, Megatron-LM).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/operand.hpp"
#include "sim/model/operation.hpp"
#include "sim/program/sequence/token_layout.hpp"

namespace headway {

// Constants of the update rules that a Program does not carry. AdamW: Loshchilov and Hutter 2017;
// the defaults are PyTorch's. Lion: arXiv 2302.06675, section 5. Muon: Jordan et al. 2024.
// Adafactor: arXiv 1804.04235, algorithms 4 to 6.
struct OptimizerConstants {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double lion_beta2 = 0.99;
  double momentum = 0.95;                 // Muon
  double decay_exponent = 0.8;            // Adafactor: the moments decay by 1 - step^-0.8
  double squared_epsilon = 1e-30;         // Adafactor: added to each square
  double largest_root_mean_square = 1.0;  // Adafactor: of an update, which is scaled down to it
};

// Where a rank's part of an operation lies in the whole, and the step's constants. Dropout draws
// the number of (site, global token, global column), so that every split of the work drops the
// same.
struct Placement {
  std::uint64_t seed = 0;
  std::string site;               // names a dropout, layer included
  std::int64_t first_token = 0;   // global index of the micro-batch's first token
  TokenMap map;                   // of the micro-batch's rows: which tokens of their sequences
  std::int64_t vocabulary = 0;    // entries of the data; columns of logits past it are padding
  std::int64_t first_row = 0;     // of the micro-batch's tokens, that the operands begin with
  std::int64_t first_column = 0;  // of the whole width: vocabulary entries, hidden units
  std::int64_t first_head = 0;    // attention
  // Of packed sequences (Program::packs), for attention; nullptr: none are.
  const std::vector<std::vector<std::int64_t>>* packs = nullptr;
  std::int64_t run = 0;  // of Gemm::runs, which this rank has; first_row: the product's
  double dropout = 0;
  double learning_rate = 0;
  double clip_norm = 0;
  // Of an expert's rank: its coordinates among those that share the experts, and those that share
  // each expert, and which of the two come first in rank order.
  std::int64_t expert_rank = 0, expert_slice = 0;
  bool slices_innermost = true;
  // The choices of the tokens, to be repeated; nullptr: the router's own.
  const std::int32_t* choice = nullptr;
  std::int64_t step = 1;  // of the optimizer, from 1
  OptimizerConstants optimizer;
};

// "gemm forward", "rms_norm_forward": what messages call an operation.
std::string title(const Operation& operation);

// Throws std::invalid_argument, naming the operation, where the operands do not fit it, and for
// element types and operations that the CPU does not execute.
void compute(const Operation& operation, std::span<const Operand> reads,
             std::span<const Operand> writes, const Placement& placement);

}  // namespace headway
