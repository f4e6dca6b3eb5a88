#include "runtime/experts/prefetch_gate.h"

#include <gtest/gtest.h>

namespace tierpack::experts {
namespace {

TEST(PrefetchGate, ClosesWhenGuessesAreWrongAndStaysOpenWhenTheyAreRight) {
  PrefetchGate bad(true);
  PrefetchGate good(true);
  for (int i = 0; i < 400; ++i) {
    bad.on_layer();
    good.on_layer();
    bad.on_outcome(i % 5 == 0);
    good.on_outcome(i % 5 != 0);
  }
  EXPECT_FALSE(bad.open());
  EXPECT_TRUE(good.open());
}

TEST(PrefetchGate, AClosedGateIsTriedAgain) {
  PrefetchGate gate(true);
  for (int i = 0; i < 400; ++i) gate.on_outcome(false);
  ASSERT_FALSE(gate.open());
  int tried = 0;
  for (int layer = 0; layer < 20000; ++layer) {
    gate.on_layer();
    if (!gate.open()) continue;
    ++tried;
    gate.on_outcome(true);
  }
  EXPECT_GT(tried, 100);
  EXPECT_TRUE(gate.open());
}

TEST(PrefetchGate, ReadsNoMoreAheadThanFitsTheIdleTime) {
  PrefetchGate gate(true);
  for (int i = 0; i < 500; ++i) gate.on_idle(2000);
  EXPECT_EQ(gate.records(1'000'000, 2e9), 4u);
  EXPECT_EQ(gate.records(100'000'000, 2e9), 1u);
}

TEST(PrefetchGate, CanBeOff) {
  PrefetchGate gate(false);
  EXPECT_FALSE(gate.open());
}

}  // namespace
}  // namespace tierpack::experts
