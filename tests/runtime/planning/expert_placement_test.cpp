#include "runtime/planning/expert_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "tests/runtime/planning/planned_model.h"
#include "tests/support/errors.h"

namespace tierpack::planning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::thrown_by;

std::vector<Placement> free_layers(const PlannedModel& m) { return std::vector<Placement>(m.manifest.expert_layers.size(), Placement::kFree); }

PlannedSlots filled(const PlannedModel& m, const std::vector<float>& uses, uint64_t vram, uint64_t ram) {
  const std::vector<uint32_t> order = placement_order(m.manifest, uses);
  const auto slots = fill_vram(classify_layers(m.manifest, m.config, free_layers(m)), m.manifest, order, uses, vram);
  return fill_ram(slots.value(), m.manifest, order, uses, ram).value();
}

TEST(SlotClasses, LayersShareOneWhereTheirSlotsHaveOneSize) {
  const PlannedModel m({40 * kKiB, 52 * kKiB, 40 * kKiB - 100, 8 * kKiB});
  const PlannedSlots slots = classify_layers(m.manifest, m.config, free_layers(m));
  ASSERT_EQ(slots.classes.size(), 3u);
  EXPECT_EQ(slots.classes[0].slot_bytes, 52 * kKiB);
  EXPECT_THAT(slots.classes[0].layers, ElementsAre(1));
  EXPECT_EQ(slots.classes[1].slot_bytes, 40 * kKiB);
  EXPECT_THAT(slots.classes[1].layers, ElementsAre(0, 2));
  EXPECT_EQ(slots.classes[1].entries, 32u);
  EXPECT_THAT(slots.classes[2].layers, ElementsAre(3));
}

TEST(SlotClasses, RulesKeepLayersOfOneSizeApart) {
  const PlannedModel m({8192, 8192, 8192});
  const PlannedSlots slots = classify_layers(m.manifest, m.config, {Placement::kFree, Placement::kDisk, Placement::kFree});
  ASSERT_EQ(slots.classes.size(), 2u);
  EXPECT_THAT(slots.classes[0].layers, ElementsAre(0, 2));
  EXPECT_THAT(slots.classes[1].layers, ElementsAre(1));
  EXPECT_EQ(slots.classes[1].placement, Placement::kDisk);
}

TEST(PlacementOrder, WithoutUsesIsTheOrderOfTheFile) {
  PlannedModel m({8192, 8192}, 3);
  // As packed: expert 2 of layer 1, then 1 of layer 0, then the others.
  m.manifest.records[m.manifest.expert_layers[1].first_record + 2].offset = 0;
  m.manifest.records[m.manifest.expert_layers[0].first_record + 1].offset = 8192;
  m.manifest.records[m.manifest.expert_layers[0].first_record].offset = 16384;
  m.manifest.records[m.manifest.expert_layers[0].first_record + 2].offset = 24576;
  m.manifest.records[m.manifest.expert_layers[1].first_record + 1].offset = 32768;
  m.manifest.records[m.manifest.expert_layers[1].first_record].offset = 40960;
  EXPECT_THAT(placement_order(m.manifest, {}), ElementsAre(5, 1, 0, 2, 4, 3));
}

TEST(PlacementOrder, WeighsUsesByBytes) {
  const PlannedModel m({8192, 16384}, 2);
  // Layer 1's are used more often, but cost twice the room.
  EXPECT_THAT(placement_order(m.manifest, std::vector<float>{0.3f, 0.1f, 0.5f, 0.7f}), ElementsAre(3, 0, 2, 1));
}

TEST(PlacementOrder, EntriesWithoutUseStandInTheOrderOfTheFile) {
  const PlannedModel m({8192}, 4);
  EXPECT_THAT(placement_order(m.manifest, std::vector<float>{0, 0, 0, 1}), ElementsAre(3, 0, 1, 2));
}

TEST(FillSlots, VramTakesTheHottestThenRam) {
  const PlannedModel m({8192, 8192}, 32, 1);
  const std::vector<float> uses = m.skewed_uses();
  const PlannedSlots slots = filled(m, uses, 3 * 8192, 20 * 8192 + 4096);
  ASSERT_EQ(slots.classes.size(), 1u);
  EXPECT_EQ(slots.classes[0].vram_slots, 3u);
  EXPECT_EQ(slots.classes[0].ram_slots, 20u);
  const std::vector<Tier> tiers = initial_tiers(slots, m.manifest, placement_order(m.manifest, uses));
  for (uint32_t e = 0; e < 32; ++e) {  // the layers' experts take turns
    EXPECT_EQ(tiers[e], e < 2 ? Tier::kVram : e < 12 ? Tier::kRam : Tier::kDisk) << e;
    EXPECT_EQ(tiers[32 + e], e < 1 ? Tier::kVram : e < 11 ? Tier::kRam : Tier::kDisk) << e;
  }
}

