// Placement changes speed, never the answer: the engine's logits over many settings of budgets, policies, threads, devices
// and disks, each a different one, against those with everything in RAM.
#include <unistd.h>

#include <chrono>
#include <cerrno>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/engine.h"
#include "runtime/experts/cache_policy.h"
#include "runtime/experts/record_reader.h"
#include "runtime/planning/memory_plan.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack {
namespace {

using namespace testing_support;

constexpr uint32_t kTokens = 72;  // past the attention budget
constexpr int kSettings = 200;

EngineOptions base_options() {
  EngineOptions options;
  options.pack = pebble_pack();
  options.threads = 2;
  options.context = 128;
  return options;
}

std::string run(const EngineOptions& options, ExpertCounters* counters = nullptr) {
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const std::unique_ptr<Session> session = engine->new_session();
  const std::string result = fingerprint(append_all(*session, some_tokens(kTokens, engine->config().vocab)));
  if (counters != nullptr) *counters = engine->expert_counters();
  return result;
}

// A disk that is slow, reads short, and fails or damages a record once, never twice: its second reading is good.
class BadDisk final : public experts::ReadFaults {
 public:
  BadDisk(const Pack& pack, uint32_t seed) : random_(seed) {
    for (const Record& record : pack.manifest().records) sound_.insert({record.segment, record.offset});
  }
  int after_read(Segment segment, uint64_t offset, MutableBytes piece, int result) override {
    uint32_t dice = 0;
    {
      const std::lock_guard lock(mutex_);
      dice = static_cast<uint32_t>(random_() % 100);
      if (dice < 8) {
        if (sound_.erase({segment, offset}) == 0) return result;
        ++faults_;
      }
    }
    if (dice < 4) return -EIO;
    if (dice < 8) {
      if (result > 0) piece[static_cast<size_t>(result) / 2] ^= std::byte{0x10};
      return result;
    }
    if (dice < 20 && result > 8192) return result - 5000;
    if (dice < 24) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return result;
  }
  uint64_t faults() const { return faults_; }

 private:
  std::mutex mutex_;
  std::mt19937 random_;
  std::set<std::pair<Segment, uint64_t>> sound_;  // beginnings of records that have not failed yet
  uint64_t faults_ = 0;
};

TEST(TieredEngine, TwoHundredSettingsGiveOneAnswer) {
  std::string expected;
  const Pack pack = Pack::open(pebble_pack());
  uint64_t most = 0;
  uint64_t experts = 0;
  {
    const std::unique_ptr<Engine> engine = Engine::open(base_options());
    const planning::MemoryPlan& plan = *engine->memory_plan();
    most = plan.used(Tier::kRam);
    experts = plan.slots.ram_bytes();
    expected = fingerprint(append_all(*engine->new_session(), some_tokens(kTokens, engine->config().vocab)));
  }
  std::mt19937 random(20261130);
  const auto below = [&](uint64_t n) { return static_cast<uint64_t>(random() % n); };
  const std::span<const std::string_view> policies = experts::policy_names();
  uint64_t reads = 0, moves = 0, faults = 0, retries = 0, prefetches = 0, refused = 0;
  for (int i = 0; i < kSettings; ++i) {
    EngineOptions options = base_options();
    options.threads = static_cast<int>(1 + below(3));
    options.chunk = static_cast<uint32_t>(std::array<uint64_t, 4>{1, 2, 17, 512}[below(4)]);
    options.ram_bytes = most - below(experts);
    options.cache_policy = policies[below(policies.size())];
    options.prefetch = below(2) == 0;
    options.read_method = static_cast<ReadMethod>(below(3));
    if (below(3) == 0) {
      options.device = DeviceChoice::kSim;
      options.vram_bytes = 1 + below(experts);
      if (below(2) == 0) options.sim_link_bytes_s = 2e9;
    }
    BadDisk disk(pack, static_cast<uint32_t>(random()));
    if (below(2) == 0) options.read_faults = &disk;
    SCOPED_TRACE(fmt::format("setting {}: threads {}, chunk {}, ram {}, vram {}, policy {}, prefetch {}, reads {}, bad disk {}", i,
                             options.threads, options.chunk, *options.ram_bytes, options.vram_bytes, options.cache_policy,
                             options.prefetch, static_cast<int>(options.read_method), options.read_faults != nullptr));
    ExpertCounters counters;
    try {
      EXPECT_EQ(run(options, &counters), expected);
    } catch (const Error& e) {
      // The least budgets do not fit; nothing else may fail.
      EXPECT_EQ(e.kind(), ErrorKind::kCapacity) << e.what();
      ++refused;
    }
    reads += counters.disk_reads;
    moves += counters.moves;
    prefetches += counters.prefetches;
    retries += counters.retries;
    faults += disk.faults();
  }
  EXPECT_LT(refused, kSettings / 4u);
  EXPECT_GT(reads, 1000u);
  EXPECT_GT(moves, 100u);
  EXPECT_GT(prefetches, 10u);
  EXPECT_GT(faults, 100u);
  EXPECT_GT(retries, 100u);
}

TEST(TieredEngine, SessionsMaySeeAWarmOrAColdCache) {
  EngineOptions options = base_options();
  options.chunk = 8;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const std::vector<uint32_t> tokens = some_tokens(kTokens, engine->config().vocab);
  const std::string cold = fingerprint(append_all(*engine->new_session(), tokens));
  engine->wait_until_seeded();
  EXPECT_TRUE(engine->seed_progress().done);
  EXPECT_EQ(fingerprint(append_all(*engine->new_session(), tokens)), cold);
}

class OneBadRecord final : public experts::ReadFaults {
 public:
  explicit OneBadRecord(uint64_t offset) : offset_(offset) {}
  int after_read(Segment segment, uint64_t offset, MutableBytes piece, int result) override {
    if (segment == Segment::kExperts && offset == offset_) piece[100] ^= std::byte{1};
    return result;
  }

 private:
  uint64_t offset_;
};

TEST(TieredEngine, ADamagedRecordEndsTheAnswerAndNothingElse) {
  const Pack pack = Pack::open(pebble_pack());
  const ExpertLayer& layer = pack.manifest().expert_layers[2];
  for (uint32_t expert = 0; expert < layer.experts; expert += 5) {
    const Record& record = pack.manifest().records[layer.first_record + expert];
    OneBadRecord fault(record.offset);
    EngineOptions options = base_options();
    options.read_faults = &fault;
    options.chunk = 64;  // the union of a chunk's experts is all of them
    try {
      run(options);
      FAIL() << "expert " << expert << ": a damaged record went unnoticed";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
      EXPECT_NE(std::string(e.what()).find(fmt::format("record {} at byte {}", layer.first_record + expert, record.offset)),
                std::string::npos) << e.what();
    }
  }
}

TEST(TieredEngine, RefusesADeviceThatIsNotThere) {
  EngineOptions options = base_options();
  options.vram_bytes = 1 << 20;
  try {
    run(options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
  }
}

}  // namespace
}  // namespace tierpack
