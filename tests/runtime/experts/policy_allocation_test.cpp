// Routing a token through a cache policy allocates nothing: every allocation of the program is counted meanwhile.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/experts/cache_policy.h"

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

namespace tierpack::experts {
namespace {

TEST(CachePolicies, RoutingAllocatesNothing) {
  const CacheShape shape{3, 16};
  const std::vector<float> seed(shape.entries(), 0.1f);
  const std::vector<uint32_t> experts = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<uint32_t> counts(experts.size(), 1);
  for (const std::string_view name : policy_names()) {
    const auto policy = make_policy(name, shape);
    policy->seed(seed);
    const uint64_t before = allocations;
    for (uint32_t round = 0; round < 100; ++round) {
      const size_t used = 1 + round % experts.size();
      const uint32_t tokens = round % 3 == 0 ? 5 : 1;
      for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        policy->on_route(layer, std::span(experts).first(used), std::span(counts).first(used), tokens);
      }
    }
    EXPECT_EQ(allocations - before, 0u) << name;
  }
}

}  // namespace
}  // namespace tierpack::experts