TEST(FillSlots, ASmallRecordIsTakenWhereALargeOneNoLongerFits) {
  const PlannedModel m({16384, 4096}, 32, 1);
  std::vector<float> uses(32, 8);  // per byte, layer 0's are hotter throughout
  uses.resize(64, 1);
  const PlannedSlots slots = filled(m, uses, 0, 16 * 16384 + 16 * 4096 + 16384 + 4096);
  EXPECT_EQ(slots.classes[0].ram_slots, 17u);
  EXPECT_EQ(slots.classes[1].ram_slots, 17u);
}

TEST(FillSlots, BenefitPerByteDecidesBetweenClasses) {
  const PlannedModel m({16384, 4096}, 32, 1);
  std::vector<float> uses(32, 1);  // layer 1's are used half as often and a quarter as large: twice the benefit per byte
  uses.resize(64, 0.5f);
  const PlannedSlots slots = filled(m, uses, 0, 16 * 16384 + 32 * 4096);
  EXPECT_EQ(slots.classes[0].ram_slots, 16u);  // the least it works with
  EXPECT_EQ(slots.classes[1].ram_slots, 32u);
}

TEST(FillSlots, WithoutUsesEveryClassGetsItsShare) {
  const PlannedModel m({40960, 8192, 8192}, 100, 2);
  const uint64_t all = 100 * (40960 + 8192 + 8192);
  const PlannedSlots slots = filled(m, {}, 0, all / 2);
  EXPECT_EQ(slots.classes[0].ram_slots, 50u);
  EXPECT_EQ(slots.classes[1].ram_slots, 100u);
  EXPECT_EQ(slots.ram_bytes(), all / 2);
  const PlannedSlots third = filled(m, {}, all / 4, all / 2);
  EXPECT_EQ(third.classes[0].vram_slots, 25u);
  EXPECT_EQ(third.classes[0].ram_slots, 50u);
  EXPECT_EQ(third.classes[1].vram_slots, 50u);
  EXPECT_EQ(third.classes[1].ram_slots, 100u);
}

TEST(FillSlots, LayersForDraftingComeLast) {
  PlannedModel m({8192, 8192, 16384}, 40, 2);
  m.config.layers = 2;
  const PlannedSlots some = filled(m, {}, 0, 16 * 16384 + 60 * 8192);
  EXPECT_EQ(some.classes[0].ram_slots, 16u);
  EXPECT_EQ(some.classes[1].ram_slots, 60u);
  const PlannedSlots more = filled(m, {}, 0, 20 * 16384 + 80 * 8192);
  EXPECT_EQ(more.classes[0].ram_slots, 20u);
  EXPECT_EQ(more.classes[1].ram_slots, 80u);
}

TEST(FillSlots, NeverMoreThanThereAre) {
  const PlannedModel m({8192, 4096}, 4, 2);
  for (const std::vector<float>& uses : {std::vector<float>{}, m.skewed_uses()}) {
    const PlannedSlots slots = filled(m, uses, 0, 100 * kMiB);
    EXPECT_EQ(slots.classes[0].ram_slots, 4u);
    EXPECT_EQ(slots.classes[1].ram_slots, 4u);
    EXPECT_TRUE(slots.resident());
    // The least stays in RAM, whatever lies in VRAM.
    const PlannedSlots in_vram = filled(m, uses, 100 * kMiB, 100 * kMiB);
    EXPECT_EQ(in_vram.ram_bytes(), 4 * 8192u + 4 * 4096u);
    EXPECT_EQ(in_vram.vram_bytes(), 4 * 8192u + 4 * 4096u);
    EXPECT_TRUE(in_vram.resident());
  }
}

TEST(FillSlots, TheLeastIsTwoTokensOfALayerAndWhatAPassHoldsOrAllOfIt) {
  const auto least = [](uint32_t experts, uint32_t used) {
    const PlannedModel m({8192}, experts, used);
    return classify_layers(m.manifest, m.config, free_layers(m)).classes[0].least_ram_slots;
  };
  EXPECT_EQ(least(64, 10), 20u);
  EXPECT_EQ(least(64, 2), kLeaseRecords);
  EXPECT_EQ(least(8, 2), 8u);
  const PlannedModel m({8192}, 64, 10);
  const PlannedSlots classes = classify_layers(m.manifest, m.config, free_layers(m));
  const std::vector<uint32_t> order = placement_order(m.manifest, {});
  EXPECT_FALSE(fill_ram(classes, m.manifest, order, {}, 20 * 8192 - 1).has_value());
  EXPECT_EQ(fill_ram(classes, m.manifest, order, {}, 20 * 8192)->classes[0].ram_slots, 20u);
}

