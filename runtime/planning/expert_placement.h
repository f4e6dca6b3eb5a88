// Which experts deserve the fast tiers: rules given by hand, use expected from a profile, and slots filled by benefit per byte.
// Pure: numbers in, numbers out.
//
// Layers share a class when their records fill slots of one size and one rule places them. So a class pinned to a tier has a slot
// there for each of its experts, and one that is to stay on disk the fewest slots that a forward pass can work with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/regex.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "formats/profile.h"
#include "runtime/experts/pack_shape.h"
#include "runtime/experts/expert_slots.h"

namespace tierpack::planning {

using experts::cache_shape;
using experts::CacheShape;

const char* tier_name(Tier tier);

enum class Placement : uint8_t {
  kFree,  // where the benefit is largest
  kVram,  // every record in VRAM, always
  kRam,   // every record in RAM, always
  kDisk,  // cached no more than needed
};

struct PlannedClass : ExpertSlots::Class {
  Placement placement = Placement::kFree;
  uint64_t entries = 0;  // experts of all its layers
  uint64_t idle = 0;     // of them, of layers for drafting, which decoding does not use
  uint64_t least_ram_slots = 0;  // what a forward pass works with, or all of a class pinned to RAM
  bool resident() const { return ram_slots + vram_slots >= entries; }
};

struct PlannedSlots {
  std::vector<PlannedClass> classes;  // largest slots first, then by placement
  uint64_t ram_bytes() const;
  uint64_t vram_bytes() const;
  uint64_t least_ram_bytes() const;  // without which nothing runs
  uint64_t whole_ram_bytes() const;  // with which nothing is read twice, but for what stays on disk
  bool resident() const;             // nothing is read again after the start
  ExpertSlots expert_slots() const;
};

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

// Expected uses per token of every entry, (shape.layers, shape.experts): what CachePolicy::seed takes. Layers that the profile
// does not know (drafting blocks) have none. Empty for a profile without tokens. Whether it is a profile of this model is the
// caller's to prove (require_profile_matches).
std::vector<float> expected_uses(const PackManifest& manifest, const Profile& profile);

// The classes, without slots. The fewest in RAM are room for two tokens' experts of a layer and for what a pass holds at once, or
// all of the layer.
PlannedSlots classify_layers(const PackManifest& manifest, const ModelConfig& config, const std::vector<Placement>& placements);

// Every entry, the one most worth keeping first: by expected uses per byte of slot. Those that nothing tells apart, and all
// without `uses` (empty), stand in the order of experts.bin, which is hottest first as packed.
std::vector<uint32_t> placement_order(const PackManifest& manifest, std::span<const float> uses);

// Sets vram_slots: classes pinned there whole, then free ones along `order` while they fit, in proportion to the classes' bytes
// without `uses`. nullopt when the pinned ones do not fit.
std::optional<PlannedSlots> fill_vram(PlannedSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                      std::span<const float> uses, uint64_t vram_bytes);
// Sets ram_slots likewise, behind fill_vram. nullopt when the least do not fit.
std::optional<PlannedSlots> fill_ram(PlannedSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                     std::span<const float> uses, uint64_t ram_bytes);

// Where every entry lies once the slots are filled along `order`; entries beyond a smaller layer's own are kDisk.
std::vector<Tier> initial_tiers(const PlannedSlots& slots, const PackManifest& manifest, std::span<const uint32_t> order);

}  // namespace tierpack::planning
