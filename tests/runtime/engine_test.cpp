// The engine over the embedded model: bits that depend on nothing but pack, tokens and KV type, and the rules of a session.
#include "runtime/engine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "runtime/kernels/kernels.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack {
namespace {

using namespace testing_support;

struct ReferenceRun {
  std::vector<uint32_t> prompt, greedy;
  double loss = 0;
};

ReferenceRun reference_run(const std::string& name) {
  ReferenceRun run;
  std::ifstream file(std::string(TIERPACK_SOURCE_DIR) + "/tests/data/pebble/" + name + ".txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "loss") words >> run.loss;
    for (uint32_t id = 0; key != "loss" && words >> id;) (key == "prompt" ? run.prompt : run.greedy).push_back(id);
  }
  EXPECT_FALSE(run.prompt.empty());
  EXPECT_EQ(run.greedy.size(), 64u);
  return run;
}

// Past the attention budget (64 tokens), so that the indexer selects.
std::vector<uint32_t> prompt() {
  std::vector<uint32_t> tokens = reference_run("long").prompt;
  tokens.resize(96);
  return tokens;
}

EngineOptions pebble_options() {
  EngineOptions options;
  options.pack = pebble_pack();
  options.threads = 2;
  options.context = 512;
  return options;
}

std::string run_prompt(const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = Engine::open(options);
  return fingerprint(append_all(*engine->new_session(), prompt()));
}

// Of the logits of prompt(). Change only with a change of docs/arithmetic.md or of the embedded model.
constexpr const char* kFingerprintF16 = "4064e3eb223c550ccac5f56aefb9ec82";
constexpr const char* kFingerprintF32 = "1768eb16b7287751cb673451ef2cb2bc";

// Of the distribution of `q` from that of `p`, in nats.
double kl_divergence(const std::vector<float>& p, const std::vector<float>& q) {
  const auto log_sum = [](const std::vector<float>& x) {
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    return std::log(sum);
  };
  const double p_sum = log_sum(p);
  const double q_sum = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_sum;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_sum));
  }
  return kl;
}

TEST(Engine, FingerprintIsTheStoredOne) {
  EngineOptions options = pebble_options();
  EXPECT_EQ(run_prompt(options), kFingerprintF16);
  options.kv = KvType::kF32;
  EXPECT_EQ(run_prompt(options), kFingerprintF32);
}

// The cache in eight bits: other logits, close to those of f32, and as independent of everything else.
TEST(Engine, AnEightBitCacheGivesOneAnswerCloseToTheExactOne) {
  EngineOptions options = pebble_options();
  options.kv = KvType::kF32;
  const LogitRows exact = append_all(*Engine::open(options)->new_session(), prompt());
  options.kv = KvType::kQ8;
  const LogitRows rows = append_all(*Engine::open(options)->new_session(), prompt());
  const std::string expected = fingerprint(rows);
  EXPECT_NE(expected, kFingerprintF32);
  double mean_kl = 0;
  for (size_t t = 0; t < rows.size(); ++t) mean_kl += kl_divergence(exact[t], rows[t]) / static_cast<double>(rows.size());
  EXPECT_GT(mean_kl, 0);
  EXPECT_LT(mean_kl, 1e-3);
  RecordProperty("mean_kl", std::to_string(mean_kl));
  for (const kernels::KernelTable* table : kernels::available()) {
    for (const uint32_t chunk : {1u, 64u}) {
      options.isa = table->name;
      options.chunk = chunk;
      options.threads = chunk == 1 ? 3 : 1;
      EXPECT_EQ(run_prompt(options), expected) << table->name << ", chunks of " << chunk;
    }
  }
}

TEST(Engine, EveryKernelTableGivesTheSameBits) {
  for (const kernels::KernelTable* table : kernels::available()) {
    EngineOptions options = pebble_options();
    options.isa = table->name;
    EXPECT_EQ(run_prompt(options), kFingerprintF16) << table->name;
  }
}

TEST(Engine, ThreadsAndChunksDoNotChangeABit) {
  for (const int threads : {1, 2, 3}) {
    for (const uint32_t chunk : {1u, 3u, 7u, 64u, 512u}) {
      EngineOptions options = pebble_options();
      options.threads = threads;
      options.chunk = chunk;
      EXPECT_EQ(run_prompt(options), kFingerprintF16) << threads << " threads, chunks of " << chunk;
    }
  }
}