TEST(FillSlots, BudgetsHoldAtEverySize) {
  const PlannedModel m({20000, 12288, 4096, 9000, 20000}, 40, 2);
  const std::vector<float> skewed = m.skewed_uses({1, 3, 0.2, 2, 0});
  const std::vector<Placement> placements = {Placement::kFree, Placement::kFree, Placement::kRam, Placement::kDisk, Placement::kFree};
  for (const std::vector<float>& uses : {std::vector<float>{}, skewed}) {
    const std::vector<uint32_t> order = placement_order(m.manifest, uses);
    for (uint64_t vram = 0; vram < kMiB; vram += 77777) {
      const auto in_vram = fill_vram(classify_layers(m.manifest, m.config, placements), m.manifest, order, uses, vram);
      ASSERT_TRUE(in_vram.has_value());
      EXPECT_LE(in_vram->vram_bytes(), vram);
      const uint64_t least = in_vram->least_ram_bytes();
      const uint64_t whole = in_vram->whole_ram_bytes();
      uint64_t before = 0;
      for (uint64_t ram = least; ram < whole + 100000; ram += 54321) {
        const auto slots = fill_ram(*in_vram, m.manifest, order, uses, ram);
        ASSERT_TRUE(slots.has_value());
        EXPECT_LE(slots->ram_bytes(), ram);
        EXPECT_GE(slots->ram_bytes(), before);
        EXPECT_TRUE(ram < whole || slots->ram_bytes() == whole);
        before = slots->ram_bytes();
        uint64_t placed = 0;
        for (const Tier tier : initial_tiers(*slots, m.manifest, order)) placed += tier == Tier::kDisk ? 0 : 1;
        uint64_t in_all = 0;
        for (const PlannedClass& c : slots->classes) {
          EXPECT_LE(c.ram_slots + c.vram_slots, c.entries + c.least_ram_slots);
          if (c.placement != Placement::kDisk) in_all += std::min(c.entries, c.ram_slots + c.vram_slots);
        }
        EXPECT_EQ(placed, in_all);
      }
    }
  }
}

TEST(PlacementRules, PinWholeLayers) {
  const PlannedModel m({8192, 8192, 8192, 8192}, 32, 2);
  const std::vector<Placement> placements =
      layer_placements(m.manifest, {parse_placement_rule("blk\\.0\\.ffn_up_exps=disk"), parse_placement_rule("blk\\.[0-1]\\..*_exps=vram"),
                                    parse_placement_rule("blk\\.3.*exps=ram")}, true, "planned");
  EXPECT_THAT(placements, ElementsAre(Placement::kDisk, Placement::kVram, Placement::kFree, Placement::kRam));
  const std::vector<uint32_t> order = placement_order(m.manifest, {});
  const auto vram = fill_vram(classify_layers(m.manifest, m.config, placements), m.manifest, order, {}, 32 * 8192 + 3 * 8192);
  const PlannedSlots slots = fill_ram(vram.value(), m.manifest, order, {}, 100 * kMiB).value();
  for (const PlannedClass& c : slots.classes) {
    switch (c.placement) {
      case Placement::kFree: EXPECT_EQ(c.vram_slots, 3u); EXPECT_EQ(c.ram_slots, 29u); break;
      case Placement::kVram: EXPECT_EQ(c.vram_slots, 32u); EXPECT_EQ(c.ram_slots, 16u); break;
      case Placement::kRam: EXPECT_EQ(c.vram_slots, 0u); EXPECT_EQ(c.ram_slots, 32u); break;
      case Placement::kDisk: EXPECT_EQ(c.vram_slots, 0u); EXPECT_EQ(c.ram_slots, 16u); break;
    }
  }
  EXPECT_FALSE(fill_vram(classify_layers(m.manifest, m.config, placements), m.manifest, order, {}, 32 * 8192 - 1).has_value());
}

TEST(PlacementRules, AreRefusedWhereTheyCannotHold) {
  PlannedModel m({8192});
  const auto refusal = [&](const std::string& rule, bool device = true) {
    return thrown_by([&] { layer_placements(m.manifest, {parse_placement_rule(rule)}, device, "planned"); });
  };
  EXPECT_EQ(refusal("blk.0.ffn_gate_exps=vram", false).kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal("blk.0.ffn_gate_exps=vram", false).message, HasSubstr("there is none to use"));
  EXPECT_EQ(refusal("token_embd=vram").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal("token_embd=disk").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refusal("token_embd=ram").kind, std::nullopt);
  EXPECT_EQ(refusal("blk.7=ram").kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal("blk.7=ram").message, HasSubstr("no tensor of planned"));
  EXPECT_EQ(refusal("experts=gpu").kind, ErrorKind::kUsage);
  EXPECT_EQ(refusal("experts").kind, ErrorKind::kUsage);
  EXPECT_EQ(refusal("(=ram").kind, ErrorKind::kUsage);
}

TEST(ExpectedUses, AreCountsPerToken) {
  const PlannedModel m({8192, 8192}, 2, 1);
  Profile profile;
  profile.layers = 1;  // the second block is for drafting
  profile.experts = 2;
  profile.corpora.push_back({"text", {}, 20});
  profile.counts = {5, 15};
  EXPECT_THAT(expected_uses(m.manifest, profile), ElementsAre(0.25f, 0.75f, 0.0f, 0.0f));
  profile.corpora[0].tokens = 0;
  EXPECT_TRUE(expected_uses(m.manifest, profile).empty());
}

}  // namespace
}  // namespace tierpack::planning
