#include "sim/core/json_reader.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <variant>

#include "sim/core/file.hpp"
#include "sim/core/json_writer.hpp"
#include "sim/core/quantity.hpp"

namespace headway {

namespace {

// Deeper nesting than any file of ours or of a framework; keeps recursion over a document shallow.
constexpr std::size_t kNestingLimit = 64;
// From so many keys on an object is looked up by hash instead of from front to back.
constexpr std::size_t kIndexedFrom = 16;
// Longer values are cut in messages.
constexpr std::size_t kShownLength = 60;

struct Value;
using Array = std::vector<Value>;

// Members in file order. Its own members are defined where Value is known.
struct Object {
  Object();
  Object(Object&& other) noexcept;
  Object& operator=(Object&& other) noexcept;
  ~Object();

  std::vector<std::pair<std::string, Value>> members;
  std::unordered_map<std::string, std::size_t> index;  // empty below kIndexedFrom members

  const Value* find(std::string_view key) const;
  void add(std::string key, Value value);
};

struct Value {
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> content;
};

Object::Object() = default;
Object::Object(Object&& other) noexcept = default;
Object& Object::operator=(Object&& other) noexcept = default;
Object::~Object() = default;

const Value* Object::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find(std::string(key));
    return found == index.end() ? nullptr : &members[found->second].second;
  }
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Object::add(std::string key, Value value) {
  members.emplace_back(std::move(key), std::move(value));
  if (members.size() < kIndexedFrom) return;
  for (std::size_t i = index.size(); i < members.size(); ++i) index.emplace(members[i].first, i);
}

// A key inside a JSON pointer (RFC 6901).
std::string escaped(std::string_view key) {
  std::string text;
  for (const char letter : key) {
    if (letter == '~') {
      text += "~0";
    } else if (letter == '/') {
      text += "~1";
    } else {
      text += letter;
    }
  }
  return text;
}

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string place(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  const std::size_t column = start == std::string_view::npos ? offset + 1 : offset - start;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Receives the parser's events and builds the document. What JSON allows and we do not (a key given
// twice, an integer of more than 64 bits) is collected; a syntax error or too deep nesting ends it.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& file, Problems& problems)
      : text_(text), file_(file), problems_(problems) {}

  Value take() { return std::move(root_); }

  bool null() override { return put({nullptr}); }
  bool boolean(bool truth) override { return put({truth}); }
  bool number_integer(number_integer_t number) override { return put({std::int64_t{number}}); }
  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse_integer(std::to_string(number));
    }
    return put({static_cast<std::int64_t>(number)});
  }
  bool number_float(number_float_t number, const string_t& token) override {
    // The parser falls back to a double where an integer does not fit 64 bits.
    if (token.find_first_of(".eE") == std::string::npos) return refuse_integer(token);
    return put({number});
  }
  bool string(string_t& text) override { return put({std::move(text)}); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open({Object{}}); }
  bool key(string_t& name) override {
    keys_.back() = name;
    if (std::get<Object>(open_.back().content).find(name) != nullptr) {
      problems_.add(file_, pointer(), "the key is given twice");
    }
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open({Array{}}); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: <what>; last read: '<x>'"
    std::string what = error.what();
    const std::size_t named = what.find("parse error at ");
    const std::size_t colon = what.find(": ", named == std::string::npos ? 0 : named);
    if (named != std::string::npos && colon != std::string::npos) what = what.substr(colon + 2);
    if (what.find("number overflow") != std::string::npos) {
      what = "a number is too large for double precision";
    }
    // What was read last is no text that a terminal or a JSON file could show.
    if (what.find("ill-formed UTF-8") != std::string::npos) what = "the text is not UTF-8";
    problems_.add(file_, "",
                  place(text_, position == 0 ? 0 : position - 1) + ": not valid JSON: " + what);
    return false;
  }

 private:
  std::string pointer() const {
    std::string text;
    for (std::size_t level = 0; level < open_.size(); ++level) {
      const Value& value = open_[level];
      if (const auto* array = std::get_if<Array>(&value.content)) {
        text += '/' + std::to_string(array->size());
      } else {
        text += '/' + escaped(keys_[level]);
      }
    }
    return text;
  }

  bool refuse_integer(const std::string& token) {
    problems_.add(file_, pointer(), token + " does not fit a 64-bit integer");
    return put({std::int64_t{0}});
  }

  bool put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Array>(&open_.back().content)) {
      array->push_back(std::move(value));
    } else {
      std::get<Object>(open_.back().content).add(keys_.back(), std::move(value));
    }
    return true;
  }

  bool open(Value container) {
    if (open_.size() == kNestingLimit) {
      problems_.add(file_, pointer(),
                    "nested deeper than " + std::to_string(kNestingLimit) + " levels");
      return false;
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    Value value = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return put(std::move(value));
  }

  std::string_view text_;
  const std::string& file_;
  Problems& problems_;
  Value root_{nullptr};
  std::vector<Value> open_;        // the containers not yet closed, outermost first
  std::vector<std::string> keys_;  // the key last seen in each of them
};

