#include "sim/program/program_json.hpp"

#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "sim/core/json_writer.hpp"

namespace headway {

namespace {

constexpr std::string_view kFormat = "headway-program-1";
// Tokens of an order on one line: about as wide as a screen.
constexpr std::size_t kTokensPerLine = 16;
constexpr IntegerRange kCount{.min = 0, .max = std::int64_t{1} << 60};
constexpr IntegerRange kDegree{.min = 1, .max = 1 << 20};
constexpr IntegerRange kInt{.min = -(1 << 20), .max = 1 << 20};

std::string_view name(InitialValue initial) {
  switch (initial) {
    case InitialValue::kUndefined:
      return "undefined";
    case InitialValue::kZero:
      return "zero";
    case InitialValue::kOne:
      return "one";
    case InitialValue::kNormal:
      return "normal";
    case InitialValue::kMirror:
      return "mirror";
    case InitialValue::kTokens:
      return "tokens";
    case InitialValue::kTargets:
      return "targets";
  }
  return "";
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// ---------------------------------------------------------------------------------------------------
// Writing

class Writer {
 public:
  explicit Writer(const Program& program) : program_(program) {}

  std::string run() {
    json_.begin_object();
    json_.field("format", kFormat);
    json_.field("micro_batches", program_.micro_batches);
    json_.field("sequences_per_micro_batch", program_.sequences_per_micro_batch);
    json_.field("sequence_length", program_.sequence_length);
    json_.field("vocab_size", program_.vocab_size);
    json_.field("data_axis", program_.data_axis);
    layout();
    json_.field("dropout", program_.dropout);
    json_.field("learning_rate", program_.learning_rate);
    json_.field("clip_norm", program_.clip_norm);
    unless("steps_overlap", program_.steps_overlap, false);
    unless("updates_every_micro_batch", program_.updates_every_micro_batch, false);
    packs();
    expert_loads();
    grid();
    strings("streams", program_.streams, [](const std::string& text) { return text; });
    groups();
    ports();
    each("buffers", program_.buffers, [&](const BufferFamily& item) { buffer(item); });
    each("templates", program_.templates, [&](const Template& item) { list(item); });
    each("kinds", program_.kinds, [&](const RankKind& item) { kind(item); });
    json_.end_object();
    return json_.text();
  }

 private:
  template <typename Items, typename Write>
  void each(std::string_view key, const Items& items, Write write) {
    json_.key(key).begin_array();
    for (const auto& item : items) write(item);
    json_.end_array();
  }
  template <typename Items, typename TextOf>
  void strings(std::string_view key, const Items& items, TextOf text_of) {
    json_.key(key).begin_array(true);
    for (const auto& item : items) json_.value(text_of(item));
    json_.end_array();
  }
  template <typename Items, typename TextOf>
  void strings_if_any(std::string_view key, const Items& items, TextOf text_of) {
    if (!items.empty()) strings(key, items, text_of);
  }
  template <typename Value>
  void unless(std::string_view key, Value value, Value usual) {
    if (value != usual) json_.field(key, value);
  }

  std::string relative(std::string_view family, int layer) const {
    if (layer == 0) return std::string(family);
    return std::string(family) + (layer > 0 ? "[+" : "[") + std::to_string(layer) + "]";
  }
  std::string relative(const BufferRef& reference) const {
    return relative(program_.buffers[static_cast<std::size_t>(reference.family)].name,
                    reference.layer);
  }
  std::string absolute(const BufferRef& reference) const {
    const BufferFamily& family = program_.buffers[static_cast<std::size_t>(reference.family)];
    if (!family.per_layer && reference.layer == 0) return family.name;
    return family.name + "[" + std::to_string(reference.layer) + "]";
  }
  std::string port(const PortRef& reference) const {
    return relative(program_.ports[static_cast<std::size_t>(reference.family)].name,
                    reference.layer);
  }
  const std::string& stream(int index) const {
    return program_.streams[static_cast<std::size_t>(index)];
  }
  const std::string& group(int index) const {
    return program_.groups[static_cast<std::size_t>(index)].name;
  }

  void packs() {
    if (program_.packs.empty()) return;
    json_.key("packs").begin_array();
    for (const std::vector<std::int64_t>& documents : program_.packs) {
      json_.begin_array(true);
      for (const std::int64_t length : documents) json_.value(length);
      json_.end_array();
    }
    json_.end_array();
  }

  void expert_loads() {
    if (program_.expert_loads.empty()) return;
    json_.key("expert_loads").begin_array();
    for (const std::vector<double>& layer : program_.expert_loads) {
      json_.begin_array(true);
      for (const double load : layer) json_.value(load);
      json_.end_array();
    }
    json_.end_array();
  }

  void layout() {
    const TokenLayout& layout = program_.layout;
    if (layout == TokenLayout{}) return;
    json_.key("layout").begin_object(true).field("order", headway::name(layout.order));
    if (!layout.ring_axis.empty()) json_.field("ring_axis", layout.ring_axis);
    if (!layout.heads_axis.empty()) json_.field("heads_axis", layout.heads_axis);
    json_.end_object();
  }

  void grid() {
    each("grid", program_.grid.axes(), [&](const Axis& axis) {
      json_.begin_object(true).field("axis", axis.name).field("size", axis.size).end_object();
    });
    if (program_.grid.folded().empty()) return;
    each("folded", program_.grid.folded(), [&](const FoldedAxis& axis) {
      json_.begin_object(true).field("axis", axis.name).field("size", axis.size);
      json_.field("stride", axis.stride).end_object();
    });
  }

  void groups() {
    each("groups", program_.groups, [&](const GroupFamily& family) {
      json_.begin_object(true).field("name", family.name);
      strings("axes", family.axes, [](const std::string& text) { return text; });
      strings_if_any("only", family.only, [](int coordinate) { return coordinate; });
      json_.end_object();
    });
  }

  void ports() {
    each("ports", program_.ports, [&](const PortFamily& family) {
      json_.begin_object(true).field("name", family.name);
      unless("per_layer", family.per_layer, false);
      unless("per_micro_batch", family.per_micro_batch, false);
      json_.end_object();
    });
  }

  void buffer(const BufferFamily& family) {
    json_.begin_object(true);
    json_.field("name", family.name);
    json_.field("category", headway::name(family.category));
    json_.field("type", headway::name(family.type));
    json_.field("rows", family.rows).field("columns", family.columns);
    unless("most_rows", family.most_rows, std::int64_t{0});
    unless("blocks", family.blocks, std::int64_t{1});
    if (family.block_group != -1) json_.field("block_group", group(family.block_group));
    unless("per_layer", family.per_layer, false);
    unless("per_micro_batch", family.per_micro_batch, false);
    unless("on_host", family.on_host, false);
    if (family.initial != InitialValue::kUndefined) json_.field("initial", name(family.initial));
    unless("initial_scale", family.initial_scale, 0.0);
    unless("ahead", family.ahead, std::int64_t{0});
    if (family.row_group != -1) json_.field("row_group", group(family.row_group));
    if (family.column_group != -1) json_.field("column_group", group(family.column_group));
    if (!family.parts.empty()) {
      each("parts", family.parts, [&](const TensorPart& part) {
        json_.begin_object().field("name", part.name);
        json_.field("rows", part.rows).field("columns", part.columns);
        unless("sharded_dimension", part.sharded_dimension, -1);
        if (part.group != -1) json_.field("group", group(part.group));
        if (part.cross_group != -1) json_.field("cross_group", group(part.cross_group));
        json_.end_object();
      });
    }
    strings_if_any("mirrors", family.mirrors, [&](const BufferRef& ref) { return absolute(ref); });
    json_.end_object();
  }

  void list(const Template& list) {
    json_.begin_object().field("name", list.name);
    each("operations", list.operations,
         [&](const TemplateOperation& item) { operation(list, item); });
    json_.end_object();
  }

  void operation(const Template& list, const TemplateOperation& item) {
    json_.begin_object(true).field("name", item.name);
    std::visit([&](const auto& kind) { shape(kind); }, item.operation);
    json_.field("cause", headway::name(item.cause));
    json_.field("stream", stream(item.stream));
    if (item.group != -1) json_.field("group", group(item.group));
    unless("peer_offset", item.peer_offset, 0);
    if (!item.peer_axis.empty()) json_.field("peer_axis", item.peer_axis);
    const auto buffer_text = [&](const BufferRef& reference) { return relative(reference); };
    const auto port_text = [&](const PortRef& reference) { return port(reference); };
    strings_if_any("reads", item.reads, buffer_text);
    strings_if_any("writes", item.writes, buffer_text);
    strings_if_any("after", item.after, [&](int index) {
      return list.operations[static_cast<std::size_t>(index)].name;
    });
    strings_if_any("joins", item.joins, [&](int index) { return stream(index); });
    strings_if_any("awaits", item.awaits, port_text);
    strings_if_any("releases", item.releases, port_text);
    unless("host_waits", item.host_waits, false);
    unless("graph", item.graph, -1);
    unless("by_load", item.by_load, false);
    json_.end_object();
  }

  void shape(const Gemm& gemm) {
    json_.key("gemm").begin_object().field("role", headway::name(gemm.role));
    json_.field("m", gemm.m).field("n", gemm.n).field("k", gemm.k);
    unless("batch", gemm.batch, std::int64_t{1});
    json_.field("type", headway::name(gemm.type)).field("output", headway::name(gemm.output));
    unless("bias", gemm.bias, false);
    unless("accumulate", gemm.accumulate, false);
    unless("runs", gemm.runs, std::int64_t{1});
    unless("distance", gemm.distance, std::int64_t{0});
    unless("weights", gemm.weights, std::int64_t{1});
    json_.end_object();
  }
  void shape(const GroupedGemm& gemm) {
    json_.key("grouped_gemm").begin_object().field("role", headway::name(gemm.role));
    json_.field("groups", gemm.groups);
    json_.field("m", gemm.m).field("n", gemm.n).field("k", gemm.k);
    json_.field("type", headway::name(gemm.type)).field("output", headway::name(gemm.output));
    unless("accumulate", gemm.accumulate, false);
    unless("multiple", gemm.multiple, std::int64_t{1});
    json_.end_object();
  }
  void shape(const Routing& routing) {
    const Routing usual;
    json_.key("routing").begin_object().field("kind", headway::name(routing.kind));
    json_.field("tokens", routing.tokens).field("experts", routing.experts);
    json_.field("per_token", routing.per_token).field("columns", routing.columns);
    json_.field("rows", routing.rows).field("type", headway::name(routing.type));
    unless("parts", routing.parts, usual.parts);
    unless("local_experts", routing.local_experts, usual.local_experts);
    if (routing.score != usual.score) json_.field("score", headway::name(routing.score));
    unless("groups", routing.groups, usual.groups);
    unless("groups_per_token", routing.groups_per_token, usual.groups_per_token);
    unless("capacity", routing.capacity, usual.capacity);
    unless("token_groups", routing.token_groups, usual.token_groups);
    unless("by_score", routing.by_score, usual.by_score);
    unless("padded", routing.padded, usual.padded);
    unless("own_experts", routing.own_experts, usual.own_experts);
    unless("multiple", routing.multiple, usual.multiple);
    unless("with_chosen", routing.with_chosen, usual.with_chosen);
    unless("auxiliary", routing.auxiliary, usual.auxiliary);
    json_.end_object();
  }
  void shape(const Attention& attention) {
    json_.key("attention").begin_object().field("kernel", headway::name(attention.kernel));
    unless("backward", attention.backward, false);
    json_.field("batch", attention.batch).field("heads", attention.heads);
    json_.field("kv_heads", attention.kv_heads).field("sequence_q", attention.sequence_q);
    json_.field("sequence_kv", attention.sequence_kv).field("head_dim", attention.head_dim);
    json_.field("head_dim_v", attention.head_dim_v).field("type", headway::name(attention.type));
    unless("causal", attention.causal, true);
    unless("window", attention.window, std::int64_t{0});
    unless("dropout", attention.dropout, false);
    unless("fused", attention.fused, true);
    unless("apart", attention.apart, false);
    unless("parts", attention.parts, std::int64_t{1});
    unless("ring", attention.ring, std::int64_t{1});
    unless("distance", attention.distance, std::int64_t{0});
    unless("gathered", attention.gathered, false);
    if (attention.order != TokenOrder::kContiguous) {
      json_.field("order", headway::name(attention.order));
    }
    unless("document", attention.document, std::int64_t{0});
    json_.end_object();
  }
  void shape(const Kernel& kernel) {
    json_.key("kernel").begin_object().field("kind", headway::name(kernel.kind));
    json_.field("rows", kernel.rows).field("columns", kernel.columns);
    json_.field("type", headway::name(kernel.type)).field("output", headway::name(kernel.output));
    unless("fused", kernel.fused, true);
    unless("bias", kernel.bias, false);
    unless("scale", kernel.scale, 1.0);
    unless("other_scale", kernel.other_scale, 1.0);
    unless("head_dim", kernel.head_dim, std::int64_t{0});
    if (kernel.scaling != Scaling::kNone) json_.field("scaling", headway::name(kernel.scaling));
    unless("block_rows", kernel.block_rows, std::int64_t{0});
    unless("block_columns", kernel.block_columns, std::int64_t{0});
    unless("transposed", kernel.transposed, false);
    unless("plain_dim", kernel.plain_dim, std::int64_t{0});
    unless("value_dim", kernel.value_dim, std::int64_t{0});
    unless("on_host", kernel.on_host, false);
    json_.end_object();
  }
  void shape(const Collective& collective) {
    json_.key("collective").begin_object().field("kind", headway::name(collective.kind));
    json_.field("elements", collective.elements).field("type", headway::name(collective.type));
    if (collective.reduce != ReduceOperator::kSum) {
      json_.field("reduce", headway::name(collective.reduce));
    }
    unless("root", collective.root, 0);
    if (collective.shares != Shares::kEqual) {
      json_.field("shares", headway::name(collective.shares));
    }
    unless("network_elements", collective.network_elements, std::int64_t{-1});
    unless("multiprocessors", collective.multiprocessors, std::int64_t{0});
    json_.end_object();
  }
  void shape(const HostWork& work) {
    json_.key("host").begin_object().field("kind", headway::name(work.kind));
    unless("time_ps", work.time.picoseconds, std::int64_t{0});
    json_.end_object();
  }

  void kind(const RankKind& kind) {
    json_.begin_object().field("name", kind.name);
    strings("stages", kind.stages, [](int stage) { return stage; });
    strings("persistent", kind.persistent, [&](const BufferRef& ref) { return absolute(ref); });
    each("passes", kind.passes, [&](const Pass& pass) {
      json_.begin_object(true).field("name", pass.name);
      unless("stage", pass.stage, -1);
      strings("steps", pass.steps, [&](const Step& step) {
        return program_.templates[static_cast<std::size_t>(step.template_index)].name + "[" +
               std::to_string(step.layer) + "]";
      });
      json_.end_object();
    });
    json_.key("order").begin_array();
    std::string line;
    for (std::size_t i = 0; i < kind.order.size(); ++i) {
      if (!line.empty()) line += ' ';
      line += kind.passes[static_cast<std::size_t>(kind.order[i].pass)].name;
      if (kind.order[i].micro_batch >= 0) line += std::to_string(kind.order[i].micro_batch);
      if ((i + 1) % kTokensPerLine == 0 || i + 1 == kind.order.size()) {
        json_.value(line);
        line.clear();
      }
    }
    json_.end_array();
    json_.end_object();
  }

  const Program& program_;
  JsonWriter json_;
};

// ---------------------------------------------------------------------------------------------------
// Reading

// The names of one list, for references to it.
class NameTable {
 public:
  explicit NameTable(const char* what) : what_(what) {}
  void add(const std::string& text) {
    numbers_.emplace(text, static_cast<int>(names_.size()));
    names_.push_back(text);
  }
  std::optional<int> find(const std::string& text) const {
    const auto found = numbers_.find(text);
    if (found == numbers_.end()) return std::nullopt;
    return found->second;
  }
  std::string unknown(const std::string& text) const {
    std::string message = quoted(text) + " is no " + what_ + " of this program";
    const std::string near = nearest(text, names_);
    if (!near.empty()) message += "; did you mean " + quoted(near) + "?";
    return message;
  }

 private:
  const char* what_;
  std::unordered_map<std::string, int> numbers_;  // only looked up, never walked
  std::vector<std::string> names_;
};

// The whole of `text` as an integer, a leading plus allowed.
std::optional<int> whole_integer(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Every value of an enumeration up to its last, by name: what a message says is allowed.
template <typename Enum>
std::vector<std::string> names_up_to(Enum last) {
  std::vector<std::string> result;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    result.emplace_back(name(static_cast<Enum>(i)));
  }
  return result;
}

class Reader {
 public:
  explicit Reader(const JsonNode& node) : node_(node) {}

  Program run() {
    ObjectReader top(node_, problems_);
    const std::string format = top.require_string("format");
    if (!format.empty() && format != kFormat) {
      top.problem("format", quoted(format) + " is not known; expected " + quoted(kFormat));
    }
    program_.micro_batches = top.require_integer("micro_batches", kDegree);
    program_.sequences_per_micro_batch = top.require_integer("sequences_per_micro_batch", kDegree);
    program_.sequence_length = top.require_integer("sequence_length", kCount);
    program_.vocab_size = top.require_integer("vocab_size", kCount);
    program_.data_axis = top.require_string("data_axis");
    if (const auto layout = top.object("layout")) {
      ObjectReader object(*layout, problems_);
      program_.layout.order =
          choice<TokenOrder>(object, "order", TokenOrder::kStriped, TokenOrder::kContiguous);
      program_.layout.ring_axis = object.string("ring_axis").value_or("");
      program_.layout.heads_axis = object.string("heads_axis").value_or("");
      object.finish();
    }
    program_.dropout = top.require_number("dropout", {.min = 0, .max = 1});
    program_.learning_rate = top.require_number("learning_rate", {.min = 0});
    program_.clip_norm = top.require_number("clip_norm", {.min = 0});
    program_.steps_overlap = top.boolean("steps_overlap").value_or(false);
    program_.updates_every_micro_batch = top.boolean("updates_every_micro_batch").value_or(false);
    read_packs(top);
    read_expert_loads(top);
    grid(top);
    program_.streams = required(top, "streams", &ObjectReader::strings);
    for (const std::string& stream : program_.streams) streams_.add(stream);
    each(top, "groups", [&](ObjectReader& item) { group(item); });
    each(top, "ports", [&](ObjectReader& item) { port(item); });
    buffers(top);
    each(top, "templates", [&](ObjectReader& item) { list(item); });
    each(top, "kinds", [&](ObjectReader& item) { kind(item); });
    top.finish();
    problems_.throw_if_any();
    check(program_, node_.file());
    return std::move(program_);
  }

 private:
  template <typename Value>
  Value required(ObjectReader& object, const char* key,
                 std::optional<Value> (ObjectReader::*read)(std::string_view)) {
    if (!object.has(key)) object.problem(key, "missing");
    return (object.*read)(key).value_or(Value{});
  }
  template <typename Read>
  void each(ObjectReader& object, const char* key, Read read) {
    if (!object.has(key)) object.problem(key, "missing");
    each_if_any(object, key, read);
  }
  template <typename Read>
  void each_if_any(ObjectReader& object, const char* key, Read read) {
    const auto array = object.array(key);
    if (!array) return;
    for (const JsonNode& element : array->elements()) {
      ObjectReader item(element, problems_);
      read(item);
      item.finish();
    }
  }
  int integer(ObjectReader& object, const char* key, int usual) {
    return static_cast<int>(object.integer(key, kInt).value_or(usual));
  }
  // A value of an enumeration; `usual` where the key is absent, a Problem too where there is no
  // usual.
  template <typename Enum>
  Enum choice(ObjectReader& object, const char* key, Enum last,
              std::optional<Enum> usual = std::nullopt) {
    if (!object.has(key)) {
      if (!usual) object.problem(key, "missing");
      return usual.value_or(Enum{});
    }
    const std::vector<std::string> allowed = names_up_to(last);
    const auto word = object.choice(key, allowed);
    if (!word) return usual.value_or(Enum{});
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (allowed[i] == *word) return static_cast<Enum>(i);
    }
    return Enum{};
  }
  DataType type(ObjectReader& object, const char* key) {
    return choice(object, key, DataType::kBool);
  }

  // -- references
  // ----------------------------------------------------------------------------------

  int named(ObjectReader& object, const char* key, const NameTable& table) {
    const auto text = object.string(key);
    if (!text) return -1;
    const auto index = table.find(*text);
    if (!index) object.problem(key, table.unknown(*text));
    return index.value_or(-1);
  }
  // Calls take(text, node) for every string of an array.
  template <typename Take>
  void strings(ObjectReader& object, const char* key, Take take) {
    const auto array = object.array(key);
    if (!array) return;
    for (const JsonNode& element : array->elements()) {
      if (element.is_string()) {
        take(element.string(), element);
      } else {
        problems_.add(element.file(), element.pointer(), element.text() + " is not a string");
      }
    }
  }
  void fault(const JsonNode& at, std::string message) {
    problems_.add(at.file(), at.pointer(), std::move(message));
  }
  std::vector<int> numbers(ObjectReader& object, const char* key, const NameTable& table) {
    std::vector<int> result;
    strings(object, key, [&](const std::string& text, const JsonNode& at) {
      const auto index = table.find(text);
      if (!index) fault(at, table.unknown(text));
      result.push_back(index.value_or(0));
    });
    return result;
  }
  // "name" or "name[layer]".
  template <typename Reference>
  std::optional<Reference> reference(const std::string& text, const JsonNode& at,
                                     const NameTable& table) {
    const auto bracket = text.back() == ']' ? text.rfind('[') : std::string::npos;
    const std::string family = text.substr(0, bracket);
    std::optional<int> layer = 0;
    if (bracket != std::string::npos) {
      layer = whole_integer(std::string_view(text).substr(bracket + 1, text.size() - bracket - 2));
    }
    if (!layer) fault(at, quoted(text) + " has no integer between its brackets");
    const auto index = table.find(family);
    if (!index) fault(at, table.unknown(family));
    if (!layer || !index) return std::nullopt;
    return Reference{*index, *layer};
  }
  template <typename Reference>
  std::vector<Reference> references(ObjectReader& object, const char* key, const NameTable& table) {
    std::vector<Reference> result;
    strings(object, key, [&](const std::string& text, const JsonNode& at) {
      if (text.empty()) {
        fault(at, "\"\" names nothing");
      } else if (const auto found = reference<Reference>(text, at, table)) {
        result.push_back(*found);
      }
    });
    return result;
  }

  // -- parts
  // ---------------------------------------------------------------------------------------

  void read_packs(ObjectReader& top) {
    const auto rows = top.array("packs");
    if (!rows) return;
    for (const JsonNode& row : rows->elements()) {
      std::vector<std::int64_t>& documents = program_.packs.emplace_back();
      if (!row.is_array()) {
        fault(row, row.text() + " is not a list of lengths");
        continue;
      }
      for (const JsonNode& length : row.elements()) {
        const auto tokens = length.is_number() ? whole_integer(length.text()) : std::nullopt;
        if (!tokens || *tokens < 1) fault(length, length.text() + " is no length of a document");
        documents.push_back(tokens.value_or(1));
      }
    }
  }

  void read_expert_loads(ObjectReader& top) {
    const auto rows = top.array("expert_loads");
    if (!rows) return;
    for (const JsonNode& row : rows->elements()) {
      std::vector<double>& loads = program_.expert_loads.emplace_back();
      if (!row.is_array()) {
        fault(row, row.text() + " is not a list of loads");
        continue;
      }
      for (const JsonNode& load : row.elements()) {
        if (!load.is_number() || load.number() < 0) fault(load, load.text() + " is no load");
        loads.push_back(load.is_number() ? load.number() : 0);
      }
    }
  }

  void grid(ObjectReader& top) {
    std::vector<Axis> axes;
    std::int64_t ranks = 1;
    each(top, "grid", [&](ObjectReader& item) {
      Axis axis;
      axis.name = item.require_string("axis");
      axis.size = static_cast<int>(item.require_integer("size", kDegree));
      axis.size = std::max(axis.size, 1);
      ranks *= axis.size;
      if (ranks > kDegree.max) {
        item.problem("size", "the grid has more than " + std::to_string(kDegree.max) + " ranks");
        ranks = 1;
        axis.size = 1;
      }
      axes.push_back(std::move(axis));
    });
    std::vector<FoldedAxis> folded;
    each_if_any(top, "folded", [&](ObjectReader& item) {
      FoldedAxis axis;
      axis.name = item.require_string("axis");
      axis.size =
          static_cast<int>(std::max<std::int64_t>(item.require_integer("size", kDegree), 1));
      axis.stride =
          static_cast<int>(std::max<std::int64_t>(item.require_integer("stride", kDegree), 1));
      if (ranks % (static_cast<std::int64_t>(axis.size) * axis.stride) != 0) {
        item.problem("size",
                     "size times stride does not divide the " + std::to_string(ranks) + " ranks");
        return;
      }
      folded.push_back(std::move(axis));
    });
    program_.grid = RankGrid(std::move(axes), std::move(folded));
  }

  void group(ObjectReader& item) {
    GroupFamily family;
    family.name = item.require_string("name");
    family.axes = required(item, "axes", &ObjectReader::strings);
    for (const std::int64_t coordinate :
         item.integers("only", kInt).value_or(std::vector<std::int64_t>{})) {
      family.only.push_back(static_cast<int>(coordinate));
    }
    groups_.add(family.name);
    program_.groups.push_back(std::move(family));
  }

  void port(ObjectReader& item) {
    PortFamily family;
    family.name = item.require_string("name");
    family.per_layer = item.boolean("per_layer").value_or(false);
    family.per_micro_batch = item.boolean("per_micro_batch").value_or(false);
    ports_.add(family.name);
    program_.ports.push_back(std::move(family));
  }

  // Names first: optimizer state mirrors buffers that may stand after it.
  void buffers(ObjectReader& top) {
    const auto array = top.array("buffers");
    if (array) {
      for (const JsonNode& element : array->elements()) {
        const auto found = element.is_object() ? element.find("name") : std::nullopt;
        buffers_.add(found && found->is_string() ? found->string() : "");
      }
    }
    each(top, "buffers", [&](ObjectReader& item) { buffer(item); });
  }

  void buffer(ObjectReader& item) {
    BufferFamily family;
    family.name = item.require_string("name");
    family.category = choice(item, "category", BufferCategory::kInput);
    family.type = type(item, "type");
    family.rows = item.require_integer("rows", kCount);
    family.columns = item.require_integer("columns", kCount);
    if (family.columns > 0 && family.rows > kCount.max / family.columns) {
      item.problem("rows", "rows times columns is out of range");
    }
    family.most_rows = item.integer("most_rows", kCount).value_or(0);
    family.blocks = item.integer("blocks", {.min = 1, .max = kDegree.max}).value_or(1);
    family.block_group = named(item, "block_group", groups_);
    family.per_layer = item.boolean("per_layer").value_or(false);
    family.per_micro_batch = item.boolean("per_micro_batch").value_or(false);
    family.on_host = item.boolean("on_host").value_or(false);
    family.initial =
        choice<InitialValue>(item, "initial", InitialValue::kTargets, InitialValue::kUndefined);
    family.initial_scale = item.number("initial_scale").value_or(0);
    family.ahead = item.integer("ahead", kCount).value_or(0);
    family.row_group = named(item, "row_group", groups_);
    family.column_group = named(item, "column_group", groups_);
    each_if_any(item, "parts", [&](ObjectReader& entry) {
      TensorPart part;
      part.name = entry.require_string("name");
      part.rows = entry.require_integer("rows", kCount);
      part.columns = entry.require_integer("columns", kCount);
      part.sharded_dimension = integer(entry, "sharded_dimension", -1);
      part.group = named(entry, "group", groups_);
      part.cross_group = named(entry, "cross_group", groups_);
      family.parts.push_back(std::move(part));
    });
    family.mirrors = references<BufferRef>(item, "mirrors", buffers_);
    program_.buffers.push_back(std::move(family));
  }

  void list(ObjectReader& item) {
    Template list;
    list.name = item.require_string("name");
    NameTable names("earlier operation");
    each(item, "operations", [&](ObjectReader& entry) {
      list.operations.push_back(operation(entry, names));
      names.add(list.operations.back().name);
    });
    templates_.add(list.name);
    program_.templates.push_back(std::move(list));
  }

  TemplateOperation operation(ObjectReader& item, const NameTable& earlier) {
    TemplateOperation result;
    result.name = item.require_string("name");
    shape(item, result.operation);
    result.cause = choice(item, "cause", Cause::kOther);
    if (!item.has("stream")) item.problem("stream", "missing");
    result.stream = named(item, "stream", streams_);
    result.group = named(item, "group", groups_);
    result.peer_offset = integer(item, "peer_offset", 0);
    result.peer_axis = item.string("peer_axis").value_or("");
    result.reads = references<BufferRef>(item, "reads", buffers_);
    result.writes = references<BufferRef>(item, "writes", buffers_);
    result.after = numbers(item, "after", earlier);
    result.joins = numbers(item, "joins", streams_);
    result.awaits = references<PortRef>(item, "awaits", ports_);
    result.releases = references<PortRef>(item, "releases", ports_);
    result.host_waits = item.boolean("host_waits").value_or(false);
    result.graph = integer(item, "graph", -1);
    result.by_load = item.boolean("by_load").value_or(false);
    return result;
  }

  void shape(ObjectReader& item, Operation& operation) {
    int found = 0;
    const auto read = [&](const char* key, auto fill) {
      const auto node = item.object(key);
      if (!node) return;
      ++found;
      ObjectReader object(*node, problems_);
      operation = fill(object);
      object.finish();
    };
    read("gemm", [&](ObjectReader& object) { return gemm(object); });
    read("grouped_gemm", [&](ObjectReader& object) { return grouped_gemm(object); });
    read("attention", [&](ObjectReader& object) { return attention(object); });
    read("kernel", [&](ObjectReader& object) { return kernel(object); });
    read("routing", [&](ObjectReader& object) { return routing(object); });
    read("collective", [&](ObjectReader& object) { return collective(object); });
    read("host", [&](ObjectReader& object) {
      return HostWork{choice(object, "kind", HostKind::kPause),
                      Time{object.integer("time_ps", kCount).value_or(0)}};
    });
    if (found != 1) {
      item.problem("",
                   "an operation has one of \"gemm\", \"grouped_gemm\", \"attention\", \"kernel\", "
                   "\"routing\", \"collective\" and \"host\"; here are " +
                       std::to_string(found));
    }
  }

  Gemm gemm(ObjectReader& object) {
    Gemm gemm;
    gemm.role = choice(object, "role", GemmRole::kWeightGradient);
    gemm.m = object.require_integer("m", kCount);
    gemm.n = object.require_integer("n", kCount);
    gemm.k = object.require_integer("k", kCount);
    gemm.batch = object.integer("batch", {.min = 1, .max = kCount.max}).value_or(1);
    gemm.type = type(object, "type");
    gemm.output = type(object, "output");
    gemm.bias = object.boolean("bias").value_or(false);
    gemm.accumulate = object.boolean("accumulate").value_or(false);
    gemm.runs = object.integer("runs", kDegree).value_or(1);
    gemm.distance = object.integer("distance", kDegree).value_or(0);
    gemm.weights = object.integer("weights", kDegree).value_or(1);
    return gemm;
  }
  GroupedGemm grouped_gemm(ObjectReader& object) {
    GroupedGemm gemm;
    gemm.role = choice(object, "role", GemmRole::kWeightGradient);
    gemm.groups = object.require_integer("groups", {.min = 1, .max = kDegree.max});
    gemm.m = object.require_integer("m", kCount);
    gemm.n = object.require_integer("n", kCount);
    gemm.k = object.require_integer("k", kCount);
    gemm.type = type(object, "type");
    gemm.output = type(object, "output");
    gemm.accumulate = object.boolean("accumulate").value_or(false);
    gemm.multiple = object.integer("multiple", kDegree).value_or(1);
    return gemm;
  }
  Routing routing(ObjectReader& object) {
    Routing routing;
    const auto count = [&](const char* key, std::int64_t usual) {
      return object.integer(key, kCount).value_or(usual);
    };
    routing.kind = choice(object, "kind", RoutingKind::kCombineBackward);
    routing.tokens = object.require_integer("tokens", kCount);
    routing.experts = object.require_integer("experts", kCount);
    routing.per_token = object.require_integer("per_token", kCount);
    routing.columns = object.require_integer("columns", kCount);
    routing.rows = object.require_integer("rows", kCount);
    routing.type = type(object, "type");
    routing.parts = count("parts", routing.parts);
    routing.local_experts = count("local_experts", routing.local_experts);
    routing.score = choice<RouterScore>(object, "score", RouterScore::kSigmoid, routing.score);
    routing.groups = count("groups", routing.groups);
    routing.groups_per_token = count("groups_per_token", routing.groups_per_token);
    routing.capacity = count("capacity", routing.capacity);
    routing.token_groups = count("token_groups", routing.token_groups);
    routing.by_score = object.boolean("by_score").value_or(routing.by_score);
    routing.padded = object.boolean("padded").value_or(routing.padded);
    routing.own_experts = object.boolean("own_experts").value_or(routing.own_experts);
    routing.multiple = object.integer("multiple", kDegree).value_or(routing.multiple);
    routing.with_chosen = object.boolean("with_chosen").value_or(routing.with_chosen);
    routing.auxiliary = object.number("auxiliary").value_or(routing.auxiliary);
    return routing;
  }
  Attention attention(ObjectReader& object) {
    Attention attention;
    attention.kernel = choice(object, "kernel", AttentionKernel::kCudnn);
    attention.backward = object.boolean("backward").value_or(false);
    attention.batch = object.require_integer("batch", kCount);
    attention.heads = object.require_integer("heads", kCount);
    attention.kv_heads = object.require_integer("kv_heads", kCount);
    attention.sequence_q = object.require_integer("sequence_q", kCount);
    attention.sequence_kv = object.require_integer("sequence_kv", kCount);
    attention.head_dim = object.require_integer("head_dim", kCount);
    attention.head_dim_v = object.require_integer("head_dim_v", kCount);
    attention.type = type(object, "type");
    attention.causal = object.boolean("causal").value_or(true);
    attention.window = object.integer("window", kCount).value_or(0);
    attention.dropout = object.boolean("dropout").value_or(false);
    attention.fused = object.boolean("fused").value_or(true);
    attention.apart = object.boolean("apart").value_or(false);
    attention.parts = object.integer("parts", kDegree).value_or(1);
    attention.ring = object.integer("ring", kDegree).value_or(1);
    attention.distance = object.integer("distance", kDegree).value_or(0);
    attention.gathered = object.boolean("gathered").value_or(false);
    attention.order =
        choice<TokenOrder>(object, "order", TokenOrder::kStriped, TokenOrder::kContiguous);
    attention.document = object.integer("document", kCount).value_or(0);
    return attention;
  }
  Kernel kernel(ObjectReader& object) {
    Kernel kernel;
    kernel.kind = choice(object, "kind", KernelKind::kCastParameters);
    kernel.rows = object.require_integer("rows", kCount);
    kernel.columns = object.require_integer("columns", kCount);
    kernel.type = type(object, "type");
    kernel.output = type(object, "output");
    kernel.fused = object.boolean("fused").value_or(true);
    kernel.bias = object.boolean("bias").value_or(false);
    kernel.scale = object.number("scale").value_or(1.0);
    kernel.other_scale = object.number("other_scale").value_or(1.0);
    kernel.head_dim = object.integer("head_dim", kCount).value_or(0);
    kernel.scaling = choice<Scaling>(object, "scaling", Scaling::kBlock, Scaling::kNone);
    kernel.block_rows = object.integer("block_rows", kCount).value_or(0);
    kernel.block_columns = object.integer("block_columns", kCount).value_or(0);
    kernel.transposed = object.boolean("transposed").value_or(false);
    kernel.plain_dim = object.integer("plain_dim", kCount).value_or(0);
    kernel.value_dim = object.integer("value_dim", kCount).value_or(0);
    kernel.on_host = object.boolean("on_host").value_or(false);
    return kernel;
  }
  Collective collective(ObjectReader& object) {
    Collective collective;
    collective.kind = choice(object, "kind", CollectiveKind::kReceive);
    collective.elements = object.require_integer("elements", kCount);
    collective.type = type(object, "type");
    collective.reduce =
        choice<ReduceOperator>(object, "reduce", ReduceOperator::kAverage, ReduceOperator::kSum);
    collective.root = integer(object, "root", 0);
    collective.shares = choice<Shares>(object, "shares", Shares::kBackByCounts, Shares::kEqual);
    collective.network_elements =
        object.integer("network_elements", {.min = -1, .max = kCount.max}).value_or(-1);
    collective.multiprocessors = object.integer("multiprocessors", kCount).value_or(0);
    return collective;
  }

  void kind(ObjectReader& item) {
    RankKind kind;
    kind.name = item.require_string("name");
    if (!item.has("stages")) item.problem("stages", "missing");
    for (const std::int64_t stage :
         item.integers("stages", kInt).value_or(std::vector<std::int64_t>{})) {
      kind.stages.push_back(static_cast<int>(stage));
    }
    kind.persistent = references<BufferRef>(item, "persistent", buffers_);
    NameTable passes("pass");
    each(item, "passes", [&](ObjectReader& entry) {
      Pass pass;
      pass.name = entry.require_string("name");
      pass.stage = integer(entry, "stage", -1);
      pass.steps = references<Step>(entry, "steps", templates_);
      passes.add(pass.name);
      kind.passes.push_back(std::move(pass));
    });
    if (!item.has("order")) item.problem("order", "missing");
    strings(item, "order", [&](const std::string& line, const JsonNode& at) {
      order_line(line, at, passes, kind.order);
    });
    program_.kinds.push_back(std::move(kind));
  }

  void order_line(const std::string& line, const JsonNode& at, const NameTable& passes,
                  std::vector<Issue>& order) {
    for (std::size_t start = 0; start < line.size();) {
      if (line[start] == ' ') {
        ++start;
        continue;
      }
      const std::size_t end = std::min(line.find(' ', start), line.size());
      const std::string token = line.substr(start, end - start);
      start = end;
      if (const auto issue = parse_issue(token, passes)) {
        order.push_back(*issue);
      } else {
        fault(at, quoted(token) + " is no pass of this kind, nor one with a micro-batch");
      }
    }
  }

  // The longest pass name that leaves nothing, or an integer.
  static std::optional<Issue> parse_issue(const std::string& token, const NameTable& passes) {
    if (const auto pass = passes.find(token)) return Issue{*pass, -1};
    std::size_t length = token.size();
    while (length > 1 && token[length - 1] >= '0' && token[length - 1] <= '9') {
      --length;
      const auto pass = passes.find(token.substr(0, length));
      const auto micro_batch = whole_integer(std::string_view(token).substr(length));
      if (pass && micro_batch) return Issue{*pass, *micro_batch};
    }
    return std::nullopt;
  }

  const JsonNode& node_;
  Problems problems_;
  Program program_;
  NameTable streams_{"stream"};
  NameTable groups_{"group"};
  NameTable ports_{"port"};
  NameTable buffers_{"buffer"};
  NameTable templates_{"template"};
};

}  // namespace

std::string to_json(const Program& program) { return Writer(program).run(); }

Program read_program(const JsonNode& node) { return Reader(node).run(); }

}  // namespace headway
