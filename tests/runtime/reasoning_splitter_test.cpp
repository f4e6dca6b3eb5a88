#include "runtime/reasoning_splitter.h"

#include <gtest/gtest.h>

namespace tierpack {
namespace {

using Start = ReasoningSplitter::Start;

struct Parts {
  std::string reasoning;
  std::string answer;
  bool operator==(const Parts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& p) {
  return out << "{" << p.reasoning << "|" << p.answer << "}";
}

// In pieces of `step` bytes.
Parts split(Start start, std::string_view text, size_t step) {
  ReasoningSplitter splitter(start);
  Parts parts;
  const auto sink = [&](TextKind kind, std::string_view piece) {
    EXPECT_FALSE(piece.empty());
    (kind == TextKind::kReasoning ? parts.reasoning : parts.answer) += piece;
  };
  for (size_t at = 0; at < text.size(); at += step) splitter.push(text.substr(at, step), sink);
  splitter.finish(sink);
  return parts;
}

TEST(ReasoningSplitter, TheSameForEveryCut) {
  const struct {
    Start start;
    const char* text;
    Parts expected;
  } cases[] = {
      {Start::kAnswer, "<think>a</think>b", {"", "<think>a</think>b"}},
      {Start::kDetect, "<think>a</think>b", {"a", "b"}},
      {Start::kDetect, "\n <think>\n\na\nb\n</think>\n\nc\n", {"a\nb", "c\n"}},
      {Start::kDetect, "plain", {"", "plain"}},
      {Start::kDetect, "  plain", {"", "  plain"}},
      {Start::kDetect, "<thin", {"", "<thin"}},
      {Start::kDetect, "<thinking> is a word", {"", "<thinking> is a word"}},
      {Start::kDetect, "a <think>b</think>", {"", "a <think>b</think>"}},
      {Start::kDetect, "<think>never closed\n", {"never closed\n", ""}},
      {Start::kDetect, "<think></think>x", {"", "x"}},
      {Start::kDetect, "<think>\n\n</think>\n\nx", {"", "x"}},
      {Start::kInside, "a < b </thin </think>c", {"a < b </thin ", "c"}},
      {Start::kInside, "\na</think>b</think>c", {"a", "b</think>c"}},
      {Start::kInside, "a</think", {"a</think", ""}},
      {Start::kInside, "a</think>\nb<think>c</think>", {"a", "b<think>c</think>"}},
      {Start::kInside, "", {"", ""}},
      {Start::kDetect, "<think>\n\n</think>\n\n<think>\n\n</think>\n\nx", {"", "x"}},
      {Start::kDetect, "<think>a</think>\n<think>b\n</think>c <think>d</think>", {"a\n\nb", "c <think>d</think>"}},
      {Start::kInside, "a</think><think></think><think>b", {"a\n\nb", ""}},
      {Start::kInside, "a</think>\n\n<thinker", {"a", "<thinker"}},
      {Start::kInside, "a</think>\n\n<thin", {"a", "<thin"}},
  };
  for (const auto& c : cases) {
    for (const size_t step : {1, 2, 3, 5, 100})
      EXPECT_EQ(split(c.start, c.text, step), c.expected) << c.text << " by " << step;
  }
}

TEST(ReasoningSplitter, NothingCertainIsHeldBack) {
  ReasoningSplitter splitter(Start::kInside);
  std::string seen;
  const auto sink = [&](TextKind, std::string_view piece) { seen += piece; };
  splitter.push("step one", sink);
  EXPECT_EQ(seen, "step one");
  splitter.push("\n", sink);
  EXPECT_EQ(seen, "step one");  // perhaps the line break before the closing tag
  splitter.push("step two <", sink);
  EXPECT_EQ(seen, "step one\nstep two ");
}

TEST(ReasoningSplitter, StartFollowsThePrompt) {
  EXPECT_EQ(ReasoningSplitter::after_prompt("<|im_start|>assistant\n<think>\n"), Start::kInside);
  EXPECT_EQ(ReasoningSplitter::after_prompt("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Start::kAnswer);
  EXPECT_EQ(ReasoningSplitter::after_prompt("<|im_start|>assistant\n"), Start::kDetect);
  EXPECT_EQ(ReasoningSplitter::after_prompt(""), Start::kDetect);
}

}  // namespace
}  // namespace tierpack