std::string number_text(double number) {
  JsonWriter writer(0);
  writer.value(number);
  return writer.text();
}

void write(const Value& value, JsonWriter& writer);

struct ValueWriter {
  JsonWriter& writer;
  void operator()(std::nullptr_t) const { writer.null(); }
  void operator()(bool truth) const { writer.value(truth); }
  void operator()(std::int64_t number) const { writer.value(number); }
  // 8.0 stays a real number, also in the message that an integer was expected.
  void operator()(double number) const {
    const std::string text = number_text(number);
    const bool whole = text.find_first_of(".e") == std::string::npos;
    writer.raw(whole ? text + ".0" : text);
  }
  void operator()(const std::string& text) const { writer.value(text); }
  void operator()(const Array& array) const {
    writer.begin_array();
    for (const Value& element : array) write(element, writer);
    writer.end_array();
  }
  void operator()(const Object& object) const {
    writer.begin_object();
    for (const auto& [key, member] : object.members) {
      writer.key(key);
      write(member, writer);
    }
    writer.end_object();
  }
};

void write(const Value& value, JsonWriter& writer) {
  std::visit(ValueWriter{writer}, value.content);
}

// The value as a message shows it.
std::string shown(const JsonNode& node) {
  std::string text = node.text();
  if (text.size() > kShownLength) {
    std::size_t cut = kShownLength;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
    text = text.substr(0, cut) + "...";
  }
  return text;
}

std::string expected_integer(IntegerRange range) {
  constexpr IntegerRange kWhole;
  std::string text = "an integer";
  if (range.min != kWhole.min) text += " from " + std::to_string(range.min);
  if (range.max != kWhole.max) text += " up to " + std::to_string(range.max);
  return text;
}

std::string expected_number(NumberRange range) {
  constexpr NumberRange kWhole;
  std::string text = "a number";
  if (range.min != kWhole.min) {
    text += (range.min_excluded ? " above " : " from ") + number_text(range.min);
  }
  if (range.max != kWhole.max) text += " up to " + number_text(range.max);
  return text;
}

bool inside(double number, NumberRange range) {
  return (range.min_excluded ? number > range.min : number >= range.min) && number <= range.max;
}

}  // namespace

struct JsonNode::Document {
  std::string file;
  Value root;
};

namespace {
const Value& as_value(const void* value) { return *static_cast<const Value*>(value); }
}  // namespace

JsonNode::JsonNode(std::shared_ptr<const Document> document, const void* value, std::string pointer)
    : document_(std::move(document)), value_(value), pointer_(std::move(pointer)) {}

JsonNode JsonNode::parse_file(const std::string& path) { return parse_text(read_file(path), path); }

JsonNode JsonNode::parse_text(std::string_view text, std::string name) {
  Problems problems;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InvalidInput(name, "", "empty; expected JSON");
  }
  // The parser would take a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw InvalidInput(name, "", place(text, nul) + ": not valid JSON: a NUL byte");
  }
  Builder builder(text, name, problems);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  problems.throw_if_any();
  auto document = std::make_shared<Document>(Document{std::move(name), builder.take()});
  const void* root = &document->root;
  return JsonNode(std::move(document), root, "");
}

const std::string& JsonNode::file() const { return document_->file; }

bool JsonNode::is_null() const {
  return std::holds_alternative<std::nullptr_t>(as_value(value_).content);
}
bool JsonNode::is_boolean() const { return std::holds_alternative<bool>(as_value(value_).content); }
bool JsonNode::is_integer() const {
  return std::holds_alternative<std::int64_t>(as_value(value_).content);
}
bool JsonNode::is_number() const {
  return is_integer() || std::holds_alternative<double>(as_value(value_).content);
}
bool JsonNode::is_string() const {
  return std::holds_alternative<std::string>(as_value(value_).content);
}
bool JsonNode::is_array() const { return std::holds_alternative<Array>(as_value(value_).content); }
bool JsonNode::is_object() const {
  return std::holds_alternative<Object>(as_value(value_).content);
}

bool JsonNode::boolean() const {
  assert(is_boolean());
  return std::get<bool>(as_value(value_).content);
}

std::int64_t JsonNode::integer() const {
  assert(is_integer());
  return std::get<std::int64_t>(as_value(value_).content);
}

double JsonNode::number() const {
  assert(is_number());
  if (is_integer()) return static_cast<double>(integer());
  return std::get<double>(as_value(value_).content);
}

std::string JsonNode::string() const {
  assert(is_string());
  return std::get<std::string>(as_value(value_).content);
}

