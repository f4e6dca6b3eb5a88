#include "base/threads.h"

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tierpack {
namespace {

TEST(ThreadTeam, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.size(), threads);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
      std::vector<std::atomic<int>> hits(count);
      for (int round = 0; round < 20; ++round) {
        team.for_each(count, [&](size_t i) { hits[i].fetch_add(1); });
      }
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 20);
    }
  }
}

TEST(ThreadTeam, ThreadIndexStaysInRange) {
  ThreadTeam team(3);
  std::atomic<bool> bad{false};
  team.for_each_on_thread(500, [&](size_t, int thread) {
    if (thread < 0 || thread >= 3) bad = true;
  });
  EXPECT_FALSE(bad);
}

TEST(ThreadTeam, RethrowsAndStaysUsable) {
  ThreadTeam team(3);
  EXPECT_THROW(team.for_each(100, [](size_t i) {
                 if (i == 37) throw std::runtime_error("x");
               }),
               std::runtime_error);
  std::atomic<int> sum{0};
  team.for_each(10, [&](size_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum.load(), 45);
}

// Far more threads than cores and loops shorter than a wake-up: helpers come late, by whole loops, and find nothing.
TEST(ThreadTeam, LateHelpersTakeNothingOfLaterLoops) {
  ThreadTeam team(9);
  std::vector<uint32_t> sums(64);
  for (uint32_t round = 0; round < 3000; ++round) {
    const uint32_t count = round % 7 == 0 ? 64 : round % 5 + 2;
    std::vector<uint32_t> values(count);
    team.for_each(count, [&](size_t i) { values[i] += round + 1; });
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(values[i], round + 1);
    for (uint32_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  EXPECT_GT(sums[0], 0u);
}

TEST(ThreadTeam, EveryLoopMayThrow) {
  ThreadTeam team(4);
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> ran{0};
    EXPECT_THROW(team.for_each(50, [&](size_t i) {
                   ++ran;
                   if (i % 10 == 3) throw std::runtime_error("x");
                 }),
                 std::runtime_error);
    EXPECT_GE(ran.load(), 4);
    EXPECT_LE(ran.load(), 50);
  }
}

// Loops longer than the time after which helpers give way, beside more programs than cores.
TEST(ThreadTeam, HelpersThatGiveWayLoseNothing) {
  ThreadTeam team(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  for (int round = 0; round < 6; ++round) {
    std::vector<int> hits(60);
    std::array<std::atomic<int>, 3> taken{};
    team.for_each_on_thread(hits.size(), [&](size_t i, int thread) {
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(200)) {
      }
      ++hits[i];
      ++taken[static_cast<size_t>(thread)];
    });
    EXPECT_EQ(hits, std::vector<int>(60, 1));
    EXPECT_EQ(taken[0] + taken[1] + taken[2], 60);
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

TEST(UsableCores, IsPositive) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace tierpack
