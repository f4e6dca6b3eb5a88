// Computing a token allocates nothing: every allocation of the program is counted while a session decodes.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "runtime/planning/memory_plan.h"
#include "tests/runtime/model/model_fixture.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<std::size_t>(alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<std::size_t>(alignment)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace tierpack {
namespace {

using namespace testing_support;

// RAM for everything but the experts, and for a third of those.
uint64_t tight_budget(EngineOptions options) {
  options.pack = pebble_pack();
  options.threads = 2;
  options.context = 256;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  const planning::MemoryPlan& plan = *engine->memory_plan();
  return plan.used(Tier::kRam) - plan.slots.ram_bytes() * 2 / 3;
}

void expect_no_allocation(EngineOptions options) {
  options.pack = pebble_pack();
  options.threads = 2;
  options.context = 256;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  engine->wait_until_seeded();
  const std::unique_ptr<Session> session = engine->new_session();
  const std::vector<uint32_t> tokens = some_tokens(120, engine->config().vocab);
  float sink = 0;
  const Session::LogitsCallback on_logits = [&](uint32_t, std::span<const float> logits) { sink += logits[0]; };
  session->append(std::span(tokens).first(80), false, on_logits);  // past the attention budget
  session->append(std::span(tokens).subspan(80, 10), true, on_logits);
  session->append(std::span(tokens).subspan(90, 1), false, on_logits);
  const uint64_t before = allocations;
  for (size_t i = 91; i < tokens.size(); ++i) session->append(std::span(tokens).subspan(i, 1), false, on_logits);
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_NE(sink, 0.0f);
  EXPECT_GT(before, 0u);  // the counter counts
}

TEST(Decode, AllocatesNothing) { expect_no_allocation({}); }

TEST(Decode, AllocatesNothingWhileExpertsComeAndGo) {
  EngineOptions options;
  options.ram_bytes = tight_budget(options);
  expect_no_allocation(options);
  options.device = DeviceChoice::kSim;
  options.vram_bytes = 2 << 20;
  expect_no_allocation(options);
  options.read_method = ReadMethod::kPread;
  expect_no_allocation(options);
}

}  // namespace
}  // namespace tierpack
