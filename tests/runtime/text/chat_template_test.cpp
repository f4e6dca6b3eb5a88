// What Jinja2 itself cannot check: errors and their kinds, limits, hostile templates. That the output is Jinja2's is
// the subject of template_conformance/.
#include "runtime/text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "formats/gguf.h"

namespace tierpack::text {
namespace {

std::string render(const std::string& source, const std::string& variables = "{}") {
  return ChatTemplate(source).render(variables, 0);
}

struct Failure {
  ErrorKind kind;
  std::string message;
};

Failure failure_of(const std::string& source, const std::string& variables = "{}") {
  try {
    const std::string out = render(source, variables);
    ADD_FAILURE() << "rendered: " << out.substr(0, 200);
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {ErrorKind::kInternal, ""};
}

TEST(ChatTemplate, RendersTheEmbeddedModelsTemplate) {
  const std::string source =
      open_gguf(TIERPACK_SOURCE_DIR "/models/pebble").metadata().string("tokenizer.chat_template");
  EXPECT_EQ(render(source, R"({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true})"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, SyntaxErrorsAreCorruptWithTheirLine) {
  const Failure failure = failure_of("a\nb\n{% if x %}\n{{ y + }}\n{% endif %}");
  EXPECT_EQ(failure.kind, ErrorKind::kCorrupt);
  EXPECT_NE(failure.message.find("line 4"), std::string::npos) << failure.message;
  EXPECT_EQ(failure_of("{% if x %}").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(failure_of("{{ 'x }}").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(failure_of("\xFF").kind, ErrorKind::kCorrupt);
}

TEST(ChatTemplate, WhatIsNotUnderstoodIsNamedWithItsLine) {
  for (const std::string source :
       {"\n{% include 'x' %}", "\n{{ x | urlize }}", "\n{{ x is nosuch }}", "\n{% extends 'y' %}"}) {
    const Failure failure = failure_of(source);
    EXPECT_EQ(failure.kind, ErrorKind::kUnsupported) << source;
    EXPECT_NE(failure.message.find("line 2"), std::string::npos) << failure.message;
  }
  EXPECT_NE(failure_of("{{ x | urlize }}").message.find("urlize"), std::string::npos);
  EXPECT_EQ(render("{% if false %}{{ x | urlize }}{% endif %}ok"), "ok");  // deferred, as in Jinja2
}

TEST(ChatTemplate, FailuresWhileRenderingAreUsageWithTheirLine) {
  const Failure failure = failure_of("a\n\n{{ messages[0].content.x }}", R"({"messages": [{"role": "user"}]})");
  EXPECT_EQ(failure.kind, ErrorKind::kUsage);
  EXPECT_NE(failure.message.find("line 3"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("'dict object' has no attribute 'content'"), std::string::npos) << failure.message;
  EXPECT_NE(failure_of("{{ nosuch.x }}").message.find("'nosuch' is undefined"), std::string::npos);
}

TEST(ChatTemplate, RaiseExceptionGivesItsOwnMessage) {
  const Failure failure = failure_of("{{ raise_exception('No user query found in messages.') }}");
  EXPECT_EQ(failure.kind, ErrorKind::kUsage);
  EXPECT_EQ(failure.message, "No user query found in messages.");
}

TEST(ChatTemplate, VariablesMustBeAJsonObject) {
  EXPECT_EQ(failure_of("x", "[1]").kind, ErrorKind::kUsage);
  EXPECT_EQ(failure_of("x", "{\"a\": }").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(failure_of("x", "").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(failure_of("x", "{\"a\": \"\xFF\"}").kind, ErrorKind::kCorrupt);
  EXPECT_EQ(failure_of("x", "{\"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}").kind,
            ErrorKind::kCorrupt);
}

TEST(ChatTemplate, NumbersKeepTheirSpelling) {
  EXPECT_EQ(render("{{ a }} {{ b }} {{ c }} {{ d | tojson }} {{ e }}",
                   R"({"a": 1, "b": 1.0, "c": 18446744073709551616, "d": [9223372036854775808, 1e2], "e": -5})"),
            "1 1.0 18446744073709551616 [9223372036854775808, 100.0] -5");
}

TEST(ChatTemplate, ABraceBeforeANulByteIsText) {
  EXPECT_EQ(render(std::string("a{\0{{ 1 }}{\0", 12)), std::string("a{\0" "1{\0", 6));
}

TEST(ChatTemplate, DateComesFromTheGivenTime) {
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%Y') }}").render("{}", 86400 * 400), "1971");
}

TEST(ChatTemplate, LoopsAreBounded) {
  const Failure steps = failure_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  EXPECT_EQ(steps.kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{% for a in range(1000000) %}x{% endfor %}").kind, ErrorKind::kUsage);
}

TEST(ChatTemplate, OutputAndMemoryAreBounded) {
  EXPECT_EQ(
      failure_of("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}")
          .kind,
      ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{{ 'a' * 9000000000000 }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{{ 'x' | indent(999999999999, true) }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{{ 'x'.center(999999999999) }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of("{{ [1] * 99999999999 }}").kind, ErrorKind::kCapacity);
}

TEST(ChatTemplate, SharedStructuresDoNotExplode) {
  // Doubling by reference: 2^60 leaves.
  const std::string grow =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_EQ(failure_of(grow + "{{ ns.x }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of(grow + "{{ ns.x | tojson }}").kind, ErrorKind::kCapacity);
  EXPECT_EQ(failure_of(grow + "{% set y = ns.x %}" + grow + "{{ ns.x == y }}").kind, ErrorKind::kCapacity);
  const std::string deep = "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(failure_of(deep + "{{ ns.x }}").kind, ErrorKind::kUsage);
  EXPECT_EQ(failure_of(deep + "{{ ns.x | tojson }}").kind, ErrorKind::kUsage);
  EXPECT_EQ(failure_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").kind, ErrorKind::kUsage);
}

TEST(ChatTemplate, RecursionIsBounded) {
  EXPECT_EQ(failure_of("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}").kind, ErrorKind::kUsage);
  EXPECT_EQ(failure_of("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}").kind,
            ErrorKind::kUnsupported);
  EXPECT_EQ(failure_of("{{ " + std::string(100000, '-') + "1 }}").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(failure_of("{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}").kind,
            ErrorKind::kUnsupported);
  std::string blocks, chain = "{{ x", sum = "{{ 1", logic = "{{ 1";
  for (int i = 0; i < 10000; ++i) {
    blocks += "{% if x %}";
    chain += ".x";
    sum += " + 1";
    logic += " and 1";
  }
  EXPECT_EQ(failure_of(blocks).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(failure_of(chain + " }}").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(failure_of(sum + " }}").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(failure_of(logic + " }}").kind, ErrorKind::kUnsupported);
}

TEST(ChatTemplate, LongChainsOfOperatorsWork) {
  std::string sum = "{{ 0", concat = "{{ ''", logic = "{{ 1";
  for (int i = 0; i < 1500; ++i) {
    sum += " + 1";
    concat += " ~ 'a'";
    logic += " and 1";
  }
  EXPECT_EQ(render(sum + " }}"), "1500");
  EXPECT_EQ(render(concat + " }}"), std::string(1500, 'a'));
  EXPECT_EQ(render(logic + " }}"), "1");
}

TEST(ChatTemplate, AppendingPieceByPieceIsLinear) {
  std::string variables = "{\"part\": \"" + std::string(4000, 'x') + "\"}";
  const std::string out = render(
      "{% set ns = namespace(text='') %}{% for i in range(5000) %}{% set ns.text = ns.text + part + '\\n' %}{% endfor "
      "%}"
      "{{ ns.text | length }}",
      variables);
  EXPECT_EQ(out, "20005000");
}

TEST(ChatTemplate, ALongConversationRenders) {
  std::string variables = "{\"messages\": [";
  for (int i = 0; i < 2000; ++i) {
    variables += std::string(i ? "," : "") + R"({"role": "user", "content": ")" + std::string(1000, 'w') + "\"}";
  }
  const std::string out =
      render("{% for m in messages %}<{{ m.role }}>{{ m['content'].split('</think>')[-1] | trim }}\n{% endfor %}",
             variables + "]}");
  EXPECT_EQ(out.size(), 2000u * 1007);
}

TEST(ChatTemplate, MayBeSharedBetweenThreads) {
  const ChatTemplate chat(
      "{% macro m(x) %}{{ x * 2 }}{% endmacro %}{% for i in range(1000) %}{{ m(i) }},{% endfor %}{{ v | upper }}");
  const std::string expected = chat.render("{\"v\": \"é\"}");
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] { results[i] = chat.render("{\"v\": \"é\"}"); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace tierpack::text
