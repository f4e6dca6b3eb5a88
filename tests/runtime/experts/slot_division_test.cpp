#include "runtime/experts/slot_division.h"

#include <random>

#include <gtest/gtest.h>

namespace tierpack::experts {
namespace {

TEST(SlotDivision, OneClassTakesWhatFits) {
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 64, 1}}, 1099), (std::vector<uint64_t>{10}));
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 8, 1}}, 1099), (std::vector<uint64_t>{8}));
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 8, 1}}, 99), (std::vector<uint64_t>{0}));
}

TEST(SlotDivision, SlotsFollowUse) {
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 64, 3}, {200, 64, 1}}, 5000), (std::vector<uint64_t>{30, 10}));
}

TEST(SlotDivision, AFullClassLeavesTheRestToOthers) {
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 4, 9}, {100, 64, 1}}, 2000), (std::vector<uint64_t>{4, 16}));
}

TEST(SlotDivision, EveryClassHasASlotWhereTheBytesReach) {
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 64, 100}, {200, 64, 0.001}}, 1000), (std::vector<uint64_t>{8, 1}));
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{300, 64, 100}, {200, 64, 1}}, 450), (std::vector<uint64_t>{0, 2}));
}

TEST(SlotDivision, ClassesWithoutUseGetWhatOthersLeave) {
  EXPECT_EQ(divide_slots(std::vector<SlotClass>{{100, 4, 1}, {100, 8, 0}}, 10'000), (std::vector<uint64_t>{4, 8}));
}

TEST(SlotDivision, NeverExceedsItsBytesOrEntriesAndLeavesNoRoomForAnother) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    std::vector<SlotClass> classes(1 + below(5));
    for (SlotClass& c : classes) c = {1 + below(1000), below(100), static_cast<double>(below(50)) / 10};
    const uint64_t bytes = below(60'000);
    const auto slots = divide_slots(classes, bytes);
    uint64_t used = 0;
    for (size_t c = 0; c < classes.size(); ++c) {
      EXPECT_LE(slots[c], classes[c].entries);
      used += slots[c] * classes[c].record_bytes;
    }
    EXPECT_LE(used, bytes);
    for (size_t c = 0; c < classes.size(); ++c) {
      EXPECT_TRUE(slots[c] == classes[c].entries || used + classes[c].record_bytes > bytes);
    }
  }
}

TEST(SlotClassesTest, LayersOfOneRecordSizeShareAClass) {
  const CacheShape shape{3, 4};
  const std::vector<uint64_t> bytes = {100, 200, 100};
  const std::vector<uint32_t> experts = {4, 4, 2};
  std::vector<float> seed(12, 0.5f);
  const SlotClasses classes = slot_classes(shape, bytes, experts, seed);
  EXPECT_EQ(classes.class_of_layer, (std::vector<uint32_t>{0, 1, 0}));
  ASSERT_EQ(classes.classes.size(), 2u);
  EXPECT_EQ(classes.classes[0].record_bytes, 100u);
  EXPECT_EQ(classes.classes[0].entries, 6u);
  EXPECT_DOUBLE_EQ(classes.classes[0].use, 3);
  EXPECT_DOUBLE_EQ(classes.classes[1].use, 2);
  EXPECT_DOUBLE_EQ(slot_classes(shape, bytes, experts, {}).classes[0].use, 6);
}

}  // namespace
}  // namespace tierpack::experts
