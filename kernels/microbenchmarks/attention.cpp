// The attention core, forward and backward, causal:
// "attention/PASS/TYPE/BATCH/HEADS/KV_HEADS/SEQUENCE/HEAD_DIM".
#include "kernels/microbenchmarks/operation_benchmark.hpp"
#include "kernels/microbenchmarks/sampling.hpp"

namespace headway {
namespace {

void add_attention(bool backward, std::int64_t batch, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t sequence, std::int64_t head_dim) {
  const DataType type = DataType::kFp32;
  Attention attention;
  attention.backward = backward;
  attention.batch = batch;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.sequence_q = attention.sequence_kv = sequence;
  attention.head_dim = attention.head_dim_v = head_dim;
  attention.type = type;
  OperationBenchmark made;
  made.name = std::string("attention/") + (backward ? "backward" : "forward") + "/fp32";
  for (const std::int64_t size : {batch, heads, kv_heads, sequence, head_dim}) {
    made.name += "/" + std::to_string(size);
  }
  made.operation = attention;
  made.placement.map.length = sequence;
  const std::int64_t tokens = batch * sequence;
  const OperandShape qkv{type, tokens, (heads + 2 * kv_heads) * head_dim};
  const OperandShape context{type, tokens, heads * head_dim}, statistics{type, tokens, heads};
  if (backward) {
    made.reads = {context, qkv, context, statistics};
    made.writes = {qkv};
  } else {
    made.reads = {qkv};
    made.writes = {context, statistics};
  }
  add(std::move(made));
}

void add_all(bool quick) {
  using Sizes = std::vector<std::int64_t>;
  for (const bool backward : {false, true}) {
    for (const std::int64_t sequence : quick ? Sizes{128, 512} : Sizes{64, 128, 256, 512, 1024}) {
      for (const std::int64_t heads : quick ? Sizes{4} : Sizes{2, 4, 8}) {
        for (const std::int64_t head_dim : quick ? Sizes{64} : Sizes{32, 64, 128}) {
          add_attention(backward, 1, heads, heads, sequence, head_dim);
        }
      }
    }
    if (!quick) {
      add_attention(backward, 1, 8, 2, 256, 64);
      add_attention(backward, 4, 4, 4, 128, 64);
    }
  }
}

}  // namespace
}  // namespace headway

int main(int count, char** values) {
  return headway::run_microbenchmarks(count, values, headway::add_all);
}
