#include "runtime/engine.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/threads.h"
#include "runtime/available_memory.h"
#include "runtime/experts/resident_store.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/decoded_weights.h"
#include "runtime/model/model.h"
#include "runtime/model/weights.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

constexpr uint32_t kContextDefault = 32768;
constexpr uint32_t kChunkMax = 4096;
constexpr int kThreadsMax = 1024;

// Reports loading of several segments as one sum, one call at a time.
class LoadProgress {
 public:
  LoadProgress(const EngineOptions& options, uint64_t total) : options_(options), total_(total) {}
  void add(uint64_t bytes) {
    if (!options_.on_load) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    options_.on_load(done_, total_);
  }

 private:
  const EngineOptions& options_;
  uint64_t total_;
  std::mutex mutex_;
  uint64_t done_ = 0;
};

class LoadedEngine final : public Engine {
 public:
  LoadedEngine(EngineOptions options, Pack pack, const kernels::KernelTable& table)
      : options_(std::move(options)), pack_(std::move(pack)), team_(options_.threads) {
    try {
      tokenizer_.emplace(text::Tokenizer::from_metadata(pack_.metadata()));
    } catch (const Error&) {
      tokenizer_problem_ = std::current_exception();  // the model still runs on token ids
    }
    LoadProgress progress(options_, model::DenseTensors::total_bytes(pack_) + experts::ResidentStore::total_bytes(pack_));
    const auto on_bytes = [&](uint64_t bytes) { progress.add(bytes); };
    model::ModelWeights weights = model::bind_weights(pack_, model::DenseTensors::load(pack_, team_, on_bytes));
    store_ = experts::ResidentStore::load(pack_, team_, on_bytes);
    model_ = model::make_model(
        {pack_, std::move(weights), *store_, table, team_, options_.chunk, options_.context, options_.activations});
    options_.on_load = {};
    options_.on_pack = {};
  }

  const EngineOptions& options() const override { return options_; }
  const Pack& pack() const override { return pack_; }
  const ModelConfig& config() const override { return pack_.config(); }
  const text::Tokenizer& tokenizer() const override {
    if (!tokenizer_) std::rethrow_exception(tokenizer_problem_);
    return *tokenizer_;
  }
  std::unique_ptr<Session> new_session() override;
  ExpertCounters expert_counters() const override { return store_->counters(); }

  model::Model& model() { return *model_; }

 private:
  EngineOptions options_;
  Pack pack_;
  std::optional<text::Tokenizer> tokenizer_;
  std::exception_ptr tokenizer_problem_;
  ThreadTeam team_;
  std::unique_ptr<ExpertStore> store_;
  std::unique_ptr<model::Model> model_;
};

class LoadedSession final : public Session {
 public:
  explicit LoadedSession(LoadedEngine& engine)
      : engine_(engine), state_(engine.config(), engine.options().context,
                               engine.options().kv) {
    tokens_.reserve(capacity());
  }

  void append(std::span<const uint32_t> tokens, bool all, const LogitsCallback& on_logits,
              const std::function<bool()>& should_stop) override {
    require_acceptable(tokens);
    const uint32_t chunk = engine_.options().chunk;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      if (should_stop && should_stop()) {
        fail(ErrorKind::kInterrupted, "stopped after {} of {} tokens", at, tokens.size());
      }
      const auto piece = tokens.subspan(at, std::min<size_t>(chunk, tokens.size() - at));
      const bool last = at + piece.size() == tokens.size();
      append_chunk(piece);
      if (!on_logits) continue;
      const auto count = static_cast<uint32_t>(piece.size());
      if (all) {
        give_logits(0, count, on_logits);
      } else if (last) {
        give_logits(count - 1, 1, on_logits);
      }
    }
  }

  uint32_t length() const override { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t capacity() const override { return state_.capacity(); }
  const std::vector<uint32_t>& tokens() const override { return tokens_; }
  void clear() override {
    tokens_.clear();
    state_.clear();
    broken_ = false;
  }
  void set_observer(ForwardObserver* observer) override { observer_ = observer; }

 private:
  void require_acceptable(std::span<const uint32_t> tokens) const {
    if (broken_) fail(ErrorKind::kUsage, "this session failed in the middle of a token; clear it before it goes on");
    const uint32_t vocab = engine_.config().vocab;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= vocab) {
        fail(ErrorKind::kUsage, "token {} (number {} of {}) is not in the vocabulary of {} tokens", tokens[i], i + 1,
             tokens.size(), vocab);
      }
    }
    if (tokens.size() > capacity() - length()) {
      fail(ErrorKind::kUsage, "{} tokens do not fit: the session holds {} of at most {}; ask for a larger context (the "
           "model's own limit is {}) or send less", tokens.size(), length(), capacity(), engine_.config().context);
    }
  }

  void append_chunk(std::span<const uint32_t> piece) {
    broken_ = true;  // unless the pass comes to its end
    const uint32_t first = length();
    tokens_.insert(tokens_.end(), piece.begin(), piece.end());
    engine_.model().forward({tokens_, first, static_cast<uint32_t>(piece.size()), observer_}, state_);
    broken_ = false;
  }

  // Logits of tokens [first, first + count) of the chunk just computed.
  void give_logits(uint32_t first, uint32_t count, const LogitsCallback& on_logits) {
    model::Model& model = engine_.model();
    const uint32_t vocab = engine_.config().vocab;
    const uint32_t chunk_tokens = first + count;
    for (uint32_t at = first; at < chunk_tokens;) {
      const uint32_t rows = std::min(model.logit_rows(), chunk_tokens - at);
      const std::span<const float> logits = model.logits(at, rows);
      for (uint32_t i = 0; i < rows; ++i) {
        on_logits(length() - chunk_tokens + at + i, logits.subspan(size_t{i} * vocab, vocab));
      }
      at += rows;
    }
  }

  LoadedEngine& engine_;
  model::SessionState state_;
  std::vector<uint32_t> tokens_;
  ForwardObserver* observer_ = nullptr;
  bool broken_ = false;
};

