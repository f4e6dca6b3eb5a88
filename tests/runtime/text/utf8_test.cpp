#include "runtime/text/utf8.h"

#include <gtest/gtest.h>

#include "runtime/text/tokenizer.h"

namespace tierpack::text {
namespace {

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const CodePoint back = decode_utf8(text, 0);
    ASSERT_TRUE(back.valid);
    ASSERT_EQ(back.value, code);
    ASSERT_EQ(back.length, text.size());
  }
}

TEST(Utf8, OneReplacementForEachMaximalSubpart) {
  const std::string r = "\uFFFD";
  // Expected as of Python's bytes.decode("utf-8", "replace").
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);  // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x"), r + "x");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82\xE2\x82\xAC"), r + "\u20AC");
  EXPECT_EQ(replace_invalid_utf8("\xFF"), r);
  EXPECT_FALSE(is_valid_utf8("\xE2\x82"));
  EXPECT_TRUE(is_valid_utf8("\u20AC\U0001F600"));
}

TEST(Utf8, WhiteSpaceHas25CodePoints) {
  int count = 0;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) count += is_white_space(code);
  EXPECT_EQ(count, 25);
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x1C));
}

TEST(Utf8Stream, GivesWholeCharactersWhateverTheCuts) {
  const std::string text = "aé€😀\xFFz\xE2\x82!";
  const std::string expected = "aé€😀\uFFFDz\uFFFD!";
  for (size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += step) {
      const std::string part = stream.push(std::string_view(text).substr(at, step));
      EXPECT_TRUE(is_valid_utf8(part));
      out += part;
    }
    EXPECT_EQ(out + stream.finish(), expected) << "step " << step;
  }
}

TEST(Utf8Stream, FinishReplacesWhatIsIncomplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xF0\x9F"), "x");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("ok"), "ok");
}

}  // namespace
}  // namespace tierpack::text