std::vector<JsonNode> JsonNode::elements() const {
  assert(is_array());
  std::vector<JsonNode> nodes;
  const Array& array = std::get<Array>(as_value(value_).content);
  nodes.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    nodes.push_back(JsonNode(document_, &array[i], pointer_ + '/' + std::to_string(i)));
  }
  return nodes;
}

std::optional<std::vector<std::int64_t>> JsonNode::integers() const {
  assert(is_array());
  const Array& array = std::get<Array>(as_value(value_).content);
  std::vector<std::int64_t> values;
  values.reserve(array.size());
  for (const Value& element : array) {
    const auto* integer = std::get_if<std::int64_t>(&element.content);
    if (integer == nullptr) return std::nullopt;
    values.push_back(*integer);
  }
  return values;
}

std::vector<std::string> JsonNode::keys() const {
  assert(is_object());
  std::vector<std::string> names;
  for (const auto& member : std::get<Object>(as_value(value_).content).members) {
    names.push_back(member.first);
  }
  return names;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  assert(is_object());
  const Value* found = std::get<Object>(as_value(value_).content).find(key);
  if (found == nullptr) return std::nullopt;
  return JsonNode(document_, found, pointer_ + '/' + escaped(key));
}

std::string JsonNode::text() const {
  JsonWriter writer(0);
  write(as_value(value_), writer);
  return writer.text();
}

ObjectReader::ObjectReader(JsonNode node, Problems& problems)
    : node_(std::move(node)), problems_(&problems) {
  if (!node_.is_object()) problem("", shown(node_) + " is not an object");
}

bool ObjectReader::has(std::string_view key) const {
  if (!node_.is_object()) return false;
  const auto found = node_.find(key);
  return found && !found->is_null();
}

std::optional<JsonNode> ObjectReader::take(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  if (!has(key)) return std::nullopt;
  return node_.find(key);
}

std::optional<bool> ObjectReader::boolean(std::string_view key) {
  const auto found = take(key);
  if (!found) return std::nullopt;
  if (found->is_boolean()) return found->boolean();
  problem(key, shown(*found) + " is not true or false");
  return std::nullopt;
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view key, IntegerRange range) {
  const auto found = take(key);
  if (!found) return std::nullopt;
  if (found->is_integer() && found->integer() >= range.min && found->integer() <= range.max) {
    return found->integer();
  }
  problem(key, shown(*found) + " is not allowed; expected " + expected_integer(range));
  return std::nullopt;
}

std::optional<double> ObjectReader::number(std::string_view key, NumberRange range) {
  const auto found = take(key);
  if (!found) return std::nullopt;
  if (found->is_number() && inside(found->number(), range)) return found->number();
  problem(key, shown(*found) + " is not allowed; expected " + expected_number(range));
  return std::nullopt;
}

std::optional<std::string> ObjectReader::string(std::string_view key) {
  const auto found = take(key);
  if (!found) return std::nullopt;
  if (found->is_string()) return found->string();
  problem(key, shown(*found) + " is not a string");
  return std::nullopt;
}

std::optional<std::string> ObjectReader::choice(std::string_view key,
                                                const std::vector<std::string>& allowed) {
  const auto found = take(key);
  if (!found) return std::nullopt;
  const std::string word = found->is_string() ? found->string() : "";
  if (found->is_string() && std::find(allowed.begin(), allowed.end(), word) != allowed.end()) {
    return word;
  }
  std::vector<std::string> listed;
  for (const std::string& value : allowed) listed.push_back(in_quotes(value));
  std::string message = shown(*found) + " is not allowed; expected " + any_of(listed);
  const std::string near = nearest(word, allowed);
  if (!near.empty()) message += "; did you mean " + in_quotes(near) + "?";
  problem(key, std::move(message));
  return std::nullopt;
}

namespace {

// Reads a quantity by its parser; what the parser refuses becomes a problem at the key.
template <typename Quantity>
std::optional<Quantity> quantity(ObjectReader& reader, std::string_view key,
                                 const std::optional<JsonNode>& found,
                                 Quantity (*parse)(std::string_view)) {
  if (!found) return std::nullopt;
  try {
    // A number is handed over as text, so that the parser says which unit is missing.
    if (found->is_string()) return parse(found->string());
    if (found->is_number()) return parse(found->text());
    reader.problem(key, shown(*found) + " is not a string with a number and its unit");
  } catch (const std::invalid_argument& error) {
    reader.problem(key, error.what());
  }
  return std::nullopt;
}

}  // namespace

