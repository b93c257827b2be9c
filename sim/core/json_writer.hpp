// Writes JSON text: keys in the order given, numbers in the shortest form that reads back equal, so
// equal values give byte-equal files. Objects and arrays nest by begin/end pairs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headway {

class JsonWriter {
 public:
  // indent 0: everything on one line.
  explicit JsonWriter(int indent = 2);

  // `inline_values`: the container's values stay on one line, for short lists that people read.
  JsonWriter& begin_object(bool inline_values = false);
  JsonWriter& end_object();
  JsonWriter& begin_array(bool inline_values = false);
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth);
  JsonWriter& value(double number);  // REQUIRES: finite
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(int number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // already valid JSON

  template <typename T>
  JsonWriter& field(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  // The text so far, with a final newline where indented. REQUIRES: every container closed.
  std::string text() const;

 private:
  struct Level {
    bool array;
    bool inline_values;
    bool empty;
  };
  void before_value();
  void separate();
  void newline();

  int indent_;
  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace headway
