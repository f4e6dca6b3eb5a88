#include "runtime/generate.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "runtime/expert_report.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Bytes of tokens -> whole characters -> reasoning or answer -> stop strings in the answer.
class TextPath {
 public:
  TextPath(const GenerateRequest& request, const Generator::TextSink& sink)
      : splitter_(request.reasoning), stop_(request.stop), sink_(sink) {}

  // True when a stop string has ended the answer.
  bool push(std::string_view bytes) {
    split(characters_.push(bytes));
    return stop_.stopped();
  }

  void finish() {
    split(characters_.finish());
    splitter_.finish([this](TextKind kind, std::string_view text) { pass(kind, text); });
    if (!stop_.stopped()) emit(TextKind::kAnswer, stop_.finish());
  }

  bool reasoning() const { return splitter_.inside(); }
  bool stopped() const { return stop_.stopped(); }

 private:
  void split(const std::string& text) {
    if (!text.empty()) splitter_.push(text, [this](TextKind kind, std::string_view piece) { pass(kind, piece); });
  }
  void pass(TextKind kind, std::string_view text) {
    if (kind == TextKind::kReasoning) {
      emit(kind, text);
    } else if (!stop_.stopped()) {
      emit(kind, stop_.push(text));
    }
  }
  void emit(TextKind kind, std::string_view text) {
    if (!text.empty() && sink_) sink_(kind, text);
  }

  text::Utf8Stream characters_;
  ReasoningSplitter splitter_;
  text::StopMatcher stop_;
  const Generator::TextSink& sink_;
};

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "cancelled";
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 21 ^ device()) & ((uint64_t{1} << 53) - 1);
}

double GenerateResult::prefill_rate() const {
  return prefill_s > 0 ? static_cast<double>(prompt_tokens - reused_tokens) / prefill_s : 0;
}

double GenerateResult::decode_rate() const {
  return decode_s > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / decode_s : 0;
}

Session& Generator::session() {
  if (!session_) session_ = engine_.new_session();
  return *session_;
}

uint32_t Generator::context() { return session().capacity(); }

void Generator::clear() {
  if (session_) session_->clear();
}

GenerateResult Generator::generate(const GenerateRequest& request, const TextSink& on_text,
                                   const std::function<bool()>& should_stop) {
  try {
    return run(request, on_text, should_stop);
  } catch (const Error& e) {
    // A refused request left the session as it was; after anything else its state is not known.
    if (e.kind() != ErrorKind::kUsage) session_.reset();
    throw;
  } catch (...) {
    session_.reset();
    throw;
  }
}

GenerateResult Generator::run(const GenerateRequest& request, const TextSink& on_text,
                              const std::function<bool()>& should_stop) {
  const auto start = Clock::now();
  Session& session = this->session();
  const auto count = static_cast<uint32_t>(request.prompt.size());
  if (request.prompt.empty()) fail(ErrorKind::kUsage, "generating from an empty prompt: at least one token is needed");
  if (request.prompt.size() >= session.capacity()) {
    fail(ErrorKind::kUsage, "the prompt has {} tokens, but the context holds {} tokens, prompt and answer together",
         request.prompt.size(), session.capacity());
  }
  text::Sampler sampler(request.sampling);
  const text::Tokenizer& tokenizer = engine_.tokenizer();
  const ExpertCounters before = engine_.expert_counters();

  GenerateResult result;
  result.prompt_tokens = count;
  const std::vector<uint32_t>& held = session.tokens();
  if (held.size() < request.prompt.size() && std::equal(held.begin(), held.end(), request.prompt.begin())) {
    result.reused_tokens = static_cast<uint32_t>(held.size());
  } else {
    session.clear();
  }

  TextPath text(request, on_text);
  Xxh3Stream fingerprint;
  std::vector<uint32_t> history = request.prompt;
  uint32_t chosen = 0;
  const Session::LogitsCallback choose = [&](uint32_t, std::span<const float> logits) {
    fingerprint.update(std::as_bytes(logits));
    chosen = sampler.sample(logits, history);
  };

  // Computes `tokens` and chooses the one after them; false when cancelled.
  const auto advance = [&](std::span<const uint32_t> tokens) {
    if (should_stop && should_stop()) return false;
    try {
      session.append(tokens, false, choose, should_stop);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kInterrupted) throw;
      return false;
    }
    history.push_back(chosen);
    result.tokens.push_back(chosen);
    return true;
  };

  std::span<const uint32_t> next = std::span(request.prompt).subspan(result.reused_tokens);
  Clock::time_point first_token = start;
  for (;;) {
    if (!advance(next)) {
      result.finish = FinishReason::kCancelled;
      break;
    }
    if (result.tokens.size() == 1) {
      result.prefill_s = seconds_since(start);
      first_token = Clock::now();
    }
    if (tokenizer.is_end_of_generation(chosen)) {
      result.finish = FinishReason::kStop;
      break;
    }
    const bool was_reasoning = text.reasoning();
    const bool stopped = text.push(tokenizer.token_bytes(chosen));
    if (was_reasoning || text.reasoning()) ++result.reasoning_tokens;
    if (stopped) {
      result.finish = FinishReason::kStop;
      break;
    }
    if (result.tokens.size() == request.max_tokens || session.length() == session.capacity()) {
      result.finish = FinishReason::kLength;
      break;
    }
    next = std::span(result.tokens).last(1);
  }
  text.finish();
  if (text.stopped() && result.finish == FinishReason::kLength) result.finish = FinishReason::kStop;

  if (result.tokens.empty()) {
    result.prefill_s = seconds_since(start);
  } else {
    result.decode_s = seconds_since(first_token);
  }
  result.logits = fingerprint.digest();
  result.experts = engine_.expert_counters() - before;
  return result;
}

}  // namespace tierpack
