#include "tests/support/fake_engine.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "base/error.h"

namespace tierpack::testing_support {

namespace {

constexpr const char* kChatMl =
    "{%- for m in messages %}{%- if m.role == 'system' and not loop.first and late == 'refuse' %}"
    "{{- raise_exception('late system message') }}{%- endif %}"
    "{%- if m.role != 'system' or loop.first or late != 'drop' %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if think is defined %}{{- '<think>\\n' }}{%- "
    "endif %}"
    "{%- endif %}{%- if fail is defined %}{{- raise_exception(fail) }}{%- endif %}";

constexpr std::string_view kAssistant = "<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kThink = "<think>\n";
constexpr uint32_t kTypeNormal = 1, kTypeControl = 3, kTypeUserDefined = 4;

// Byte -> the character GPT-2's alphabet writes it as.
std::string alphabet_character(unsigned byte) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> t(256);
    uint32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      t[b] = printable ? b : next++;
    }
    return t;
  }();
  const uint32_t c = table[byte];
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

MetaValue strings(std::vector<std::string> values) {
  return MetaValue::array(ValueType::kString, MetaValue::Array(std::move(values)));
}

uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

class FakeSession final : public Session {
 public:
  explicit FakeSession(FakeEngine& engine) : engine_(engine) {}

  void append(std::span<const uint32_t> tokens, bool all, const LogitsCallback& on_logits,
              const std::function<bool()>& should_stop) override {
    if (engine_.broken) fail(ErrorKind::kCorrupt, "record 7 of experts.bin is damaged");
    if (tokens_.size() + tokens.size() > capacity()) fail(ErrorKind::kUsage, "the fake context is full");
    for (const uint32_t token : tokens) {
      if (token >= engine_.config().vocab) fail(ErrorKind::kUsage, "token {} is out of range", token);
    }
    for (size_t at = 0; at < tokens.size(); ++at) {
      if (at % engine_.fake().chunk == 0) {
        if (should_stop && should_stop()) fail(ErrorKind::kInterrupted, "stopped");
        std::this_thread::sleep_for(tokens.size() > 1 ? engine_.fake().chunk_time : engine_.fake().token_time);
      }
      tokens_.push_back(tokens[at]);
      hash_ = mix(hash_ ^ tokens[at]);
      ++engine_.computed;
      observe();
      if (on_logits && (all || at + 1 == tokens.size())) give(on_logits);
    }
  }

  uint32_t length() const override { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t capacity() const override { return engine_.fake().context; }
  const std::vector<uint32_t>& tokens() const override { return tokens_; }
  void clear() override {
    tokens_.clear();
    hash_ = 0;
  }
  void set_observer(ForwardObserver* observer) override { observer_ = observer; }

 private:
  void give(const LogitsCallback& on_logits) {
    std::vector<float> logits(engine_.config().vocab);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(mix(hash_ + i) % 1000) / 1000.0f;
    logits[engine_.next_token(tokens_)] = 20;
    on_logits(length() - 1, logits);
  }

  void observe() {
    if (observer_ == nullptr) return;
    const ModelConfig& c = engine_.config();
    for (uint32_t layer = 0; layer < c.layers; ++layer) {
      const auto first = static_cast<uint32_t>(mix(hash_ + layer) % c.experts);
      const uint32_t experts[] = {first, (first + 1 + tokens_.back() % (c.experts - 1)) % c.experts};
      const float weights[] = {0.75f, 0.25f};
      observer_->on_route(layer, length() - 1, experts, weights);
    }
  }

  FakeEngine& engine_;
  std::vector<uint32_t> tokens_;
  uint64_t hash_ = 0;
  ForwardObserver* observer_ = nullptr;
};

}  // namespace

Metadata fake_metadata(const FakeOptions& options) {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  for (unsigned byte = 0; byte < 256; ++byte) {
    tokens.push_back(alphabet_character(byte));
    types.push_back(kTypeNormal);
  }
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
    tokens.push_back(control);
    types.push_back(kTypeControl);
  }
  for (const char* tag : {"<think>", "</think>"}) {
    tokens.push_back(tag);
    types.push_back(kTypeUserDefined);
  }
  const auto text = [](const char* value) { return MetaValue::scalar(ValueType::kString, std::string(value)); };
  Metadata metadata("fake model");
  metadata.add("tokenizer.ggml.model", text("gpt2"));
  metadata.add("tokenizer.ggml.pre", text("qwen2"));
  metadata.add("tokenizer.ggml.tokens", strings(std::move(tokens)));
  metadata.add("tokenizer.ggml.token_type", MetaValue::array(ValueType::kI32, MetaValue::Array(std::move(types))));
  metadata.add("tokenizer.ggml.merges", strings({}));
  metadata.add("tokenizer.ggml.bos_token_id", MetaValue::scalar(ValueType::kU32, uint64_t{256}));
  metadata.add("tokenizer.ggml.eos_token_id", MetaValue::scalar(ValueType::kU32, uint64_t{257}));
  metadata.add("tokenizer.ggml.add_bos_token", MetaValue::scalar(ValueType::kBool, options.bos));
  metadata.add("tokenizer.chat_template", text(kChatMl));
  return metadata;
}

FakeEngine::FakeEngine(const FakeOptions& options)
    : fake_(options), tokenizer_(text::Tokenizer::from_metadata(fake_metadata(options))) {
  engine_options_.context = options.context;
  engine_options_.chunk = options.chunk;
  config_.vocab = tokenizer_.size();
  config_.layers = 3;
  config_.experts = 8;
  config_.experts_used = 2;
}

const Pack& FakeEngine::pack() const { fail(ErrorKind::kInternal, "the fake engine has no pack"); }

std::unique_ptr<Session> FakeEngine::new_session() { return std::make_unique<FakeSession>(*this); }

ExpertCounters FakeEngine::expert_counters() const {
  ExpertCounters counters;
  counters.requests = computed * config_.layers * config_.experts_used;
  counters.ram_hits = counters.requests;
  return counters;
}

uint32_t FakeEngine::next_token(std::span<const uint32_t> tokens) const {
  static constexpr uint32_t kSay[] = {'s', 'a', 'y', ':'};
  const auto found = std::find_end(tokens.begin(), tokens.end(), std::begin(kSay), std::end(kSay));
  if (found == tokens.end()) return 'a' + static_cast<uint32_t>(tokens.size() % 26);
  const std::string text = tokenizer_.decode(tokens.subspan(static_cast<size_t>(found - tokens.begin())), true);
  const size_t start = std::size(kSay);
  const size_t bar = text.find('|', start);  // "<|im_end|>" has one too
  const size_t turn = text.find(kAssistant, start);
  const bool chat = turn != std::string::npos && turn < bar;
  const std::string_view script = std::string_view(text).substr(start, (chat ? turn : bar) - start);
  std::string_view said = std::string_view(text).substr(chat ? turn + kAssistant.size() : bar + 1);
  if (chat && said.starts_with(kThink)) said.remove_prefix(kThink.size());
  if (said.size() >= script.size()) return 257;
  const std::string_view rest = script.substr(said.size());
  if (rest.starts_with("<think>")) return 258;
  if (rest.starts_with("</think>")) return 259;
  return static_cast<unsigned char>(rest.front());
}

}  // namespace tierpack::testing_support