TEST(Engine, HowTokensAreAppendedDoesNotChangeABit) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const std::unique_ptr<Session> session = engine->new_session();
  const std::vector<uint32_t> tokens = prompt();
  LogitRows rows;
  for (size_t at = 0; at < tokens.size();) {  // 1, 2, 3, ... tokens at a time
    const size_t count = std::min(tokens.size() - at, rows.size() % 7 + 1);
    for (std::vector<float>& row : append_all(*session, std::span(tokens).subspan(at, count))) {
      rows.push_back(std::move(row));
    }
    at += count;
  }
  EXPECT_EQ(fingerprint(rows), kFingerprintF16);
}

TEST(Engine, ClearedSessionIsANewOne) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const std::unique_ptr<Session> session = engine->new_session();
  append_all(*session, some_tokens(101, engine->config().vocab));
  session->clear();
  EXPECT_EQ(session->length(), 0u);
  EXPECT_EQ(fingerprint(append_all(*session, prompt())), kFingerprintF16);
}

TEST(Engine, SessionsDoNotSeeEachOther) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const std::unique_ptr<Session> a = engine->new_session();
  const std::unique_ptr<Session> b = engine->new_session();
  const std::vector<uint32_t> tokens = prompt();
  LogitRows rows;
  for (size_t at = 0; at < tokens.size(); at += 12) {
    append_all(*b, some_tokens(5, engine->config().vocab, static_cast<uint32_t>(at)));
    for (std::vector<float>& row : append_all(*a, std::span(tokens).subspan(at, 12))) rows.push_back(std::move(row));
  }
  EXPECT_EQ(fingerprint(rows), kFingerprintF16);
}

TEST(Engine, OnlyTheLastLogitsUnlessAllAreAskedFor) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const std::vector<uint32_t> tokens = prompt();
  const LogitRows all = append_all(*engine->new_session(), tokens);
  const std::unique_ptr<Session> session = engine->new_session();
  LogitRows last;
  session->append(std::span(tokens).first(90), false, {});
  session->append(std::span(tokens).subspan(90), false, [&](uint32_t position, std::span<const float> logits) {
    EXPECT_EQ(position, 95u);
    last.emplace_back(logits.begin(), logits.end());
  });
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0], all.back());
}

TEST(Engine, IsCloseToTheUnquantisedReference) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  for (const char* name : {"story", "long"}) {
    const ReferenceRun run = reference_run(name);
    std::vector<uint32_t> tokens = run.prompt;
    tokens.insert(tokens.end(), run.greedy.begin(), run.greedy.end());
    const LogitRows rows = append_all(*engine->new_session(), tokens);
    double loss = 0;
    size_t same = 0;
    for (size_t t = 0; t + 1 < tokens.size(); ++t) {
      const std::vector<float>& x = rows[t];
      if (t + 1 >= run.prompt.size()) {
        same += static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin()) == tokens[t + 1];
        continue;
      }
      double sum = 0;
      for (const float v : x) sum += std::exp(static_cast<double>(v));
      loss += std::log(sum) - static_cast<double>(x[tokens[t + 1]]);
    }
    EXPECT_NEAR(loss / static_cast<double>(run.prompt.size() - 1), run.loss, 0.01) << name;
    EXPECT_GE(same, 62u) << name;
  }
}

TEST(Engine, RefusesTokensWithoutTouchingTheSession) {
  EngineOptions options = pebble_options();
  options.context = 20;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const std::unique_ptr<Session> session = engine->new_session();
  EXPECT_EQ(session->capacity(), 20u);
  append_all(*session, some_tokens(15, 4096));

  const auto [long_kind, too_long] = thrown_by([&] { append_all(*session, some_tokens(6, 4096)); });
  EXPECT_EQ(long_kind, ErrorKind::kUsage);
  for (const char* number : {"6 tokens", "15", "20", "4096"}) {
    EXPECT_NE(too_long.find(number), std::string::npos) << too_long;
  }
  const auto [outside_kind, outside] = thrown_by([&] { append_all(*session, std::vector<uint32_t>{1, 4096}); });
  EXPECT_EQ(outside_kind, ErrorKind::kUsage);
  EXPECT_NE(outside.find("4096"), std::string::npos) << outside;
  EXPECT_EQ(session->length(), 15u);
  append_all(*session, some_tokens(5, 4096));
  EXPECT_EQ(session->length(), 20u);
}

