// From prompt ids to text: the loop that run, serve and tests share.
//
// A Generator owns one Session and keeps it between calls: when a prompt begins with exactly the tokens the session
// already holds, only the rest is computed. Recurrent state cannot be taken back, so anything else starts afresh. The
// answer does not depend on which of the two happened.
//
// One thread at a time may use a Generator, and no other session of its engine may run meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "runtime/engine.h"
#include "runtime/reasoning_splitter.h"
#include "runtime/text/sampler.h"

namespace tierpack {

struct GenerateRequest {
  std::vector<uint32_t> prompt;  // at least one token
  text::SamplerOptions sampling;
  uint32_t max_tokens = 0;        // 0 = until the context is full
  std::vector<std::string> stop;  // end the answer when they appear in it; never shown. Reasoning is not searched
  ReasoningSplitter::Start reasoning = ReasoningSplitter::Start::kAnswer;
};

enum class FinishReason {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens or the context was used up
  kCancelled,  // should_stop returned true
};
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateResult {
  FinishReason finish = FinishReason::kCancelled;
  std::vector<uint32_t> tokens;  // generated, an end token included
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;     // of the prompt, already in the session
  uint32_t reasoning_tokens = 0;  // of `tokens`
  double prefill_s = 0;           // until the first token was chosen
  double decode_s = 0;            // after that
  Xxh128 logits;                  // fingerprint: XXH3-128 of the logits that each generated token was chosen from
  ExpertCounters experts;         // what this call added to the engine's counters

  double prefill_rate() const;  // computed prompt tokens per second
  double decode_rate() const;   // tokens after the first per second
};

// A seed that nobody chose, small enough (53 bits) for every reader of JSON numbers.
uint64_t random_seed();

class Generator {
 public:
  // Called with whole UTF-8 characters as soon as they are certain.
  using TextSink = std::function<void(TextKind kind, std::string_view text)>;

  explicit Generator(Engine& engine) : engine_(engine) {}

  // Tokens a prompt and its answer may take together.
  uint32_t context();

  // Throws kUsage for an empty prompt, one that fills the context, or sampling options out of range, and whatever the
  // engine throws; the Generator stays usable. `should_stop` is asked between chunks of the prompt and between tokens.
  GenerateResult generate(const GenerateRequest& request, const TextSink& on_text,
                          const std::function<bool()>& should_stop = {});

  // Forgets the conversation.
  void clear();

 private:
  Session& session();
  GenerateResult run(const GenerateRequest& request, const TextSink& on_text, const std::function<bool()>& should_stop);

  Engine& engine_;
  std::unique_ptr<Session> session_;
};

}  // namespace tierpack
