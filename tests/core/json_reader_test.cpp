#include "sim/core/json_reader.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "sim/core/json_writer.hpp"
#include "tests/support/folders.hpp"

namespace headway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The message of the InvalidInput that parsing the text throws.
std::string refusal(std::string_view text) {
  try {
    JsonNode::parse_text(text, "job.json");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

// The message of all problems found by `read` in the object, unknown keys among them.
std::string problems_of(std::string_view text, const std::function<void(ObjectReader&)>& read) {
  Problems problems;
  ObjectReader reader(JsonNode::parse_text(text, "job.json"), problems);
  read(reader);
  reader.finish();
  try {
    problems.throw_if_any();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

TEST(JsonNode, KeepsTheOrderOfKeysAndTheKindOfNumbers) {
  const JsonNode node =
      JsonNode::parse_text(R"({"z": 1, "a": [1.0, -2, "\u00e9", null, true]})", "x");
  EXPECT_THAT(node.keys(), ElementsAre("z", "a"));
  const auto elements = node.find("a")->elements();
  ASSERT_EQ(elements.size(), 5U);
  EXPECT_FALSE(elements[0].is_integer());
  EXPECT_TRUE(elements[0].is_number());
  EXPECT_EQ(elements[1].integer(), -2);
  EXPECT_EQ(elements[1].number(), -2.0);
  EXPECT_EQ(elements[2].string(), "\xc3\xa9");
  EXPECT_TRUE(elements[3].is_null());
  EXPECT_TRUE(elements[4].boolean());
  EXPECT_EQ(elements[4].pointer(), "/a/4");
  EXPECT_EQ(node.text(), "{\"z\":1,\"a\":[1.0,-2,\"\xc3\xa9\",null,true]}");
}

TEST(JsonNode, OutlivesTheNodeItCameFrom) {
  std::optional<JsonNode> inner;
  {
    const JsonNode outer = JsonNode::parse_text(R"({"a": {"b": 7}})", "x");
    inner = outer.find("a")->find("b");
  }
  EXPECT_EQ(inner->integer(), 7);
  EXPECT_EQ(inner->file(), "x");
}

TEST(JsonNode, EscapesSlashAndTildeInPointers) {
  const JsonNode node = JsonNode::parse_text(R"({"a/b~c": 1})", "x");
  EXPECT_EQ(node.find("a/b~c")->pointer(), "/a~1b~0c");
}

TEST(JsonNode, FindsEachOfManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) {
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
  }
  text += "}";
  const JsonNode node = JsonNode::parse_text(text, "x");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(node.find("k" + std::to_string(i))->integer(), i);
  EXPECT_FALSE(node.find("k1000").has_value());
}

TEST(JsonNode, NamesLineAndColumnOfASyntaxError) {
  EXPECT_THAT(refusal("{\n  \"tp\": 8,\n  \"pp\" 4\n}"), HasSubstr("job.json: line 3, column 8"));
  EXPECT_THAT(refusal("{\"a\": 1} x"), HasSubstr("line 1, column 10"));
}

TEST(JsonNode, RefusesATruncatedFile) {
  EXPECT_THAT(refusal(R"({"model": "gpt3-175b", "plan": {"tp": 8)"),
              HasSubstr("unexpected end of input"));
  EXPECT_THAT(refusal(R"({"model": "gpt3)"), HasSubstr("line 1, column 16"));
}

TEST(JsonNode, RefusesAnEmptyFile) {
  EXPECT_EQ(refusal(""), "job.json: empty; expected JSON");
  EXPECT_EQ(refusal(" \n\t "), "job.json: empty; expected JSON");
}

TEST(JsonNode, RefusesNanAndInfinity) {
  for (const char* text : {"[NaN]", "[Infinity]", "[-Infinity]", "[nan]", "[inf]"}) {
    EXPECT_THAT(refusal(text), HasSubstr("line 1, column")) << text;
  }
  EXPECT_THAT(refusal("[1e999]"), HasSubstr("too large for double precision"));
  EXPECT_THAT(refusal("[-1e999]"), HasSubstr("too large for double precision"));
}

TEST(JsonNode, RefusesIntegersBeyond64Bits) {
  EXPECT_EQ(JsonNode::parse_text("9223372036854775807", "x").integer(),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(JsonNode::parse_text("-9223372036854775808", "x").integer(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(refusal(R"({"a": 9223372036854775808})"),
            "job.json: /a: 9223372036854775808 does not fit a 64-bit integer");
  EXPECT_EQ(refusal(R"([0, -9223372036854775809])"),
            "job.json: /1: -9223372036854775809 does not fit a 64-bit integer");
  EXPECT_THAT(refusal("123456789012345678901234567890"), HasSubstr("does not fit"));
}

TEST(JsonNode, RefusesAKeyGivenTwiceAndNamesEachPlace) {
  EXPECT_EQ(refusal(R"({"plan": {"tp": 1, "tp": 2}, "plan": 3})"),
            "job.json: /plan/tp: the key is given twice\njob.json: /plan: the key is given twice");
}

TEST(JsonNode, Nests64LevelsAndNoMore) {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_EQ(refusal(nested(64)), "accepted");
  EXPECT_THAT(refusal(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(refusal(std::string(1000000, '[')), HasSubstr("nested deeper than 64 levels"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), HasSubstr("nested deeper than 64 levels"));
}

TEST(JsonNode, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(refusal("{\"a\": \"\xff\"}"),
            "job.json: line 1, column 8: not valid JSON: the text is not UTF-8");
  EXPECT_THAT(refusal("[\"\xed\xa0\x80\"]"), HasSubstr("not UTF-8"));  // a surrogate
  EXPECT_THAT(refusal("[\"\xc0\xaf\"]"), HasSubstr("not UTF-8"));      // an overlong slash
}

TEST(JsonNode, RefusesANulByte) {
  EXPECT_THAT(refusal(std::string_view("{\"a\": 1}\0{", 10)), HasSubstr("column 9"));
}

TEST(JsonNode, RefusesCommentsTrailingCommasAndSingleQuotes) {
  for (const char* text :
       {"[1,]", "{\"a\":1,}", "// x\n[1]", "['a']", "[01]", "[.5]", "[+1]", "[1.]"}) {
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(JsonNode, NamesAMissingFileAndADirectory) {
  EXPECT_THROW(
      {
        try {
          JsonNode::parse_file("no/such/job.json");
        } catch (const InvalidInput& error) {
          EXPECT_THAT(error.what(), HasSubstr("no/such/job.json: cannot be read: No such file"));
          throw;
        }
      },
      InvalidInput);
  EXPECT_THROW(
      {
        try {
          JsonNode::parse_file(source_dir() + "/tests");
        } catch (const InvalidInput& error) {
          EXPECT_THAT(error.what(), HasSubstr("it is a directory"));
          throw;
        }
      },
      InvalidInput);
}

// Any prefix of a good document, and any document with one byte changed, is read or refused with a
// message; never a crash, never an unnamed file.
TEST(JsonNode, SurvivesCutAndDamagedText) {
  const std::string good =
      R"({"model": {"hidden_size": 12288, "x": [1, 2.5e3, null, true, "\u00e9\n"]}, "b": "4 GB/s"})";
  std::mt19937 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    std::string text = good;
    const std::size_t at = random() % text.size();
    if (draw % 2 == 0) {
      text = text.substr(0, at);
    } else {
      text[at] = static_cast<char>(random() % 256);
    }
    const std::string message = refusal(text);
    EXPECT_TRUE(message == "accepted" || message.starts_with("job.json: ")) << text;
    if (draw % 2 == 0) {
      EXPECT_NE(message, "accepted") << text;
    }
  }
}

TEST(ObjectReader, ReadsWhatIsThere) {
  Problems problems;
  ObjectReader reader(
      JsonNode::parse_text(R"({"tp": 8, "share": 0.5, "sp": true, "name": "x", "none": null,
                               "nic": "200 Gbit/s", "memory": "80 GiB", "wait": "5 us",
                               "peak": "312 TFLOP/s", "power": "400 W", "price": "2.5 $/h",
                               "layers": [1, 2], "words": ["a"], "inner": {}})",
                           "job.json"),
      problems);
  EXPECT_EQ(reader.integer("tp"), 8);
  EXPECT_EQ(reader.number("share"), 0.5);
  EXPECT_EQ(reader.number("tp"), 8.0);
  EXPECT_EQ(reader.boolean("sp"), true);
  EXPECT_EQ(reader.choice("name", {"x", "y"}), "x");
  EXPECT_EQ(reader.integer("none"), std::nullopt);
  EXPECT_FALSE(reader.has("none"));
  EXPECT_EQ(reader.integer("absent"), std::nullopt);
  EXPECT_EQ(reader.bandwidth("nic"), Bandwidth{25e9});
  EXPECT_EQ(reader.bytes("memory"), Bytes{85899345920});
  EXPECT_EQ(reader.time("wait"), Time{5000000});
  EXPECT_EQ(reader.flop_rate("peak"), FlopRate{312e12});
  EXPECT_EQ(reader.watts("power"), 400.0);
  EXPECT_EQ(reader.dollars_per_hour("price"), 2.5);
  EXPECT_THAT(*reader.integers("layers"), ElementsAre(1, 2));
  EXPECT_THAT(*reader.strings("words"), ElementsAre("a"));
  EXPECT_TRUE(reader.object("inner").has_value());
  reader.finish();
  EXPECT_TRUE(problems.empty());
}

TEST(ObjectReader, NamesTheNearestKnownKey) {
  EXPECT_EQ(problems_of(R"({"sequence_lenght": 2048})",
                        [](ObjectReader& reader) { reader.integer("sequence_length"); }),
            "job.json: /sequence_lenght: unknown key \"sequence_lenght\"; did you mean "
            "\"sequence_length\"?");
}

TEST(ObjectReader, ListsTheKnownKeysWhereNoneIsNear) {
  EXPECT_EQ(problems_of(R"({"zzz": 1})",
                        [](ObjectReader& reader) {
                          reader.integer("tp");
                          reader.integer("pp");
                        }),
            "job.json: /zzz: unknown key \"zzz\"; known are pp or tp");
}

TEST(ObjectReader, ReportsAllProblemsAtOnceInOrder) {
  const std::string message =
      problems_of(R"({"tp": 0, "pp": "8", "share": 2, "sp": 1, "kind": "dpd", "other": 1})",
                  [](ObjectReader& reader) {
                    reader.integer("tp", {.min = 1});
                    reader.integer("pp", {.min = 1, .max = 64});
                    reader.number("share", {.min = 0, .max = 1, .min_excluded = true});
                    reader.boolean("sp");
                    reader.choice("kind", {"ddp", "zero1"});
                    reader.require_integer("global_batch", {.min = 1});
                  });
  EXPECT_EQ(message,
            "job.json: /tp: 0 is not allowed; expected an integer from 1\n"
            "job.json: /pp: \"8\" is not allowed; expected an integer from 1 up to 64\n"
            "job.json: /share: 2 is not allowed; expected a number above 0 up to 1\n"
            "job.json: /sp: 1 is not true or false\n"
            "job.json: /kind: \"dpd\" is not allowed; expected \"ddp\" or \"zero1\"; did you mean "
            "\"ddp\"?\n"
            "job.json: /global_batch: missing; expected an integer from 1\n"
            "job.json: /other: unknown key \"other\"; known are global_batch, kind, pp, share, sp "
            "or tp");
}

TEST(ObjectReader, RefusesRealNumbersAndNumbersBeyondTheRangeWhereIntegersBelong) {
  const auto read = [](ObjectReader& reader) {
    reader.integer("tp", {.min = 1, .max = std::numeric_limits<std::int32_t>::max()});
  };
  for (const char* text :
       {R"({"tp": 8.0})", R"({"tp": 1e2})", R"({"tp": -1})", R"({"tp": 2147483648})",
        R"({"tp": true})", R"({"tp": [1]})", R"({"tp": {"a": 1}})"}) {
    EXPECT_THAT(problems_of(text, read), HasSubstr("expected an integer from 1 up to 2147483647"))
        << text;
  }
  EXPECT_EQ(problems_of(R"({"tp": 2147483647})", read), "");
}

TEST(ObjectReader, WantsAUnitWhereOneBelongs) {
  const auto read = [](ObjectReader& reader) { reader.bandwidth("bandwidth"); };
  EXPECT_THAT(problems_of(R"({"bandwidth": 450})", read),
              HasSubstr("/bandwidth: \"450\" is not a bandwidth: the unit is missing"));
  EXPECT_THAT(problems_of(R"({"bandwidth": "450"})", read), HasSubstr("the unit is missing"));
  EXPECT_THAT(problems_of(R"({"bandwidth": "450 GB"})", read),
              HasSubstr("the unit \"GB\" does not belong here"));
  EXPECT_THAT(problems_of(R"({"bandwidth": true})", read), HasSubstr("not a string with a number"));
}

TEST(ObjectReader, PointsAtTheElementOfAListThatIsWrong) {
  EXPECT_EQ(problems_of(R"({"plan": 1, "stage_layers": [4, -1, "x"]})",
                        [](ObjectReader& reader) {
                          reader.any("plan");
                          EXPECT_FALSE(reader.integers("stage_layers", {.min = 0}).has_value());
                        }),
            "job.json: /stage_layers/1: -1 is not allowed; expected an integer from 0\n"
            "job.json: /stage_layers/2: \"x\" is not allowed; expected an integer from 0");
}

TEST(ObjectReader, RefusesANodeThatIsNoObjectAndFindsNothingInIt) {
  EXPECT_EQ(problems_of("[1]",
                        [](ObjectReader& reader) {
                          EXPECT_FALSE(reader.integer("tp").has_value());
                          EXPECT_EQ(reader.require_string("name"), "");
                        }),
            "job.json: [1] is not an object");
}

TEST(ObjectReader, ShortensLongValuesInMessages) {
  const std::string message = problems_of("{\"tp\": \"" + std::string(1000, 'x') + "\"}",
                                          [](ObjectReader& reader) { reader.integer("tp"); });
  EXPECT_LT(message.size(), 150U);
  EXPECT_THAT(message, HasSubstr("xxx... is not allowed"));
}

}  // namespace
}  // namespace headway
