#include "sim/core/json_writer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "sim/core/json_reader.hpp"

namespace headway {
namespace {

TEST(JsonWriter, IndentsContainersAndKeepsInlineOnesOnTheirLine) {
  JsonWriter writer;
  writer.begin_object()
      .field("name", "x")
      .field("count", 3)
      .key("stages")
      .begin_array(true)
      .value(1)
      .begin_object()
      .field("peak", 2.5)
      .end_object()
      .end_array()
      .key("none")
      .begin_array()
      .end_array()
      .key("inner")
      .begin_object()
      .key("null")
      .null()
      .field("yes", true)
      .end_object()
      .end_object();
  EXPECT_EQ(writer.text(),
            "{\n"
            "  \"name\": \"x\",\n"
            "  \"count\": 3,\n"
            "  \"stages\": [1, {\"peak\": 2.5}],\n"
            "  \"none\": [],\n"
            "  \"inner\": {\n"
            "    \"null\": null,\n"
            "    \"yes\": true\n"
            "  }\n"
            "}\n");
}

TEST(JsonWriter, WritesOneLineWithoutSpacesAtIndentZero) {
  JsonWriter writer(0);
  writer.begin_object().key("a").begin_array().value(1).raw("{\"b\":2}").end_array().end_object();
  EXPECT_EQ(writer.text(), R"({"a":[1,{"b":2}]})");
}

TEST(JsonWriter, EscapesWhatJsonWantsEscapedAndMendsWhatIsNotUtf8) {
  JsonWriter writer(0);
  writer.value("a\"b\\c\n\t\x01 \xc3\xa9 \xff \xed\xa0\x80");
  EXPECT_EQ(writer.text(),
            "\"a\\\"b\\\\c\\n\\t\\u0001 \xc3\xa9 \xef\xbf\xbd "
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST(JsonWriter, WritesNumbersInTheirShortestForm) {
  const auto text = [](auto number) {
    JsonWriter writer(0);
    writer.value(number);
    return writer.text();
  };
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(5.0), "5");
  EXPECT_EQ(text(-0.5), "-0.5");
  EXPECT_EQ(text(1e22), "1e+22");
  EXPECT_EQ(text(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(JsonWriter, WritesDoublesThatReadBackEqualToTheBit) {
  std::mt19937_64 random(11);
  for (int draw = 0; draw < 200; ++draw) {
    const double number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    JsonWriter writer(0);
    writer.begin_array().value(number).end_array();
    const JsonNode read = JsonNode::parse_text(writer.text(), "x").elements().front();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(read.number()), std::bit_cast<std::uint64_t>(number))
        << writer.text();
  }
}

// A random document, written, read and written again, is the same text.
void write_random(JsonWriter& writer, std::mt19937& random, int depth) {
  switch (random() % (depth > 4 ? 5U : 7U)) {
    case 0:
      writer.null();
      break;
    case 1:
      writer.value(random() % 2 == 0);
      break;
    case 2:
      writer.value(static_cast<std::int64_t>(random()) - 2000000000);
      break;
    case 3:
      writer.value(static_cast<double>(random()) * 1.25e-7 + 0.0625);
      break;
    case 4: {
      std::string text;
      for (auto i = random() % 8; i > 0; --i) text += static_cast<char>(random() % 127 + 1);
      writer.value(text);
      break;
    }
    case 5: {
      writer.begin_array(random() % 2 == 0);
      for (auto i = random() % 5; i > 0; --i) write_random(writer, random, depth + 1);
      writer.end_array();
      break;
    }
    default: {
      writer.begin_object();
      for (auto i = random() % 30; i > 0; --i) {
        writer.key("key" + std::to_string(i));
        write_random(writer, random, depth + 1);
      }
      writer.end_object();
    }
  }
}

TEST(JsonWriter, ReadsBackAsItWasWritten) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 200; ++draw) {
    JsonWriter pretty;
    JsonWriter compact(0);
    std::mt19937 copy = random;
    write_random(pretty, random, 0);
    write_random(compact, copy, 0);
    EXPECT_EQ(JsonNode::parse_text(pretty.text(), "x").text(), compact.text());
  }
}

}  // namespace
}  // namespace headway
