#include "base/threads.h"

#include <atomic>
#include <stdexcept>
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

TEST(UsableCores, IsPositive) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace tierpack
