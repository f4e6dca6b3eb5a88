#include "runtime/experts/slot_table.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack::experts {
namespace {

// Layers 0 and 2 share a size, layer 1 has its own.
ExpertSlots two_classes() {
  ExpertSlots slots;
  slots.classes = {{4096, {0, 2}, 3, 2}, {8192, {1}, 2, 0}};
  return slots;
}
constexpr CacheShape kShape{3, 8};

std::vector<double> values_of(std::initializer_list<std::pair<uint32_t, double>> given) {
  std::vector<double> values(kShape.entries(), 0.0);
  for (const auto& [entry, value] : given) values[entry] = value;
  return values;
}

uint32_t resident(SlotTable& table, uint32_t entry, Tier tier = Tier::kRam) {
  const uint32_t slot = table.begin_load(entry, tier, false);
  table.end_load(slot);
  return slot;
}

TEST(SlotTable, SlotsOfATierDoNotOverlap) {
  SlotTable table(kShape, two_classes(), {});
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  for (const uint32_t entry : {0u, 1u, 17u, 8u, 9u}) {
    const SlotTable::Slot& slot = table.slot(resident(table, entry));
    taken.emplace_back(slot.offset, slot.offset + table.slot_bytes(slot.class_index));
  }
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_LE(taken[i - 1].second, taken[i].first);
  EXPECT_EQ(taken.back().second, two_classes().ram_bytes());
  EXPECT_FALSE(table.has_free(0, Tier::kRam));
  EXPECT_FALSE(table.has_free(1, Tier::kRam));
  EXPECT_TRUE(table.has_free(0, Tier::kVram));
  table.check();
}

TEST(SlotTable, CheapestLeavesOutWhatIsPinnedLoadingOrStays) {
  ExpertSlots slots = two_classes();
  slots.classes[0].vram_slots = 0;
  SlotTable table(kShape, slots, {false, false, true});
  const uint32_t a = resident(table, 0);
  const uint32_t b = resident(table, 1);
  resident(table, 16);  // of layer 2, which stays
  const std::vector<double> values = values_of({{0, 0.5}, {1, 0.2}, {16, 0.1}});
  const auto cheapest = [&] {
    const std::span<const uint32_t> found = table.cheapest(0, Tier::kRam, 8, values);
    return std::vector<uint32_t>(found.begin(), found.end());
  };
  EXPECT_EQ(cheapest(), (std::vector<uint32_t>{b, a}));
  table.pin(b);
  EXPECT_EQ(cheapest(), (std::vector<uint32_t>{a}));
  table.unpin(b);
  table.evict(b);
  EXPECT_EQ(table.find(1), SlotTable::kNone);
  table.begin_load(2, Tier::kRam, true);
  EXPECT_EQ(cheapest(), (std::vector<uint32_t>{a}));
  table.check();
}

TEST(SlotTable, WhatStaysInVramPassesThroughRam) {
  SlotTable table(kShape, two_classes(), {true, false, true});
  const uint32_t staged = resident(table, 0);
  const uint32_t home = resident(table, 16, Tier::kVram);
  const std::vector<double> values(kShape.entries(), 1.0);
  EXPECT_EQ(table.cheapest(0, Tier::kRam, 8, values).size(), 1u);
  EXPECT_EQ(table.cheapest(0, Tier::kRam, 8, values)[0], staged);
  EXPECT_TRUE(table.cheapest(0, Tier::kVram, 8, values).empty());
  EXPECT_EQ(table.dearest(0, Tier::kVram, 8, values)[0], home);
}

TEST(SlotTable, MovesKeepEntriesAndSwapPlaces) {
  SlotTable table(kShape, two_classes(), {});
  const uint32_t ram = resident(table, 3);
  const uint32_t vram = table.begin_move_to_free(ram, Tier::kVram);
  table.check();
  EXPECT_TRUE(table.anything_under_way(0));
  table.end_move(ram, vram);
  table.check();
  EXPECT_EQ(table.find(3), vram);
  EXPECT_EQ(table.slot(ram).state, SlotTable::State::kFree);
  const uint32_t other = resident(table, 4);
  table.begin_move(other, vram);
  table.end_move(other, vram);
  table.check();
  EXPECT_EQ(table.find(4), vram);
  EXPECT_EQ(table.find(3), other);
}

TEST(SlotTable, BrokenPromisesAreNoticed) {
  SlotTable table(kShape, two_classes(), {});
  const uint32_t slot = resident(table, 3);
  table.pin(slot);
  EXPECT_THROW(table.evict(slot), Error);
  EXPECT_THROW(table.begin_load(3, Tier::kRam, false), Error);
  table.unpin(slot);
  EXPECT_THROW(table.unpin(slot), Error);
  EXPECT_THROW(table.end_load(slot), Error);
}

TEST(SlotTable, InvariantsHoldOverRandomUse) {
  std::mt19937 random(5);
  SlotTable table(kShape, two_classes(), {});
  std::vector<double> values(kShape.entries());
  for (double& value : values) value = random() % 100;
  std::vector<uint32_t> pinned;
  for (int step = 0; step < 5000; ++step) {
    const uint32_t entry = random() % kShape.entries();
    const uint32_t c = table.class_of_entry(entry);
    const uint32_t found = table.find(entry);
    switch (random() % 4) {
      case 0:
        if (found != SlotTable::kNone) break;
        if (!table.has_free(c, Tier::kRam)) {
          const auto victims = table.cheapest(c, Tier::kRam, 1, values);
          if (victims.empty()) break;
          table.evict(victims[0]);
        }
        table.end_load(table.begin_load(entry, Tier::kRam, false));
        break;
      case 1:
        if (found == SlotTable::kNone || pinned.size() > 2) break;
        table.pin(found);
        pinned.push_back(found);
        break;
      case 2:
        if (pinned.empty()) break;
        table.unpin(pinned.back());
        pinned.pop_back();
        break;
      default:
        if (found == SlotTable::kNone || table.slot(found).pins > 0) break;
        if (table.slot(found).tier == Tier::kRam && table.has_free(c, Tier::kVram)) {
          table.end_move(found, table.begin_move_to_free(found, Tier::kVram));
        } else if (table.slot(found).tier == Tier::kVram) {
          table.evict(found);
        }
    }
    table.check();
  }
}

}  // namespace
}  // namespace tierpack::experts
