#include "runtime/text/special_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace tierpack::text {
namespace {

std::vector<std::string> found(const SpecialTokens& tokens, std::string_view text) {
  std::vector<std::string> out;
  for (const auto& match : tokens.find(text)) {
    out.push_back(std::to_string(match.begin) + "+" + std::to_string(match.end - match.begin) + "=" +
                  std::to_string(match.id));
  }
  return out;
}

using Found = std::vector<std::string>;

TEST(SpecialTokens, LongestFirstOverTheWholeText) {
  SpecialTokens tokens;
  tokens.add("ab", 1);
  tokens.add("bcd", 2);
  tokens.add("abx", 3);
  EXPECT_EQ(found(tokens, "abcd"), Found({"1+3=2"}));  // the longer one, although it starts later
  EXPECT_EQ(found(tokens, "abxab"), Found({"0+3=3", "3+2=1"}));
  EXPECT_EQ(found(tokens, "xyz"), Found());
  EXPECT_EQ(found(tokens, ""), Found());
}

TEST(SpecialTokens, OneTokenIsTakenFromLeftToRight) {
  SpecialTokens tokens;
  tokens.add("aa", 1);
  EXPECT_EQ(found(tokens, "aaaaa"), Found({"0+2=1", "2+2=1"}));
}

TEST(SpecialTokens, TheLaterOfEqualTextsCounts) {
  SpecialTokens tokens;
  tokens.add("<a>", 1);
  tokens.add("<a>", 9);
  EXPECT_EQ(found(tokens, "x<a>"), Found({"1+3=9"}));
}

TEST(SpecialTokens, EqualsCuttingTokenByToken) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    SpecialTokens tokens;
    std::vector<std::string> texts;
    for (uint32_t length = 4; length >= 1; --length) {  // one text of each length, so that the order is total
      std::string text;
      for (uint32_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
      tokens.add(text, length);
      texts.push_back(text);
    }
    std::string text;
    for (uint32_t i = 0; i < 30; ++i) text += static_cast<char>('a' + random() % 3);

    std::vector<int> owner(text.size(), 0);
    std::vector<std::pair<size_t, uint32_t>> expected;
    for (const std::string& token : texts) {
      for (size_t at = 0; at + token.size() <= text.size();) {
        const bool free =
            std::all_of(owner.begin() + at, owner.begin() + at + token.size(), [](int o) { return o == 0; });
        if (free && text.compare(at, token.size(), token) == 0) {
          std::fill_n(owner.begin() + at, token.size(), 1);
          expected.emplace_back(at, token.size());
          at += token.size();
        } else {
          ++at;
        }
      }
    }
    std::sort(expected.begin(), expected.end());
    std::vector<std::pair<size_t, uint32_t>> got;
    for (const auto& match : tokens.find(text)) got.emplace_back(match.begin, match.id);
    ASSERT_EQ(got, expected) << text;
  }
}

}  // namespace
}  // namespace tierpack::text