TEST(Engine, StopsBetweenChunksAndGoesOn) {
  EngineOptions options = pebble_options();
  options.chunk = 16;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const std::unique_ptr<Session> session = engine->new_session();
  const std::vector<uint32_t> tokens = prompt();
  LogitRows rows;
  const auto keep = [&](uint32_t, std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); };
  int chunks = 0;
  const auto [kind, message] = thrown_by([&] { session->append(tokens, true, keep, [&] { return ++chunks > 3; }); });
  EXPECT_EQ(kind, ErrorKind::kInterrupted);
  EXPECT_EQ(session->length(), 48u);
  EXPECT_EQ(rows.size(), 48u);
  session->append(std::span(tokens).subspan(48), true, keep);
  EXPECT_EQ(fingerprint(rows), kFingerprintF16);
}

TEST(Engine, ASessionThatFailedInATokenAsksToBeCleared) {
  struct Failing final : ForwardObserver {
    void on_route(uint32_t layer, uint32_t, std::span<const uint32_t>, std::span<const float>) override {
      if (layer == 3) fail(ErrorKind::kIo, "a disk went away");
    }
  };
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const std::unique_ptr<Session> session = engine->new_session();
  Failing failing;
  session->set_observer(&failing);
  EXPECT_EQ(thrown_by([&] { append_all(*session, prompt()); }).kind, ErrorKind::kIo);
  session->set_observer(nullptr);
  const auto [kind, message] = thrown_by([&] { append_all(*session, prompt()); });
  EXPECT_EQ(kind, ErrorKind::kUsage);
  EXPECT_NE(message.find("clear"), std::string::npos) << message;
  session->clear();
  EXPECT_EQ(fingerprint(append_all(*session, prompt())), kFingerprintF16);
}

TEST(Engine, TellsTheObserverEveryDecision) {
  const std::unique_ptr<Engine> engine = Engine::open(pebble_options());
  const ModelConfig& c = engine->config();
  const std::unique_ptr<Session> session = engine->new_session();
  Decisions decisions;
  session->set_observer(&decisions);
  append_all(*session, prompt());
  EXPECT_EQ(decisions.routes.size(), size_t{c.layers} * 96);
  for (const auto& [at, experts] : decisions.routes) EXPECT_EQ(experts.size(), c.experts_used);
  EXPECT_EQ(decisions.attended.size(), size_t{2} * 96);  // two attention blocks
  for (const auto& [at, visible] : decisions.attended) {
    const uint32_t position = at.second;
    const uint32_t blocks = (position + 1) / 4;
    EXPECT_EQ(visible.size(), blocks <= 16 ? position + 1 : 64 + (position + 1) % 4) << position;
    EXPECT_LE(*visible.rbegin(), position);
  }
  EXPECT_GE(engine->expert_counters().requests, uint64_t{c.layers} * c.experts_used);
}

TEST(Engine, ReportsLoadingAndLetsItBeStopped) {
  EngineOptions options = pebble_options();
  uint64_t last = 0;
  uint64_t whole = 0;
  options.on_load = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    whole = total;
  };
  const std::unique_ptr<Engine> engine = Engine::open(options);
  EXPECT_EQ(last, whole);
  EXPECT_GT(whole, uint64_t{1} << 20);
  options.on_load = [](uint64_t done, uint64_t) {
    if (done > 1'000'000) fail(ErrorKind::kInterrupted, "enough");
  };
  EXPECT_EQ(thrown_by([&] { Engine::open(options); }).kind, ErrorKind::kInterrupted);
}

TEST(Engine, ResolvesAndChecksItsOptions) {
  EngineOptions options = pebble_options();
  options.context = 0;
  options.threads = 0;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  EXPECT_EQ(engine->options().context, 4096u);  // the model's own
  EXPECT_GE(engine->options().threads, 1);
  EXPECT_FALSE(engine->options().isa.empty());
  EXPECT_EQ(engine->tokenizer().size(), engine->config().vocab);

  const auto problem = [&](auto change) {
    EngineOptions wrong = pebble_options();
    change(wrong);
    return thrown_by([&] { Engine::open(wrong); });
  };
  EXPECT_EQ(problem([](EngineOptions& o) { o.chunk = 0; }).kind, ErrorKind::kUsage);
  EXPECT_EQ(problem([](EngineOptions& o) { o.threads = -1; }).kind, ErrorKind::kUsage);
  EXPECT_EQ(problem([](EngineOptions& o) { o.isa = "abacus"; }).kind, ErrorKind::kUsage);
  const auto [kind, message] = problem([](EngineOptions& o) { o.context = 5000; });
  EXPECT_EQ(kind, ErrorKind::kUsage);
  EXPECT_NE(message.find("4096"), std::string::npos) << message;
}

}  // namespace
}  // namespace tierpack
