#include "formats/json_cursor.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace tierpack {
namespace {

// Whether the whole text is accepted as one JSON document.
bool valid(std::string_view text) {
  try {
    JsonCursor json(text, "test");
    json.skip_value();
    json.end();
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt) << e.what();
    return false;
  }
}

std::string string_of(std::string_view text) {
  JsonCursor json(text, "test");
  std::string out(json.string("a string"));
  json.end();
  return out;
}

TEST(JsonCursor, AcceptsTheGrammar) {
  for (const char* text : {"{}", "[]", " {\"a\" : [1, -2.5e+3, 0, 0.0, 1E5] , \"b\":{\"c\":null}}\r\n\t ", "true",
                           "\"\"", "[[[[]]]]", "-0", "[true,false,null,\"x\"]", "\"\xE4\xB8\xAD\xF0\x9F\x98\x80\""}) {
    EXPECT_TRUE(valid(text)) << text;
  }
}

TEST(JsonCursor, RefusesEverythingElse) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "[",
                           "[1,]",
                           "[,1]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{'a':1}",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "nul",
                           "truex",
                           "NaN",
                           "Infinity",
                           "\"a",
                           "\"\\",
                           "\"\\\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\t\"",
                           "{} {}",
                           "[1 2]",
                           "{\"a\" 1}",
                           "\x01",
                           "//",
                           "\"\\ud800\"",
                           "\"\\ud800x\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\""}) {
    EXPECT_FALSE(valid(text)) << text;
  }
}

TEST(JsonCursor, RefusesInvalidUtf8AnywhereInTheText) {
  for (const char* bad : {"\xFF", "\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF0\x8F\xBF\xBF", "\xF8\x88\x80\x80\x80", "\xE4\xB8", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(valid("\"" + std::string(bad) + "\"")) << bad;
    EXPECT_FALSE(valid("\"some longer text in front " + std::string(bad) + " and behind\"")) << bad;
    EXPECT_FALSE(valid("\"x" + std::string(bad))) << bad;
  }
}

TEST(JsonCursor, BoundsNesting) {
  EXPECT_TRUE(valid(std::string(16, '[') + std::string(16, ']')));
  EXPECT_FALSE(valid(std::string(17, '[') + std::string(17, ']')));
  EXPECT_FALSE(valid(std::string(1'000'000, '[')));
}

TEST(JsonCursor, DecodesEscapes) {
  EXPECT_EQ(string_of(R"("plain")"), "plain");
  EXPECT_EQ(string_of(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(string_of(R"("\u0041\u00e9\u4E2d\ud83d\ude00z")"), "A\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80z");
  EXPECT_EQ(string_of("\"\\u0000\"").size(), 1u);
}

TEST(JsonCursor, IntegersAreExactOrRefused) {
  const auto read = [](std::string_view text) {
    JsonCursor json(text, "test");
    const uint64_t value = json.u64("n");
    json.end();
    return value;
  };
  EXPECT_EQ(read("0"), 0u);
  EXPECT_EQ(read("18446744073709551615"), UINT64_MAX);
  for (const char* text :
       {"18446744073709551616", "99999999999999999999999", "-1", "1.0", "1e3", "007", "\"1\"", "x", ""}) {
    EXPECT_THROW(read(text), Error) << text;
  }
}

TEST(JsonCursor, WalksObjectsAndArrays) {
  JsonCursor json(R"({"a":[1,2,3],"b":{"\u0063":"d"},"e":[]})", "test");
  std::string seen;
  json.object("an object", [&](std::string_view key) {
    seen += std::string(key) + ":";
    if (key == "b") {
      json.object("b", [&](std::string_view inner) {
        seen += inner;
        seen += json.string("a string");
      });
    } else {
      json.array("an array", [&] { seen += std::to_string(json.u64("n")); });
    }
    seen += ";";
  });
  json.end();
  EXPECT_EQ(seen, "a:123;b:cd;e:;");
}

TEST(JsonCursor, NamesTheSourceAndTheByte) {
  try {
    JsonCursor json("{\"a\" 1}", "file.json", 8);
    json.skip_value();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "file.json: expected ':' after a key, found other JSON at byte 13");
  }
}

}  // namespace
}  // namespace tierpack
