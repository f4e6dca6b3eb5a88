#include "runtime/generate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/fake_engine.h"

namespace tierpack {
namespace {

using testing_support::FakeEngine;
using testing_support::FakeOptions;

struct Answer {
  GenerateResult result;
  std::vector<std::string> pieces;
  std::string text;
  std::string reasoning;
};

GenerateRequest request_for(const FakeEngine& engine, std::string_view prompt) {
  GenerateRequest request;
  request.prompt = engine.tokenizer().encode_prompt(prompt, text::Tokenizer::Special::kParse);
  request.sampling.temperature = 0;
  return request;
}

Answer answer(Generator& generator, const GenerateRequest& request, const std::function<bool()>& should_stop = {}) {
  Answer a;
  a.result = generator.generate(
      request,
      [&](TextKind kind, std::string_view piece) {
        (kind == TextKind::kAnswer ? a.text : a.reasoning) += piece;
        a.pieces.emplace_back(piece);
      },
      should_stop);
  return a;
}

TEST(Generate, EndsWithTheEndToken) {
  FakeEngine engine;
  Generator generator(engine);
  const Answer a = answer(generator, request_for(engine, "say:hello|"));
  EXPECT_EQ(a.text, "hello");
  EXPECT_EQ(a.result.finish, FinishReason::kStop);
  EXPECT_EQ(a.result.prompt_tokens, 10u);
  ASSERT_EQ(a.result.tokens.size(), 6u);
  EXPECT_EQ(a.result.tokens.back(), 257u);
  EXPECT_EQ(a.result.experts.requests, 15u * 3 * 2);  // the end token itself is never computed
}

TEST(Generate, MaxTokensIsExact) {
  FakeEngine engine;
  Generator generator(engine);
  for (const uint32_t limit : {1u, 2u, 7u}) {
    GenerateRequest request = request_for(engine, "x");
    request.max_tokens = limit;
    const Answer a = answer(generator, request);
    EXPECT_EQ(a.result.tokens.size(), limit);
    EXPECT_EQ(a.text.size(), limit);
    EXPECT_EQ(a.result.finish, FinishReason::kLength);
  }
  GenerateRequest request = request_for(engine, "say:ab|");
  request.max_tokens = 2;
  EXPECT_EQ(answer(generator, request).result.finish, FinishReason::kLength);
  request.max_tokens = 3;  // the end token counts
  EXPECT_EQ(answer(generator, request).result.finish, FinishReason::kStop);
}

TEST(Generate, EndsWhenTheContextIsFull) {
  FakeEngine engine(FakeOptions{.context = 20});
  Generator generator(engine);
  EXPECT_EQ(generator.context(), 20u);
  const Answer a = answer(generator, request_for(engine, "0123456789"));
  EXPECT_EQ(a.result.finish, FinishReason::kLength);
  EXPECT_EQ(a.result.tokens.size(), 11u);  // ten fill the context, one more is chosen from the last logits
  try {
    answer(generator, request_for(engine, "01234567890123456789"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("20 tokens"), std::string::npos) << e.what();
  }
  EXPECT_THROW(answer(generator, GenerateRequest{}), Error);
}

TEST(Generate, StopStringsAcrossTokens) {
  FakeEngine engine;
  Generator generator(engine);
  GenerateRequest request = request_for(engine, "say:one STOP two|");
  request.stop = {"STOP"};
  Answer a = answer(generator, request);
  EXPECT_EQ(a.text, "one ");
  EXPECT_EQ(a.result.finish, FinishReason::kStop);
  EXPECT_EQ(a.result.tokens.size(), 8u);

  request = request_for(engine, "say:one STO two|");
  request.stop = {"STOP", "never"};
  a = answer(generator, request);
  EXPECT_EQ(a.text, "one STO two");

  // What was held back when the answer ends is given out.
  request = request_for(engine, "say:one STO|");
  request.stop = {"STOP"};
  a = answer(generator, request);
  EXPECT_EQ(a.text, "one STO");
}

TEST(Generate, StopStringAtTheLimitCountsAsStop) {
  FakeEngine engine;
  Generator generator(engine);
  GenerateRequest request = request_for(engine, "say:abc|");
  request.stop = {"c"};
  request.max_tokens = 3;
  const Answer a = answer(generator, request);
  EXPECT_EQ(a.text, "ab");
  EXPECT_EQ(a.result.finish, FinishReason::kStop);
}

TEST(Generate, PiecesAreWholeCharacters) {
  FakeEngine engine;
  Generator generator(engine);
  const Answer a = answer(generator, request_for(engine, "say:h\xC3\xA9 \xF0\x9F\x98\x80 \xE4\xB8\xAD|"));
  EXPECT_EQ(a.text, "h\xC3\xA9 \xF0\x9F\x98\x80 \xE4\xB8\xAD");
  EXPECT_EQ(a.pieces.size(), 6u);
  // Cut inside a character by the limit: the rest becomes U+FFFD, never half a character.
  GenerateRequest request = request_for(engine, "say:\xF0\x9F\x98\x80|");
  request.max_tokens = 2;
  EXPECT_EQ(answer(generator, request).text, "\xEF\xBF\xBD");
}

TEST(Generate, ReasoningIsSeparatedAndNotSearchedForStops) {
  FakeEngine engine;
  Generator generator(engine);
  GenerateRequest request = request_for(engine, "say:<think>so STOP it is</think>\n\nyes STOP no|");
  request.reasoning = ReasoningSplitter::Start::kDetect;
  request.stop = {"STOP"};
  Answer a = answer(generator, request);
  EXPECT_EQ(a.reasoning, "so STOP it is");
  EXPECT_EQ(a.text, "yes ");
  EXPECT_EQ(a.result.reasoning_tokens, 15u);  // both tags and 13 bytes

  request.reasoning = ReasoningSplitter::Start::kAnswer;
  a = answer(generator, request);
  EXPECT_EQ(a.reasoning, "");
  EXPECT_EQ(a.text, "<think>so ");
  EXPECT_EQ(a.result.reasoning_tokens, 0u);
}

TEST(Generate, ReusesAnExactPrefixAndNothingElse) {
  FakeEngine engine;
  Generator kept(engine);
  const Answer first = answer(kept, request_for(engine, "say:hello|"));
  EXPECT_EQ(first.result.reused_tokens, 0u);

  const auto fresh = [&](std::string_view prompt) {
    Generator other(engine);
    return answer(other, request_for(engine, prompt));
  };
  // The session holds the prompt and the answer without its end token.
  const uint64_t before = engine.computed;
  Answer next = answer(kept, request_for(engine, "say:hello|hello<|im_end|>say:again|"));
  EXPECT_EQ(next.result.reused_tokens, 15u);
  EXPECT_EQ(engine.computed - before, next.result.prompt_tokens - 15u + next.result.tokens.size() - 1);
  Answer expected = fresh("say:hello|hello<|im_end|>say:again|");
  EXPECT_EQ(next.text, expected.text);
  EXPECT_EQ(next.result.tokens, expected.result.tokens);
  EXPECT_EQ(next.result.logits, expected.result.logits);

  // Shorter, equal or different prompts start afresh, and answer the same.
  for (const char* prompt : {"say:hello|", "say:hullo|x", "say:h|", "say:h|"}) {
    next = answer(kept, request_for(engine, prompt));
    expected = fresh(prompt);
    EXPECT_EQ(next.result.reused_tokens, 0u) << prompt;
    EXPECT_EQ(next.result.logits, expected.result.logits) << prompt;
    EXPECT_EQ(next.text, expected.text) << prompt;
  }
}

TEST(Generate, FingerprintFollowsTheLogits) {
  FakeEngine engine;
  Generator a(engine), b(engine);
  EXPECT_EQ(answer(a, request_for(engine, "say:hello|")).result.logits,
            answer(b, request_for(engine, "say:hello|")).result.logits);
  EXPECT_NE(answer(a, request_for(engine, "say:hello|")).result.logits,
            answer(b, request_for(engine, "say:hallo|")).result.logits);
}

TEST(Generate, CancelsBetweenChunksAndBetweenTokens) {
  FakeEngine engine(FakeOptions{.chunk = 4});
  Generator generator(engine);
  int asked = 0;
  Answer a = answer(generator, request_for(engine, "0123456789ABCDEF"), [&] { return ++asked > 3; });
  EXPECT_EQ(a.result.finish, FinishReason::kCancelled);
  EXPECT_TRUE(a.result.tokens.empty());
  EXPECT_EQ(engine.computed, 8u);

  // What was computed before is not lost, and the answer not different.
  a = answer(generator, request_for(engine, "0123456789ABCDEFsay:x|"));
  EXPECT_EQ(a.result.reused_tokens, 8u);
  EXPECT_EQ(a.text, "x");

  size_t seen = 0;
  a.result = generator.generate(
      request_for(engine, "x"), [&](TextKind, std::string_view) { ++seen; }, [&] { return seen >= 5; });
  EXPECT_EQ(a.result.finish, FinishReason::kCancelled);
  EXPECT_EQ(a.result.tokens.size(), 5u);
}

TEST(Generate, AFailureOfTheEngineDoesNotStick) {
  FakeEngine engine;
  Generator generator(engine);
  answer(generator, request_for(engine, "say:a|"));
  engine.broken = true;
  EXPECT_THROW(answer(generator, request_for(engine, "say:a|b")), Error);
  engine.broken = false;
  const Answer a = answer(generator, request_for(engine, "say:a|bsay:c|"));
  EXPECT_EQ(a.result.reused_tokens, 0u);
  EXPECT_EQ(a.text, "c");
}

TEST(Generate, OptionsOutOfRangeLeaveTheSessionAlone) {
  FakeEngine engine;
  Generator generator(engine);
  answer(generator, request_for(engine, "say:a|"));
  GenerateRequest bad = request_for(engine, "say:a|ab");
  bad.sampling.top_p = -1;
  EXPECT_THROW(answer(generator, bad), Error);
  EXPECT_EQ(answer(generator, request_for(engine, "say:a|ab")).result.reused_tokens, 7u);
}

}  // namespace
}  // namespace tierpack
