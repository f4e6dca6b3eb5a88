// The engine with its forward pass on a GPU: the logits of the CPU, bit for bit, wherever the experts lie. On a machine without a GPU the
// kernels run on tests/support/cuda_on_cpu.
#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/engine.h"
#include "runtime/planning/memory_plan.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/runtime/model/random_model.h"

namespace tierpack {
namespace {

using namespace testing_support;

EngineOptions options_for(const std::filesystem::path& pack, DeviceChoice device) {
  EngineOptions options;
  options.pack = pack;
  options.threads = 2;
  options.context = 160;
  options.device = device;
  return options;
}

LogitRows run(const EngineOptions& options, uint32_t tokens, ExpertCounters* counters = nullptr) {
  const std::unique_ptr<Engine> engine = Engine::open(options);
  engine->wait_until_seeded();
  const LogitRows rows = append_all(*engine->new_session(), some_tokens(tokens, engine->config().vocab));
  if (counters != nullptr) *counters = engine->expert_counters();
  return rows;
}

// Past the attention budget (64 tokens), so that the indexer selects.
constexpr uint32_t kTokens = 76;

TEST(GpuEngine, ChunksAndCacheTypesGiveTheBitsOfTheCpu) {
  for (const KvType kv : {KvType::kF16, KvType::kQ8}) {
    EngineOptions cpu = options_for(pebble_pack(), DeviceChoice::kCpu);
    cpu.kv = kv;
    const std::string expected = fingerprint(run(cpu, kTokens));
    for (const uint32_t chunk : {70u, 3u}) {
      if (kv != KvType::kF16 && chunk == 3) continue;
      EngineOptions gpu = options_for(pebble_pack(), DeviceChoice::kCuda);
      gpu.kv = kv;
      gpu.chunk = chunk;
      EXPECT_EQ(fingerprint(run(gpu, kTokens)), expected) << kv_type_name(kv) << ", chunks of " << chunk;
    }
  }
}

TEST(GpuEngine, TokenByTokenGivesTheBitsOfTheCpu) {
  EngineOptions gpu = options_for(pebble_pack(), DeviceChoice::kCuda);
  gpu.chunk = 1;
  ExpertCounters counters;
  const std::string result = fingerprint(run(gpu, kTokens, &counters));
  EXPECT_EQ(result, fingerprint(run(options_for(pebble_pack(), DeviceChoice::kCpu), kTokens)));
  EXPECT_EQ(counters.vram_hits, counters.requests);  // no budget was given: all experts fit
  EXPECT_GT(counters.requests, 0u);
}

TEST(GpuEngine, TokensAsGraphsGiveTheSameBits) {
  std::vector<std::string> results;
  for (const bool graph : {true, false}) {
    EngineOptions options = options_for(pebble_pack(), DeviceChoice::kCuda);
    options.gpu_graph = graph;
    const std::unique_ptr<Engine> engine = Engine::open(options);
    engine->wait_until_seeded();
    const std::unique_ptr<Session> session = engine->new_session();
    const std::vector<uint32_t> tokens = some_tokens(74, engine->config().vocab);
    session->append(std::span(tokens).first(68), false, {});
    LogitRows rows;
    for (size_t i = 68; i < tokens.size(); ++i) rows.push_back(append_all(*session, std::span(tokens).subspan(i, 1)).front());
    results.push_back(fingerprint(rows));
  }
  EXPECT_EQ(results[0], results[1]);
}

// From no expert in VRAM to all of them, and with RAM for few: hits, copies, the CPU's share and the disk in one answer.
TEST(GpuEngine, BudgetsDoNotChangeABit) {
  constexpr uint32_t kFew = 20;
  const std::string expected = fingerprint(run(options_for(pebble_pack(), DeviceChoice::kCpu), kFew));
  uint64_t vram = 0, vram_experts = 0, ram = 0, ram_experts = 0;
  {
    EngineOptions whole = options_for(pebble_pack(), DeviceChoice::kCuda);
    whole.chunk = 32;
    const std::unique_ptr<Engine> engine = Engine::open(whole);
    const planning::MemoryPlan& plan = *engine->memory_plan();
    vram = plan.used(Tier::kVram);
    vram_experts = plan.slots.vram_bytes();
    ram = plan.used(Tier::kRam);
    ram_experts = plan.slots.ram_bytes();
  }
  ASSERT_GT(vram_experts, 0u);
  uint64_t vram_hits = 0, cpu_computed = 0, copies = 0;
  for (const double share : {0.0, 0.25, 0.5}) {
    for (const uint32_t chunk : {1u, 32u}) {
      EngineOptions options = options_for(pebble_pack(), DeviceChoice::kCuda);
      options.chunk = chunk;
      options.vram_bytes = vram - static_cast<uint64_t>((1 - share) * static_cast<double>(vram_experts));
      // What loading the dense weights takes for a moment is more than the fewest experts in RAM take.
      if (share < 0.5) options.ram_bytes = ram - ram_experts + (uint64_t{8} << 20);
      ExpertCounters counters;
      EXPECT_EQ(fingerprint(run(options, kFew, &counters)), expected) << share << " in VRAM, chunks of " << chunk;
      vram_hits += counters.vram_hits;
      cpu_computed += counters.cpu_computed;
      copies += counters.gpu_copies;
    }
  }
  EXPECT_GT(vram_hits, 0u);
  EXPECT_GT(cpu_computed, 0u);
  EXPECT_GT(copies, 0u);
}

TEST(GpuEngine, RoutesAndAttentionAreReportedAsOnTheCpu) {
  struct Observer final : ForwardObserver {
    std::vector<std::string> routes, attends;
    void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts, std::span<const float> weights) override {
      std::string line = fmt::format("{} {}", layer, position);
      for (size_t i = 0; i < experts.size(); ++i) line += fmt::format(" {}:{}", experts[i], weights[i]);
      routes.push_back(line);
    }
    bool wants_attention() const override { return true; }
    void on_attend(uint32_t layer, uint32_t position, std::span<const uint32_t> visible) override {
      std::string line = fmt::format("{} {}", layer, position);
      for (const uint32_t p : visible) line += fmt::format(" {}", p);
      attends.push_back(line);
    }
  };
  const auto observe = [](DeviceChoice device) {
    EngineOptions options = options_for(pebble_pack(), device);
    options.chunk = 70;
    const std::unique_ptr<Engine> engine = Engine::open(options);
    const std::unique_ptr<Session> session = engine->new_session();
    auto observer = std::make_unique<Observer>();
    session->set_observer(observer.get());
    const std::vector<uint32_t> tokens = some_tokens(72, engine->config().vocab);
    session->append(std::span(tokens).first(70), false, {});
    for (size_t i = 70; i < tokens.size(); ++i) session->append(std::span(tokens).subspan(i, 1), false, {});
    return observer;
  };
  const auto gpu = observe(DeviceChoice::kCuda), cpu = observe(DeviceChoice::kCpu);
  EXPECT_EQ(gpu->routes, cpu->routes);
  EXPECT_EQ(gpu->attends, cpu->attends);
}

TEST(GpuEngine, SessionsAreClearedAndIndependent) {
  const std::unique_ptr<Engine> engine = Engine::open(options_for(pebble_pack(), DeviceChoice::kCuda));
  const std::unique_ptr<Session> first = engine->new_session(), second = engine->new_session();
  const std::vector<uint32_t> tokens = some_tokens(12, engine->config().vocab);
  const std::string expected = fingerprint(append_all(*first, tokens));
  append_all(*second, std::span(tokens).subspan(3, 5));
  second->clear();
  EXPECT_EQ(fingerprint(append_all(*second, tokens)), expected);
}

TEST(GpuEngine, AModelOfOddSizesGivesTheBitsOfTheCpu) {
  const TempDirectory directory;
  random_qwen3moe().gguf.write(directory.path() / "random.gguf");
  EngineOptions cpu = options_for(make_pack(directory.path() / "random.gguf", directory.path()), DeviceChoice::kCpu);
  cpu.context = 64;
  const std::string expected = fingerprint(run(cpu, 40));
  for (const uint32_t chunk : {1u, 7u, 40u}) {
    EngineOptions gpu = cpu;
    gpu.device = DeviceChoice::kCuda;
    gpu.chunk = chunk;
    EXPECT_EQ(fingerprint(run(gpu, 40)), expected) << "chunks of " << chunk;
  }
}

// Sizes that no kernel takes: said before anything is loaded, and left to the CPU where nobody asked for a GPU.
TEST(GpuEngine, SizesWithoutKernelsAreNamed) {
  const TempDirectory directory;
  random_qwen4exp().gguf.write(directory.path() / "random.gguf");
  EngineOptions options = options_for(make_pack(directory.path() / "random.gguf", directory.path()), DeviceChoice::kCuda);
  options.context = 64;
  try {
    Engine::open(options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("head size of the delta net"), std::string::npos) << e.what();
  }
  options.device = DeviceChoice::kAuto;
  EXPECT_EQ(Engine::open(options)->options().device, DeviceChoice::kCpu);
}

TEST(GpuEngine, RefusesWhatItCannotDo) {
  EngineOptions options = options_for(pebble_pack(), DeviceChoice::kCuda);
  options.activations = ActivationType::kF32;
  EXPECT_THROW(Engine::open(options), Error);
  options = options_for(pebble_pack(), DeviceChoice::kCuda);
  options.gpu = 17;
  EXPECT_THROW(Engine::open(options), Error);
  options = options_for(pebble_pack(), DeviceChoice::kCuda);
  options.vram_bytes = 1 << 20;
  try {
    Engine::open(options);
    FAIL() << "a model in 1 MiB of VRAM";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCapacity);
    EXPECT_NE(std::string(e.what()).find("VRAM"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tierpack
