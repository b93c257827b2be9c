#include "sim/plan/software.hpp"

#include <map>
#include <utility>

#include "sim/core/json_writer.hpp"
#include "sim/core/shipped_files.hpp"

namespace headway {
namespace {

constexpr std::string_view kFolder = "sim/plan/frameworks/";
// A preset builds on another one at most so deep; a longer chain is a circle.
constexpr int kDeepestExtension = 8;

// The "software" section of a preset: values with their sources, which become the notes.
class SourcedValues {
 public:
  SourcedValues(ObjectReader& section, Software& software)
      : section_(section), software_(software) {}

  template <typename Field, typename Read>
  void take(std::string_view key, Field& field, Read read) {
    const auto node = section_.object(key);
    if (!node) return;
    ObjectReader leaf(*node, section_.problems());
    const std::string source = leaf.require_string("source");
    if (auto value = read(leaf)) field = static_cast<Field>(*value);
    note(key, leaf.has("value") ? leaf.any("value")->text() : "nothing", source);
    leaf.finish();
  }
  void boolean(std::string_view key, bool& field) {
    take(key, field, [](ObjectReader& leaf) { return leaf.boolean("value"); });
  }
  void time(std::string_view key, Time& field) {
    take(key, field, [](ObjectReader& leaf) { return leaf.time("value"); });
  }
  void bytes(std::string_view key, Bytes& field) {
    take(key, field, [](ObjectReader& leaf) { return leaf.bytes("value"); });
  }
  // One of the words of a table {word, value}.
  template <typename Field>
  void word(std::string_view key, Field& field,
            const std::vector<std::pair<std::string, Field>>& table) {
    take(key, field, [&](ObjectReader& leaf) -> std::optional<Field> {
      std::vector<std::string> words;
      words.reserve(table.size());
      for (const auto& [name, value] : table) words.push_back(name);
      const auto chosen = leaf.choice("value", words);
      for (const auto& [name, value] : table) {
        if (chosen == name) return value;
      }
      return std::nullopt;
    });
  }

 private:
  // A value of this preset replaces the note of the preset it builds on.
  void note(std::string_view key, const std::string& value, const std::string& source) {
    const std::string start = std::string(key) + " ";
    std::erase_if(software_.notes,
                  [&](const std::string& text) { return text.starts_with(start); });
    software_.notes.push_back(start + value + ": " + source);
  }

