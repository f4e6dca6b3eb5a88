#include "formats/metadata.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing_support::thrown_by;

Metadata example() {
  Metadata m("file.gguf");
  m.add("u8", MetaValue::scalar(ValueType::kU8, uint64_t{7}));
  m.add("u64", MetaValue::scalar(ValueType::kU64, ~uint64_t{0}));
  m.add("i32", MetaValue::scalar(ValueType::kI32, int64_t{5}));
  m.add("negative", MetaValue::scalar(ValueType::kI32, int64_t{-5}));
  m.add("f32", MetaValue::scalar(ValueType::kF32, double{1e-6f}));
  m.add("nan", MetaValue::scalar(ValueType::kF32, std::numeric_limits<double>::quiet_NaN()));
  m.add("yes", MetaValue::scalar(ValueType::kBool, true));
  m.add("text", MetaValue::scalar(ValueType::kString, std::string("grüße\n\x01")));
  m.add("numbers", MetaValue::array(ValueType::kI32, std::vector<int64_t>{1, 2, 3}));
  m.add("mixed", MetaValue::array(ValueType::kI32, std::vector<int64_t>{1, -2}));
  m.add("flags", MetaValue::array(ValueType::kBool, std::vector<bool>{true, false}));
  m.add("floats", MetaValue::array(ValueType::kF32, std::vector<double>{0.5, 2}));
  m.add("words", MetaValue::array(ValueType::kString, std::vector<std::string>{"a", "b\"c"}));
  m.add("empty", MetaValue::array(ValueType::kU32, std::vector<uint64_t>{}));
  return m;
}

TEST(Metadata, IntegersConvertWithRangeChecks) {
  const Metadata m = example();
  EXPECT_EQ(m.u64("u8"), 7u);
  EXPECT_EQ(m.u64("u64"), ~uint64_t{0});
  EXPECT_EQ(m.u64("i32"), 5u);
  EXPECT_EQ(m.u64("yes"), 1u);
  EXPECT_EQ(m.u64_or("none", 9), 9u);
  EXPECT_EQ(m.i64_array("negative"), std::vector<int64_t>{-5});
  EXPECT_EQ(m.u64_array("u8"), std::vector<uint64_t>{7});
  EXPECT_EQ(m.u64_array("flags"), (std::vector<uint64_t>{1, 0}));
  EXPECT_EQ(m.u64_array("empty"), std::vector<uint64_t>{});
  EXPECT_EQ(m.f64_array("numbers"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(m.f64("u8"), 7.0);
  EXPECT_EQ(m.f64_or("none", 2.5), 2.5);
  EXPECT_EQ(m.f64("f32"), double{1e-6f});
  EXPECT_TRUE(m.boolean_or("yes", false));
  EXPECT_FALSE(m.boolean_or("none", false));
  EXPECT_EQ(m.string("text"), "grüße\n\x01");
  EXPECT_EQ(m.string_or("none", "x"), "x");
  EXPECT_EQ(m.string_array("words").size(), 2u);
}

TEST(Metadata, WrongKindsAreCorrupt) {
  const Metadata m = example();
  const auto corrupt = [](auto action, const std::string& part) {
    const auto thrown = thrown_by(action);
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << thrown.message;
    EXPECT_NE(thrown.message.find(part), std::string::npos) << thrown.message;
  };
  corrupt([&] { m.u64("none"); }, "file.gguf: the metadata has no key 'none'");
  corrupt([&] { m.u64("negative"); }, "'negative': expected a non-negative integer, found i32 -5");
  corrupt([&] { m.u64("f32"); }, "found f32 1e-06");
  corrupt([&] { m.u64("numbers"); }, "found an array of 3 i32");
  corrupt([&] { m.u64_array("mixed"); }, "non-negative integers");
  corrupt([&] { m.i64_array("u64"); }, "integers");
  corrupt([&] { m.f64("nan"); }, "a finite number");
  corrupt([&] { m.f64("text"); }, "a finite number");
  corrupt([&] { m.boolean_or("u8", true); }, "true or false");
  corrupt([&] { m.string("u8"); }, "a string");
  corrupt([&] { m.string_array("text"); }, "an array of strings");
  corrupt([&] { m.string_array("numbers"); }, "an array of strings");
}

TEST(Metadata, KeysAreUniqueAndOrdered) {
  Metadata m = example();
  EXPECT_EQ(thrown_by([&] { m.add("u8", MetaValue::scalar(ValueType::kU8, uint64_t{1})); }).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(m.entries().size(), 14u);
  EXPECT_EQ(m.entries().front().first, "u8");
  EXPECT_EQ(m.u64("u8"), 7u);
  EXPECT_TRUE(m.has("words"));
  EXPECT_FALSE(m.has("word"));
}

TEST(Metadata, TextIsShortAndPrintable) {
  const Metadata m = example();
  EXPECT_EQ(m.find("text")->text(100), "grüße\\n\\x01");
  EXPECT_EQ(m.find("text")->text(4), "grü...");  // never half a character
  EXPECT_EQ(m.find("text")->text(3), "gr...");
  EXPECT_EQ(m.find("f32")->text(100), "1e-06");
  EXPECT_EQ(m.find("yes")->text(100), "true");
  EXPECT_EQ(m.find("numbers")->text(100), "[1, 2, 3]");
  EXPECT_EQ(m.find("flags")->text(100), "[true, false]");
  EXPECT_EQ(m.find("empty")->text(100), "[]");
  const MetaValue many = MetaValue::array(ValueType::kU32, std::vector<uint64_t>(1000, 12345));
  EXPECT_EQ(many.text(50), "[12345, 12345, 12345, ... of 1000]");
  const MetaValue broken = MetaValue::scalar(ValueType::kString, std::string("a\xff\xe2\x82"));
  EXPECT_EQ(broken.text(100), "a\\xff\\xe2\\x82");
}

}  // namespace
}  // namespace tierpack
