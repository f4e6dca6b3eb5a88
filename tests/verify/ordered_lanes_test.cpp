#include "verify/ordered_lanes.h"

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

namespace tierpack::verify {
namespace {

using testing_support::thrown_by;

TEST(OrderedLanes, TurnsAscendAndNothingIsLeftOut) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    const std::vector<uint64_t> counts{5, 0, 17, 1, 40, 0, 3};
    std::vector<std::atomic<uint64_t>> worked(counts.size());
    std::vector<uint64_t> turns(counts.size());
    std::atomic<bool> wrong{false};
    run_ordered_lanes(
        team, counts,
        [&](size_t lane, uint64_t chunk, int thread) {
          ++worked[lane];
          if (thread < 0 || thread >= threads || chunk >= counts[lane]) wrong = true;
          if (chunk % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        },
        // Not atomic: turns of one lane never overlap.
        [&](size_t lane, uint64_t chunk, int) {
          if (turns[lane]++ != chunk) wrong = true;
        });
    EXPECT_FALSE(wrong);
    for (size_t lane = 0; lane < counts.size(); ++lane) {
      EXPECT_EQ(worked[lane], counts[lane]);
      EXPECT_EQ(turns[lane], counts[lane]);
    }
  }
}

TEST(OrderedLanes, NoLanesIsNoWork) {
  ThreadTeam team(2);
  run_ordered_lanes(team, {}, [](size_t, uint64_t, int) { FAIL(); }, [](size_t, uint64_t, int) { FAIL(); });
  run_ordered_lanes(team, {0, 0}, [](size_t, uint64_t, int) { FAIL(); }, [](size_t, uint64_t, int) { FAIL(); });
}

TEST(OrderedLanes, AFailureStopsEveryLane) {
  for (const bool in_turn : {false, true}) {
    ThreadTeam team(4);
    std::atomic<int> begun{0};
    const auto thrown = thrown_by([&] {
      run_ordered_lanes(
          team, {1000, 1000, 1000},
          [&](size_t lane, uint64_t chunk, int) {
            ++begun;
            if (!in_turn && lane == 1 && chunk == 20) fail(ErrorKind::kIo, "the disk fell off");
          },
          [&](size_t lane, uint64_t chunk, int) {
            if (in_turn && lane == 1 && chunk == 20) fail(ErrorKind::kIo, "the disk fell off");
          });
    });
    EXPECT_EQ(thrown.kind, ErrorKind::kIo);
    EXPECT_EQ(thrown.message, "the disk fell off");
    EXPECT_LT(begun, 3000);
  }
}

}  // namespace
}  // namespace tierpack::verify
