// Which experts deserve the fast tiers: rules given by hand, use expected from a profile, and slots filled by benefit per byte.
// Pure: numbers in, numbers out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/regex.h"
#include "formats/pack.h"
#include "formats/profile.h"
#include "runtime/experts/cache_policy.h"
#include "runtime/experts/expert_slots.h"

namespace tierpack::planning {

using experts::CacheShape;
using experts::ExpertSlots;
using experts::Placement;

enum class Tier : uint8_t { kVram, kRam, kDisk };
const char* tier_name(Tier tier);

// "blk.[0-9]_.*exps=vram": tensors whose name the expression is found in live in that tier.
struct PlacementRule {
  Regex names;
  Tier tier;
};
// Throws kUsage for text that is no REGEX=vram|ram|disk.
PlacementRule parse_placement_rule(const std::string& text);

// What the rules say of each expert layer: the first rule that fits one of its tensors decides. Throws kUsage for a rule that
// fits no tensor and for vram without a device, kUnsupported for places that a tensor cannot have (`name` is the model's).
std::vector<Placement> layer_placements(const PackManifest& manifest, const std::vector<PlacementRule>& rules, bool has_device,
                                        const std::string& name);

CacheShape cache_shape(const PackManifest& manifest);

// Expected uses per token of every entry, (shape.layers, shape.experts): what CachePolicy::seed takes. Layers that the profile
// does not know (drafting blocks) have none. Empty for a profile without tokens. Whether it is a profile of this model is the
// caller's to prove (require_profile_matches).
std::vector<float> expected_uses(const PackManifest& manifest, const Profile& profile);

// The classes, without slots.
ExpertSlots slot_classes(const PackManifest& manifest, const std::vector<Placement>& placements);

// Every entry, the one most worth keeping first: by expected uses per byte of slot. Those that nothing tells apart, and all
// without `uses` (empty), stand in the order of experts.bin, which is hottest first as packed.
std::vector<uint32_t> placement_order(const PackManifest& manifest, std::span<const float> uses);

// The fewest slots that a class can work with: room for two tokens' experts of a layer, or all of them.
uint64_t minimum_slots(const ExpertSlots::Class& c, const PackManifest& manifest, uint32_t experts_used);

// Sets vram_slots: classes pinned there whole, then free ones along `order` while they fit, in proportion to the classes' bytes
// without `uses`. nullopt when the pinned ones do not fit.
std::optional<ExpertSlots> fill_vram(ExpertSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                     std::span<const float> uses, uint64_t vram_bytes);
// Bytes of RAM slots without which nothing runs, and those that hold everything that VRAM does not.
uint64_t minimum_ram_bytes(const ExpertSlots& slots, const PackManifest& manifest, uint32_t experts_used);
uint64_t whole_ram_bytes(const ExpertSlots& slots, const PackManifest& manifest, uint32_t experts_used);
// Sets ram_slots likewise, behind fill_vram. nullopt when the minimum does not fit.
std::optional<ExpertSlots> fill_ram(ExpertSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                    std::span<const float> uses, uint32_t experts_used, uint64_t ram_bytes);

// Where every entry lies once the slots are filled along `order`; entries beyond a smaller layer's own are kDisk.
std::vector<Tier> initial_tiers(const ExpertSlots& slots, const PackManifest& manifest, std::span<const uint32_t> order);

}  // namespace tierpack::planning
