#include "runtime/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "runtime/text/pre_tokenizer_table.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view name, std::string_view text) {
  Pieces out;
  size_t begin = 0;
  for (const size_t end : PreTokenizer(name).piece_ends(text)) {
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

TEST(PreTokenizer, UnknownNameIsUnsupportedAndNamed) {
  try {
    PreTokenizer("nonesuch");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("nonesuch"), std::string::npos);
  }
}

TEST(PreTokenizer, EveryRuleCompilesAndCoversItsText) {
  const std::string text =
      "Hello, WORLD's 12345  \r\n\t 你好 カタ 한국 é\u0301 😀\u200d❤️ <sentinel:12> IMGIMGABZ don't ½² \n\n  "
      "x "
      " "
      " ";
  size_t names = 0;
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) {
    for (const std::string_view name : rules.names) {
      ++names;
      std::string joined;
      for (const std::string& piece : split(name, text)) {
        EXPECT_FALSE(piece.empty());
        EXPECT_TRUE(is_valid_utf8(piece)) << name;
        joined += piece;
      }
      EXPECT_EQ(joined, text) << name;
    }
  }
  EXPECT_GT(names, 60u);
}

TEST(PreTokenizer, Llama3TakesThreeDigitsQwenOne) {
  EXPECT_EQ(split("llama-bpe", "12345"), Pieces({"123", "45"}));
  EXPECT_EQ(split("qwen2", "123"), Pieces({"1", "2", "3"}));
  EXPECT_EQ(split("glm4", "1234"), Pieces({"123", "4"}));
  EXPECT_EQ(split("gpt-2", "12345"), Pieces({"12345"}));
}

TEST(PreTokenizer, WhiteSpaceRules) {
  EXPECT_EQ(split("qwen2", "a   b"), Pieces({"a", "  ", " b"}));
  EXPECT_EQ(split("qwen2", "a   "), Pieces({"a", "   "}));
  EXPECT_EQ(split("qwen2", " \n \n x"), Pieces({" \n \n", " x"}));
  EXPECT_EQ(split("qwen2", "a\r\nb"), Pieces({"a", "\r\n", "b"}));
  EXPECT_EQ(split("gpt-2", "a   b"), Pieces({"a", "  ", " b"}));
  EXPECT_EQ(split("gpt-2", "a\nb"), Pieces({"a", "\n", "b"}));  // the gap rule
  EXPECT_EQ(split("qwen2", "a\u3000\u3000b"), Pieces({"a", "\u3000", "\u3000b"}));
  EXPECT_EQ(split("qwen2", "x\u0085\u00a0 y"), Pieces({"x", "\u0085\u00a0", " y"}));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoSpace) {
  // PCRE2's own \s would make these space runs.
  EXPECT_EQ(split("qwen2", "\u180e\u180e!"), Pieces({"\u180e\u180e!"}));
  EXPECT_EQ(split("qwen2", "\u180ea"), Pieces({"\u180ea"}));
}

TEST(PreTokenizer, LettersOfUnicode15AreLetters) {
  EXPECT_EQ(split("qwen2", "\U00031350\U0002EBF0a"), Pieces({"\U00031350\U0002EBF0a"}));
  EXPECT_EQ(split("qwen2", "\U0001E4F0\U0001E4F1"), Pieces({"\U0001E4F0", "\U0001E4F1"}));
  EXPECT_EQ(split("kimi-k2", "a\U00031350b"), Pieces({"a", "\U00031350", "b"}));
  EXPECT_EQ(split("qwen2", "a\U0001FAE8\U000E0FFF!"),
            Pieces({"a", "\U0001FAE8\U000E0FFF!"}));  // a symbol, an unassigned one
}

TEST(PreTokenizer, MarksBelongToWordsInQwen35Only) {
  EXPECT_EQ(split("qwen35", "e\u0301a"), Pieces({"e\u0301a"}));
  EXPECT_EQ(split("qwen2", "e\u0301a"), Pieces({"e", "\u0301a"}));
}

TEST(PreTokenizer, Contractions) {
  EXPECT_EQ(split("qwen2", "I'M he'll x'Re"), Pieces({"I", "'M", " he", "'ll", " x", "'Re"}));
  EXPECT_EQ(split("gpt-2", "I'M I'm"), Pieces({"I", "'", "M", " I", "'m"}));
  EXPECT_EQ(split("gpt-4o", "I'M don't"), Pieces({"I'M", " don't"}));
}

TEST(PreTokenizer, Gpt4oSplitsAtCaseChangesOfAnyScript) {
  EXPECT_EQ(split("gpt-4o", "camelCaseHTTPServer"), Pieces({"camel", "Case", "HTTPServer"}));
  EXPECT_EQ(split("gpt-4o", "приветМир"), Pieces({"привет", "Мир"}));
  EXPECT_EQ(split("gpt-4o", "a/\n/b"), Pieces({"a", "/\n/", "b"}));
  EXPECT_EQ(split("tekken", "don't 123"), Pieces({"don", "'t", " ", "1", "2", "3"}));
}

TEST(PreTokenizer, DeepSeekV3AppliesThreeExpressions) {
  EXPECT_EQ(split("deepseek-v3", "abc1234你好ab"), Pieces({"abc", "123", "4", "你好", "ab"}));
  EXPECT_EQ(split("deepseek-v3", "(foo) [x]"), Pieces({"(foo", ")", " [", "x", "]"}));
  EXPECT_EQ(split("deepseek-v3", "a  1"), Pieces({"a", "  ", "1"}));  // a piece border is the end of text
}

TEST(PreTokenizer, KimiKeepsHanApart) {
  EXPECT_EQ(split("kimi-k2", "abc你好Def 1234"), Pieces({"abc", "你好", "Def", " ", "123", "4"}));
}

TEST(PreTokenizer, ExaoneMoeJoinsWordsOfOneSpace) {
  EXPECT_EQ(split("exaone-moe", "one two  three"), Pieces({"one two", " ", " three"}));
}

TEST(PreTokenizer, LongRunsTakeLinearTime) {
  const size_t n = 300'000;
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) {
    const PreTokenizer pre(rules.names.front());
    for (const char* unit : {"a", "A", " ", "1", "!", "\n", "你", "a ", "'", "\u0301", " \n", "aB"}) {
      std::string text;
      while (text.size() < n) text += unit;
      EXPECT_EQ(pre.piece_ends(text).back(), text.size());
      text += "x";
      EXPECT_EQ(pre.piece_ends(text).back(), text.size());
    }
  }
}

}  // namespace
}  // namespace tierpack::text