std::optional<Bandwidth> ObjectReader::bandwidth(std::string_view key) {
  return quantity(*this, key, take(key), parse_bandwidth);
}
std::optional<Bytes> ObjectReader::bytes(std::string_view key) {
  return quantity(*this, key, take(key), parse_bytes);
}
std::optional<Time> ObjectReader::time(std::string_view key) {
  return quantity(*this, key, take(key), parse_time);
}
std::optional<FlopRate> ObjectReader::flop_rate(std::string_view key) {
  return quantity(*this, key, take(key), parse_flop_rate);
}
std::optional<double> ObjectReader::watts(std::string_view key) {
  return quantity(*this, key, take(key), parse_watts);
}
std::optional<double> ObjectReader::dollars_per_hour(std::string_view key) {
  return quantity(*this, key, take(key), parse_dollars_per_hour);
}

std::optional<std::vector<std::int64_t>> ObjectReader::integers(std::string_view key,
                                                                IntegerRange range) {
  const auto found = array(key);
  if (!found) return std::nullopt;
  // Long lists are mostly right: the walk that names each fault is for those that are not.
  if (auto fast = found->integers()) {
    const bool all_inside = std::all_of(fast->begin(), fast->end(), [&](std::int64_t value) {
      return value >= range.min && value <= range.max;
    });
    if (all_inside) return fast;
  }
  std::vector<std::int64_t> values;
  bool whole = true;
  for (const JsonNode& element : found->elements()) {
    if (element.is_integer() && element.integer() >= range.min && element.integer() <= range.max) {
      values.push_back(element.integer());
    } else {
      problems_->add(element.file(), element.pointer(),
                     shown(element) + " is not allowed; expected " + expected_integer(range));
      whole = false;
    }
  }
  if (!whole) return std::nullopt;
  return values;
}

std::optional<std::vector<std::string>> ObjectReader::strings(std::string_view key) {
  const auto found = array(key);
  if (!found) return std::nullopt;
  std::vector<std::string> values;
  bool whole = true;
  for (const JsonNode& element : found->elements()) {
    if (element.is_string()) {
      values.push_back(element.string());
    } else {
      problems_->add(element.file(), element.pointer(), shown(element) + " is not a string");
      whole = false;
    }
  }
  if (!whole) return std::nullopt;
  return values;
}

std::optional<JsonNode> ObjectReader::object(std::string_view key) {
  auto found = take(key);
  if (!found || found->is_object()) return found;
  problem(key, shown(*found) + " is not an object");
  return std::nullopt;
}

std::optional<JsonNode> ObjectReader::array(std::string_view key) {
  auto found = take(key);
  if (!found || found->is_array()) return found;
  problem(key, shown(*found) + " is not a list");
  return std::nullopt;
}

std::optional<JsonNode> ObjectReader::any(std::string_view key) { return take(key); }

// Each `require_*` asks as its optional form does and adds what is missing.
void ObjectReader::require(std::string_view key, std::string_view expected) {
  if (node_.is_object() && !has(key)) {
    problem(key, "missing; expected " + std::string(expected));
  }
}

std::int64_t ObjectReader::require_integer(std::string_view key, IntegerRange range) {
  require(key, expected_integer(range));
  return integer(key, range).value_or(std::max<std::int64_t>(range.min, 1));
}
double ObjectReader::require_number(std::string_view key, NumberRange range) {
  require(key, expected_number(range));
  return number(key, range).value_or(std::max(range.min, 1.0));
}
std::string ObjectReader::require_string(std::string_view key) {
  require(key, "a string");
  return string(key).value_or("");
}
Bandwidth ObjectReader::require_bandwidth(std::string_view key) {
  require(key, "a bandwidth such as \"450 GB/s\"");
  return bandwidth(key).value_or(Bandwidth{1e9});
}
Bytes ObjectReader::require_bytes(std::string_view key) {
  require(key, "an amount such as \"80 GiB\"");
  return bytes(key).value_or(Bytes{1});
}
Time ObjectReader::require_time(std::string_view key) {
  require(key, "a time such as \"5 us\"");
  return time(key).value_or(Time::zero());
}

void ObjectReader::problem(std::string_view key, std::string message) {
  std::string pointer = node_.pointer();
  if (!key.empty()) pointer += '/' + escaped(key);
  problems_->add(node_.file(), std::move(pointer), std::move(message));
}

void ObjectReader::finish() {
  for (const std::string& key : unasked()) {
    std::string message = "unknown key " + in_quotes(key);
    const std::string near = nearest(key, asked_);
    if (!near.empty()) {
      message += "; did you mean " + in_quotes(near) + "?";
    } else if (asked_.empty()) {
      message += "; no keys are known here";
    } else {
      std::vector<std::string> known = asked_;
      std::sort(known.begin(), known.end());
      message += "; known are " + any_of(known);
    }
    problem(key, std::move(message));
  }
}

std::vector<std::string> ObjectReader::unasked() const {
  std::vector<std::string> keys;
  if (!node_.is_object()) return keys;
  for (std::string& key : node_.keys()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace headway
