// A prompt given at once and one given in two requests, the second on top of what the session already holds, are answered from
// the same logits.
#include <gtest/gtest.h>

#include "runtime/generate.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack {
namespace {

using namespace testing_support;

GenerateRequest greedy(std::vector<uint32_t> prompt, uint32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

TEST(PrefixReuse, ACachedPrefixGivesTheSameLogits) {
  for (const kernels::KernelTable* table : {&kernels::reference(), &kernels::best()}) {
    for (const uint32_t chunk : {3u, 64u, 512u}) {
      EngineOptions options;
      options.pack = pebble_pack();
      options.threads = 2;
      options.context = 256;
      options.chunk = chunk;
      options.isa = table->name;
      const std::unique_ptr<Engine> engine = Engine::open(options);

      Generator halves(*engine);
      const GenerateResult first = halves.generate(greedy(some_tokens(75, engine->config().vocab), 4), {});
      ASSERT_FALSE(first.tokens.empty());
      // What was said so far, without the last token, which the session has not computed; then more.
      std::vector<uint32_t> prompt = some_tokens(75, engine->config().vocab);
      prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
      const std::vector<uint32_t> more = some_tokens(30, engine->config().vocab, 9);
      prompt.insert(prompt.end(), more.begin(), more.end());
      const GenerateResult reused = halves.generate(greedy(prompt, 6), {});
      EXPECT_EQ(reused.reused_tokens, 75 + first.tokens.size() - 1);

      Generator whole(*engine);
      const GenerateResult fresh = whole.generate(greedy(prompt, 6), {});
      EXPECT_EQ(fresh.reused_tokens, 0u);
      EXPECT_EQ(fresh.tokens, reused.tokens) << table->name << ", chunks of " << chunk;
      EXPECT_EQ(fresh.logits.hex(), reused.logits.hex()) << table->name << ", chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace tierpack
