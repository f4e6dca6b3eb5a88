#include "runtime/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace tierpack::text {
namespace {

TEST(StopMatcher, FindsAStopAcrossBorders) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("a E"), "a ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("D more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop_index(), 0u);
  EXPECT_EQ(matcher.push("x"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackWhatWasNoStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("EN"), "");
  EXPECT_EQ(matcher.push("x"), "ENx");
  EXPECT_EQ(matcher.push("EE"), "E");
  EXPECT_EQ(matcher.finish(), "E");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, TheStopCompleteFirstCounts) {
  StopMatcher inner({"abc", "b"});
  EXPECT_EQ(inner.push("xabc"), "xa");
  EXPECT_EQ(inner.stop_index(), 1u);
  StopMatcher together({"c", "abc"});  // at the same byte: the longest
  EXPECT_EQ(together.push("xabc"), "x");
  EXPECT_EQ(together.stop_index(), 1u);
}

TEST(StopMatcher, SelfOverlappingStop) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aaa"), "a");
  EXPECT_EQ(matcher.push("ab"), "a");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, EmptyStopsAreIgnored) {
  StopMatcher matcher({"", "x"});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.push("dx"), "d");
  EXPECT_EQ(matcher.stop_index(), 1u);
  StopMatcher none({});
  EXPECT_EQ(none.push("abc"), "abc");
}

// The definition on the whole text: the first end of any stop, the longest there.
TEST(StopMatcher, OutcomeDoesNotDependOnTheCuts) {
  std::mt19937 random(11);
  const auto word = [&](size_t length) {
    std::string out;
    for (size_t i = 0; i < length; ++i) out += static_cast<char>('a' + random() % 2);
    return out;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(word(3 + random() % 5));
    const std::string text = word(random() % 40);
    std::string expected = text;
    bool stops_somewhere = false;
    for (size_t end = 1; end <= text.size() && !stops_somewhere; ++end) {
      for (const std::string& stop : stops) {
        if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
        const std::string before = text.substr(0, end - stop.size());
        if (!stops_somewhere || before.size() < expected.size()) expected = before;
        stops_somewhere = true;
      }
    }
    StopMatcher matcher(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t step = 1 + random() % 4;
      got += matcher.push(std::string_view(text).substr(at, step));
      at += step;
      EXPECT_TRUE(expected.starts_with(got)) << "more than the answer was shown";
    }
    got += matcher.finish();
    ASSERT_EQ(got, expected) << text;
    ASSERT_EQ(matcher.stopped(), stops_somewhere);
  }
}

}  // namespace
}  // namespace tierpack::text
