// Strict reading of JSON. Every value is asked for by key and type; a key nobody asked for, a wrong
// type, a number out of range or without its unit becomes a Problem that names file and JSON
// pointer, and the reader goes on, so that all problems of a file are reported at once.
//
//   Problems problems;
//   ObjectReader job(JsonNode::parse_file("job.json"), problems);
//   const auto tp = job.integer("tp", {.min = 1}).value_or(1);
//   job.finish();              // reports unknown keys, each with the nearest known one
//   problems.throw_if_any();
//
// The parsed document is shared by its nodes; nlohmann/json stays behind this header.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace headway {

// A value inside a parsed document. Cheap to copy.
class JsonNode {
 public:
  // Throws InvalidInput (syntax, with line and column; not UTF-8; nesting over 64; a key given
  // twice) or, where the file cannot be read, InvalidInput naming the reason.
  static JsonNode parse_file(const std::string& path);
  // `name` stands for the file in messages.
  static JsonNode parse_text(std::string_view text, std::string name);

  const std::string& file() const;
  const std::string& pointer() const { return pointer_; }

  bool is_null() const;
  bool is_boolean() const;
  bool is_integer() const;
  bool is_number() const;  // integer or real; never NaN or infinite
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  // REQUIRES: the type asked for.
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  std::string string() const;
  std::vector<JsonNode> elements() const;  // of an array
  // The values of an array of integers alone, without a node for each; nothing of any other array.
  std::optional<std::vector<std::int64_t>> integers() const;
  std::vector<std::string> keys() const;                     // of an object, in file order
  std::optional<JsonNode> find(std::string_view key) const;  // of an object

  // The value as compact JSON text, for messages and for passing values through.
  std::string text() const;

 private:
  struct Document;
  JsonNode(std::shared_ptr<const Document> document, const void* value, std::string pointer);

  std::shared_ptr<const Document> document_;
  const void* value_ = nullptr;
  std::string pointer_;
};

struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool min_excluded = false;
};

// Reads one object. An accessor returns nothing where the key is absent (null counts as absent) or
// its value is wrong; wrong values add a Problem. `require_*` also adds one where the key is absent
// and then returns a harmless value, so that reading can go on.
class ObjectReader {
 public:
  // Adds a Problem where the node is no object; every accessor then finds nothing.
  ObjectReader(JsonNode node, Problems& problems);

  bool has(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, IntegerRange range = {});
  std::optional<double> number(std::string_view key, NumberRange range = {});
  std::optional<std::string> string(std::string_view key);
  // One of `allowed`; otherwise a Problem that lists them and names the nearest.
  std::optional<std::string> choice(std::string_view key, const std::vector<std::string>& allowed);
  std::optional<Bandwidth> bandwidth(std::string_view key);      // "450 GB/s", "200 Gbit/s"
  std::optional<Bytes> bytes(std::string_view key);              // "80 GiB", "25 MiB"
  std::optional<Time> time(std::string_view key);                // "5 us"
  std::optional<FlopRate> flop_rate(std::string_view key);       // "312 TFLOP/s"
  std::optional<double> watts(std::string_view key);             // "400 W"
  std::optional<double> dollars_per_hour(std::string_view key);  // "2 $/h"
  std::optional<std::vector<std::int64_t>> integers(std::string_view key, IntegerRange range = {});
  std::optional<std::vector<std::string>> strings(std::string_view key);
  std::optional<JsonNode> object(std::string_view key);
  std::optional<JsonNode> array(std::string_view key);
  std::optional<JsonNode> any(std::string_view key);  // whatever it is; marks the key as known

  std::int64_t require_integer(std::string_view key, IntegerRange range = {});
  double require_number(std::string_view key, NumberRange range = {});
  std::string require_string(std::string_view key);
  Bandwidth require_bandwidth(std::string_view key);
  Bytes require_bytes(std::string_view key);
  Time require_time(std::string_view key);

  // Adds a Problem at `key` of this object (empty: at the object itself).
  void problem(std::string_view key, std::string message);
  // Adds a Problem for each key nobody asked for.
  void finish();
  // The keys nobody asked for, for formats that ignore and list them.
  std::vector<std::string> unasked() const;

  const JsonNode& node() const { return node_; }
  Problems& problems() { return *problems_; }

 private:
  std::optional<JsonNode> take(std::string_view key);
  void require(std::string_view key, std::string_view expected);

  JsonNode node_;
  Problems* problems_;
  std::vector<std::string> asked_;
};

}  // namespace headway
