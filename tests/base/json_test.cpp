#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

ErrorKind kind_of(std::string_view text) {
  try {
    parse_json(text, "test");
  } catch (const Error& e) {
    return e.kind();
  }
  return ErrorKind::kInternal;
}

TEST(Json, RefusesHostileDocuments) {
  EXPECT_EQ(kind_of(R"({"a":1,"a":2})"), ErrorKind::kCorrupt);
  EXPECT_EQ(kind_of(std::string(100'000, '[')), ErrorKind::kCorrupt);
  EXPECT_EQ(kind_of("{\"a\":\"\xff\"}"), ErrorKind::kCorrupt);
  EXPECT_EQ(kind_of("{} x"), ErrorKind::kCorrupt);
  EXPECT_EQ(kind_of(""), ErrorKind::kCorrupt);
}

TEST(Json, KeysOfOneObjectAreBounded) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"{}\":0,", i);
  EXPECT_EQ(kind_of(text + "\"end\":0}"), ErrorKind::kCorrupt);
}

TEST(Json, MembersAreTyped) {
  const Json value = parse_json(R"({"n": 3, "s": "x", "m": -1, "o": {"a": {"a": 1}}})", "test");
  EXPECT_EQ(json_u64(value, "n", "test"), 3u);
  EXPECT_EQ(json_string(value, "s", "test"), "x");
  EXPECT_THROW(json_u64(value, "m", "test"), Error);
  EXPECT_THROW(json_u64(value, "s", "test"), Error);
  EXPECT_THROW(json_string(value, "missing", "test"), Error);
}

}  // namespace
}  // namespace tierpack