std::unique_ptr<Session> LoadedEngine::new_session() { return std::make_unique<LoadedSession>(*this); }

// Defaults resolved against the model and the machine.
EngineOptions resolved(EngineOptions options, const Pack& pack) {
  const ModelConfig& c = pack.config();
  const std::string name = pack.directory().filename().string();
  if (options.threads < 0 || options.threads > kThreadsMax) {
    fail(ErrorKind::kUsage, "{} threads were asked for; expected 1 to {}, or 0 for every usable core", options.threads,
         kThreadsMax);
  }
  if (options.threads == 0) options.threads = usable_cores();
  if (options.chunk < 1 || options.chunk > kChunkMax) {
    fail(ErrorKind::kUsage, "a prefill chunk of {} tokens was asked for; expected 1 to {}", options.chunk, kChunkMax);
  }
  if (options.context > c.context) {
    fail(ErrorKind::kUsage, "{}: a context of {} tokens was asked for; the model's own limit is {}", name,
         options.context, c.context);
  }

  if (options.kv == KvType::kQ8 && c.head_dim % 32 != 0) {
    fail(ErrorKind::kUsage, "{}: a q8 KV cache has scales for 32 elements, and this model's heads have {}; ask for f16",
         name, c.head_dim);
  }
  const uint64_t decoded = options.activations == ActivationType::kF32
                               ? model::decoded_weights_bytes(pack) * static_cast<uint64_t>(options.threads)
                               : 0;
  const auto needed = [&](uint32_t context) {
    return decoded + model::DenseTensors::total_bytes(pack) + experts::ResidentStore::total_bytes(pack) +
           model::workspace_bytes(c, std::min(options.chunk, context), context) +
           model::SessionState::bytes(c, context, options.kv);
  };
  const uint64_t available = available_memory_bytes();
  const bool chosen = options.context != 0;
  if (!chosen) {
    options.context = std::min(c.context, kContextDefault);
    while (options.context > 1024 && needed(options.context) > available) options.context /= 2;
  }
  options.chunk = std::min(options.chunk, options.context);
  if (needed(options.context) > available) {
    fail(ErrorKind::kCapacity, "{}: weights, scratch memory and a context of {} tokens need {}; the machine has {} "
         "available{}", name, options.context, format_size(needed(options.context)), format_size(available),
         chosen ? "; ask for a smaller context" : "");
  }
  return options;
}

}  // namespace

std::unique_ptr<Engine> Engine::open(const EngineOptions& wanted) {
  EngineOptions options = wanted;
  Pack pack = Pack::open(options.pack);
  require_runnable(pack.config(), options.pack.string());
  if (options.on_pack) options.on_pack(pack, options);
  const kernels::KernelTable& table = options.isa.empty() ? kernels::best() : kernels::by_name(options.isa);
  EngineOptions effective = resolved(options, pack);
  effective.isa = table.name;
  return std::make_unique<LoadedEngine>(std::move(effective), std::move(pack), table);
}

}  // namespace tierpack