  ObjectReader& section_;
  Software& software_;
};

std::optional<std::vector<double>> factors(ObjectReader& leaf) {
  const auto list = leaf.array("value");
  if (!list) return std::nullopt;
  std::vector<double> values;
  for (const JsonNode& element : list->elements()) {
    if (element.is_number() && element.number() >= 1) {
      values.push_back(element.number());
    } else {
      leaf.problems().add(element.file(), element.pointer(),
                          element.text() + " is no factor; expected a number from 1");
    }
  }
  return values;
}

void read_kernels(SourcedValues& values, Software& software) {
  values.word("attention", software.attention, attention_words());
  values.boolean("fused_kernels", software.fused_kernels);
  values.boolean("fused_norm", software.fused_norm);
  values.boolean("fused_rotary", software.fused_rotary);
  values.boolean("fused_loss", software.fused_loss);
  values.boolean("narrow_loss", software.narrow_loss);
  values.boolean("gathered_logits", software.gathered_logits);
  values.take("dropout", software.dropout,
              [](ObjectReader& leaf) { return leaf.number("value", {.min = 0, .max = 0.99}); });
  values.word<GradientAccumulation>("accumulation", software.accumulation,
                                    {{"fused", GradientAccumulation::kFused},
                                     {"same-type", GradientAccumulation::kSameType},
                                     {"main-gradient", GradientAccumulation::kMainGradient}});
  values.word<DataType>(
      "main_gradient_type", software.main_gradient_type,
      {{"fp32", DataType::kFp32}, {"bf16", DataType::kBf16}, {"fp16", DataType::kFp16}});
  values.boolean("widens_bf16_gradients", software.widens_bf16_gradients);
  values.boolean("master_parameters", software.master_parameters);
  values.boolean("overlap_tp_input_gradient", software.overlap_tp_input_gradient);
  values.take("vocabulary_multiple", software.vocabulary_multiple,
              [](ObjectReader& leaf) { return leaf.integer("value", {.min = 1, .max = 65536}); });
  values.boolean("pad_vocabulary_at_tp1", software.pad_vocabulary_at_tp1);
}

void read_machine_side(SourcedValues& values, Software& software) {
  values.word<Launch>("launch", software.launch,
                      {{"eager", Launch::kEager}, {"cuda_graph", Launch::kCudaGraph}});
  values.boolean("launch_blocking", software.launch_blocking);
  values.time("host_per_kernel_forward", software.host_per_kernel_forward);
  values.time("host_per_kernel_backward", software.host_per_kernel_backward);
  values.time("host_per_micro_batch", software.host_per_micro_batch);
  values.time("host_per_step", software.host_per_step);
  values.take("host_tp_jitter", software.host_tp_jitter, factors);
  values.boolean("batched_p2p", software.batched_p2p);
  values.boolean("p2p_synchronises", software.p2p_synchronises);
  values.boolean("data_synchronises", software.data_synchronises);
  values.boolean("overlap_p2p_needs_interleaving", software.overlap_p2p_needs_interleaving);
  values.take("bucket_elements_per_dp", software.bucket_elements_per_dp, [](ObjectReader& leaf) {
    return leaf.integer("value", {.min = 0, .max = std::int64_t{1} << 40});
  });
  values.bytes("first_bucket", software.first_bucket);
  values.time("p2p_blocking", software.p2p_blocking);
  values.take("dp_network_efficiency", software.dp_network_efficiency, [](ObjectReader& leaf) {
    return leaf.number("value", {.min = 0, .max = 1, .min_excluded = true});
  });
  values.take("sharded_network_efficiency", software.sharded_network_efficiency,
              [](ObjectReader& leaf) {
                return leaf.number("value", {.min = 0, .max = 1, .min_excluded = true});
              });
  values.bytes("context", software.context);
  values.bytes("workspace", software.workspace);
}

// {"dp_kind": {"value": "zero1", "source": ...}} on top of the defaults so far, as {"dp_kind":
// "zero1"}. The keys themselves are judged where a job is read.
std::optional<JsonNode> read_defaults(const std::optional<JsonNode>& section,
                                      const std::optional<JsonNode>& base, Problems& problems) {
  if (!section) return base;
  JsonWriter writer(0);
  writer.begin_object();
  for (const std::string& key : section->keys()) {
    ObjectReader leaf(*section->find(key), problems);
    leaf.require_string("source");
    if (const auto value = leaf.any("value")) writer.key(key).raw(value->text());
    leaf.finish();
  }
  if (base) {
    for (const std::string& key : base->keys()) {
      if (!section->find(key)) writer.key(key).raw(base->find(key)->text());
    }
  }
  writer.end_object();
  return JsonNode::parse_text(writer.text(), section->file());
}

struct Preset {
  Software software;
  std::string summary;
};

Preset read_preset(const std::string& name, int depth) {
  const std::string path = std::string(kFolder) + name + ".json";
  const ShippedFile* file = find_shipped_file(path);
  if (file == nullptr) throw InvalidInput(path, "/extends", "there is no preset \"" + name + "\"");
  if (depth > kDeepestExtension)
    throw InvalidInput(path, "/extends", "the presets extend each other");

  Problems problems;
  ObjectReader reader(JsonNode::parse_text(file->content, path), problems);
  Preset preset;
  if (const auto base = reader.string("extends")) preset = read_preset(*base, depth + 1);
  preset.summary = reader.require_string("summary");
  preset.software.framework = name;
  preset.software.source = reader.require_string("source");
  if (const auto section = reader.object("software")) {
    ObjectReader keys(*section, problems);
    SourcedValues values(keys, preset.software);
    read_kernels(values, preset.software);
    read_machine_side(values, preset.software);
    keys.finish();
  }
  preset.software.plan_defaults =
      read_defaults(reader.object("plan"), preset.software.plan_defaults, problems);
  preset.software.model_defaults =
      read_defaults(reader.object("model"), preset.software.model_defaults, problems);
  reader.finish();
  problems.throw_if_any();
  return preset;
}

// All presets, read once: validating a thousand runs asks a thousand times.
const std::map<std::string, Preset>& presets() {
  static const std::map<std::string, Preset> all_presets = [] {
    std::map<std::string, Preset> all;
    for (const std::string_view name : shipped_names(kFolder)) {
      all.emplace(name, read_preset(std::string(name), 0));
    }
    return all;
  }();
  return all_presets;
}

}  // namespace

std::vector<std::string> names(const GraphScope& scope) {
  std::vector<std::string> words;
  if (scope.layer) words.emplace_back("layer");
  if (scope.attention) words.emplace_back("attn");
  if (scope.mlp) words.emplace_back("mlp");
  if (scope.experts) words.emplace_back("moe");
  if (scope.router) words.emplace_back("moe_router");
  if (scope.preprocess) words.emplace_back("moe_preprocess");
  return words;
}

const std::vector<std::pair<std::string, AttentionKernel>>& attention_words() {
  static const std::vector<std::pair<std::string, AttentionKernel>> words = {
      {"unfused", AttentionKernel::kUnfused},
      {"flash1", AttentionKernel::kFlash1},
      {"flash2", AttentionKernel::kFlash2},
      {"flash3", AttentionKernel::kFlash3},
      {"cudnn", AttentionKernel::kCudnn}};
  return words;
}

std::optional<Software> framework_preset(const std::string& name) {
  const auto found = presets().find(name);
  if (found == presets().end()) return std::nullopt;
  return found->second.software;
}

std::vector<FrameworkName> framework_presets() {
  std::vector<FrameworkName> names;
  for (const auto& [name, preset] : presets()) {
    names.push_back({name, preset.summary, preset.software.source});
  }
  return names;
}

}  // namespace headway
