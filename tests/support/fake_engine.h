// An Engine without a model: a byte tokenizer and a script in the prompt, for everything built on runtime/engine.h.
//
// The text of the timeline decides the next token alone. After "say:TEXT|" (the end of a user's message counts as the
// bar) the model says TEXT and then its end token <|im_end|>; without "say:" it says "abcdefgh..." for ever. Logits are
// 20 for that token and a small hash of the timeline elsewhere, so that they differ at every position. Every token is
// one byte, except <|im_start|>, <|im_end|> (control) and <think>, </think> (user-defined).
//
// The chat template is ChatML with three arguments: think (the generation prompt opens a block), fail (raises it), late
// ("refuse" or "drop" system messages that are not the first). Routing: each token of each layer goes to `used` experts
// chosen by a hash of the timeline.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "formats/metadata.h"
#include "runtime/engine.h"
#include "runtime/text/tokenizer.h"

namespace tierpack::testing_support {

struct FakeOptions {
  uint32_t context = 4096;
  uint32_t chunk = 16;
  bool bos = false;                         // the tokenizer wants <|im_start|> in front
  std::chrono::microseconds token_time{0};  // each generated token takes this long
  std::chrono::microseconds chunk_time{0};  // each chunk of a prompt takes this long
};

// tokenizer.* keys of the fake model.
Metadata fake_metadata(const FakeOptions& options = {});

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(const FakeOptions& options = {});

  const EngineOptions& options() const override { return engine_options_; }
  const Pack& pack() const override;  // throws: there is none
  const ModelConfig& config() const override { return config_; }
  const text::Tokenizer& tokenizer() const override { return tokenizer_; }
  std::unique_ptr<Session> new_session() override;
  ExpertCounters expert_counters() const override;

  const FakeOptions& fake() const { return fake_; }
  uint32_t next_token(std::span<const uint32_t> tokens) const;

  std::atomic<uint64_t> computed{0};  // tokens that went through a session
  std::atomic<bool> broken{false};    // append throws kCorrupt

 private:
  FakeOptions fake_;
  EngineOptions engine_options_;
  ModelConfig config_;
  text::Tokenizer tokenizer_;
};

}  // namespace tierpack::testing_support
