#include "tests/support/random_plan.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/json_reader.hpp"

namespace headway {

namespace {

class Draw {
 public:
  Draw(std::mt19937& random, const RandomPlanLimits& limits) : random_(random), limits_(limits) {}

  std::string job() {
    const int heads = limits_.executed ? 8 : 32;
    const int hidden = heads * 4 * (limits_.executed ? 1 : 8);
    const bool gated = coin(), experts = one_in(4);
    std::string model = number("hidden_size", hidden) + number("num_hidden_layers", 8) +
                        number("num_attention_heads", heads) +
                        number("num_key_value_heads", coin() ? heads : heads / 2) +
                        number("intermediate_size", hidden * 2) +
                        number("vocab_size", limits_.executed ? 256 : 8192) +
                        (gated || experts ? R"("hidden_act": "silu", "gated_mlp": true)"
                                          : R"("hidden_act": "gelu", "gated_mlp": false)");
    if (experts) {
      model += R"(, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": )" +
               std::to_string(hidden / 2);
    }
    // Powers of two more often than not.
    int ranks = 1;
    while (ranks < limits_.most_ranks && !one_in(limits_.executed ? 4 : 8)) ranks *= 2;
    if (one_in(6)) ranks = std::min(limits_.most_ranks, ranks / 4 * 3 + (ranks < 4 ? 1 : 0));
    if (!limits_.executed && ranks > 8) ranks = ranks / 8 * 8;
    const std::string plan = this->plan(experts);
    return R"({"model": {)" + model + R"(}, "cluster": {"topology": ")" + limits_.topology +
           R"(", "gpus": )" + std::to_string(ranks) + R"(}, "precision": ")" +
           (limits_.executed ? "fp64" : "bf16") + R"(", "sequence_length": )" +
           (limits_.executed ? "16" : "512") + R"(, "global_batch": )" +
           std::to_string(ranks * (limits_.executed ? pick({1, 2, 4}) : pick({2, 4, 8}))) +
           R"(, "software": {"framework": ")" +
           any({"headway", "megatron-core", "deepspeed", "torchtitan", "megatron-2023"}) +
           R"(", "attention": "flash2"}, "plan": {)" + plan + "}}";
  }

 private:
  std::string plan(bool experts) {
    const std::string schedule =
        any({"1f1b", "1f1b", "gpipe", "interleaved", "looped-bfs", "pipedream", "zb-h1", "zb-h2",
             "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v", "chimera"});
    std::string plan =
        number("tp", pick({1, 1, 2, 4})) + number("pp", pick({1, 1, 2, 4})) +
        number("cp", pick({1, 1, 1, 2, 4})) + number("micro_batch", pick({1, 1, 2})) +
        word("schedule", schedule) + truth("sequence_parallel", experts || coin()) +
        truth("overlap_grad_reduce", coin()) + truth("overlap_param_gather", coin()) +
        truth("reshard_after_forward", coin()) +
        word("cp_kind", any({"ring", "ring", "allgather", "ulysses"})) +
        word("cp_balance", any({"zigzag", "contiguous", "striped"})) +
        word("recompute", any({"none", "none", "selective", "full"})) +
        word("optimizer", any({"adamw", "adamw", "sgd"}));
    if (schedule == "interleaved" || schedule == "looped-bfs") plan += number("vpp", 2);
    if (schedule == "1f1b" || schedule == "interleaved") plan += truth("overlap_p2p", coin());
    if (schedule == "1f1b" && one_in(4)) {
      plan += word("vocabulary", any({"redistributed", "parallel-1", "parallel-2", "interlaced"}));
    }
    if (experts) plan += number("ep", pick({1, 2, 4})) + number("etp", pick({1, 2}));
    if (coin()) plan += number("bucket_elements", limits_.executed ? 4000 : 1000000);
    const std::string kind = any({"ddp", "ddp", "horovod", "zero1", "distributed_optimizer",
                                  "zero2", "zero3", "zero++", "fsdp", "hsdp"});
    plan += word("dp_kind", kind);
    if (kind == "hsdp" || (kind == "zero1" && coin())) plan += number("shard", pick({2, 4}));
    if (kind == "horovod") plan += word("cycle_time", "20 us");
    if (kind == "zero3") plan += number("prefetch", pick({0, 5000, 1000000}));
    if (one_in(3)) {
      plan += R"("offload": )" +
              any({R"(["optimizer"])", R"(["optimizer", "parameters"])", R"(["activations"])",
                   R"(["optimizer", "activations"])"}) +
              ", ";
    }
    return plan + R"("order": ")" + any({"tp-cp-ep-dp-pp", "tp-cp-dp-pp", "pp-tp-cp-dp"}) + "\"";
  }

  bool coin() { return random_() % 2 == 0; }
  bool one_in(int n) { return random_() % static_cast<unsigned>(n) == 0; }
  template <typename Item>
  Item one_of(const std::vector<Item>& items) {
    return items[random_() % items.size()];
  }
  int pick(const std::vector<int>& numbers) { return one_of(numbers); }
  std::string any(const std::vector<std::string>& words) { return one_of(words); }
  static std::string number(const std::string& key, int value) {
    return "\"" + key + "\": " + std::to_string(value) + ", ";
  }
  static std::string word(const std::string& key, const std::string& value) {
    return "\"" + key + "\": \"" + value + "\", ";
  }
  static std::string truth(const std::string& key, bool value) {
    return "\"" + key + "\": " + (value ? "true, " : "false, ");
  }

  std::mt19937& random_;
  const RandomPlanLimits& limits_;
};

}  // namespace

RandomPlan random_plan(std::mt19937& random, const RandomPlanLimits& limits) {
  while (true) {
    std::string text = Draw(random, limits).job();
    Problems problems;
    JobReading reading = read_job(JsonNode::parse_text(text, "random plan"), {}, problems);
    if (!problems.empty() || !reading.not_built.empty() || !reading.job) continue;
    return {std::move(text), std::move(*reading.job)};
  }
}

}  // namespace headway
