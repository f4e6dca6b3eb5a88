#include "runtime/planning/expert_placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace tierpack::planning {

namespace {

constexpr uint32_t kTokensOfMinimum = 2;

Placement placement_of(Tier tier) {
  return tier == Tier::kVram ? Placement::kVram : tier == Tier::kRam ? Placement::kRam : Placement::kDisk;
}

// Refuses rules about tensors that are no experts, unless they say what is so anyway.
void check_other_tensors(const PackManifest& manifest, const std::vector<PlacementRule>& rules, std::vector<bool>& used,
                         const std::string& name) {
  const auto check = [&](const std::string& tensor, Tier possible, const char* why) {
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!rules[i].names.found_in(tensor)) continue;
      used[i] = true;
      if (rules[i].tier == possible) return;
      fail(ErrorKind::kUnsupported, "{}: --place '{}={}' fits {}, {}; name the experts alone, such as 'ffn_.*_exps={}'", name,
           rules[i].names.pattern(), tier_name(rules[i].tier), tensor, why, tier_name(rules[i].tier));
    }
  };
  for (const DenseTensor& tensor : manifest.dense) check(tensor.name, Tier::kRam, "a dense tensor, whose place follows from what computes");
  for (const RowTable& table : manifest.rows) check(table.name, Tier::kDisk, "a lookup table, whose rows are read from disk");
}

// Grows the slots of classes along `order` while they fit into what is left. `first` skips the entries of a class that are
// placed already; `most` bounds its slots.
struct Growth {
  std::vector<uint64_t> skip, taken, most;
};

void grow_along(const PlannedSlots& slots, const std::vector<uint32_t>& class_of, const CacheShape& shape,
                std::span<const uint32_t> order, uint64_t left, Growth& growth) {
  uint64_t smallest = UINT64_MAX;
  for (const PlannedClass& c : slots.classes) smallest = std::min(smallest, c.slot_bytes);
  for (const uint32_t entry : order) {
    if (left < smallest) break;
    const uint32_t c = class_of[entry / shape.experts];
    if (growth.skip[c] > 0) {
      --growth.skip[c];
    } else if (growth.taken[c] < growth.most[c] && slots.classes[c].slot_bytes <= left) {
      ++growth.taken[c];
      left -= slots.classes[c].slot_bytes;
    }
  }
}

// Grows all classes to the same share of the entries that decoding uses, then the others.
void grow_evenly(const PlannedSlots& slots, uint64_t left, Growth& growth) {
  const size_t count = slots.classes.size();
  const auto target = [&](size_t c, double share) {
    const uint64_t whole = growth.skip[c] + growth.most[c];
    const uint64_t used = whole - std::min(whole, slots.classes[c].idle);
    const uint64_t slots_in_all = std::min(used, static_cast<uint64_t>(share * static_cast<double>(used)));
    return std::min(growth.most[c], slots_in_all - std::min(slots_in_all, growth.skip[c]));
  };
  const auto cost = [&](double share) {
    uint64_t bytes = 0;
    for (size_t c = 0; c < count; ++c) bytes += target(c, share) * slots.classes[c].slot_bytes;
    return bytes;
  };
  double low = 0;
  double high = 1;
  if (cost(1) <= left) low = 1;
  for (int step = 0; step < 60 && low < 1; ++step) {
    const double middle = (low + high) / 2;
    (cost(middle) <= left ? low : high) = middle;
  }
  left -= cost(low);
  for (size_t c = 0; c < count; ++c) growth.taken[c] = target(c, low);
  for (size_t c = 0; c < count; ++c) {  // idle ones, and what rounding down left over
    const uint64_t more = std::min(growth.most[c] - growth.taken[c], left / slots.classes[c].slot_bytes);
    growth.taken[c] += more;
    left -= more * slots.classes[c].slot_bytes;
  }
}

std::vector<uint32_t> classes_of_layers(const PlannedSlots& slots, size_t layers) {
  std::vector<uint32_t> out(layers);
  for (uint32_t c = 0; c < slots.classes.size(); ++c) {
    for (const uint32_t layer : slots.classes[c].layers) out[layer] = c;
  }
  return out;
}

void grow(const PlannedSlots& slots, const PackManifest& manifest, std::span<const uint32_t> order, std::span<const float> uses,
          uint64_t left, Growth& growth) {
  if (slots.classes.empty()) return;
  if (uses.empty()) {
    grow_evenly(slots, left, growth);
  } else {
    grow_along(slots, classes_of_layers(slots, manifest.expert_layers.size()), cache_shape(manifest), order, left, growth);
  }
}

}  // namespace

uint64_t PlannedSlots::ram_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedClass& c : classes) bytes += c.ram_slots * c.slot_bytes;
  return bytes;
}

uint64_t PlannedSlots::vram_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedClass& c : classes) bytes += c.vram_slots * c.slot_bytes;
  return bytes;
}

uint64_t PlannedSlots::least_ram_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedClass& c : classes) bytes += c.least_ram_slots * c.slot_bytes;
  return bytes;
}

uint64_t PlannedSlots::whole_ram_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedClass& c : classes) {
    const uint64_t rest = c.placement == Placement::kFree ? c.entries - c.vram_slots : 0;
    bytes += std::max(c.least_ram_slots, rest) * c.slot_bytes;
  }
  return bytes;
}

bool PlannedSlots::resident() const {
  return std::all_of(classes.begin(), classes.end(), [](const PlannedClass& c) { return c.resident(); });
}

ExpertSlots PlannedSlots::expert_slots() const {
  ExpertSlots slots;
  slots.classes.assign(classes.begin(), classes.end());
  return slots;
}

const char* tier_name(Tier tier) { return tier == Tier::kVram ? "vram" : tier == Tier::kRam ? "ram" : "disk"; }

PlacementRule parse_placement_rule(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) fail(ErrorKind::kUsage, "--place {}: expected REGEX=TIER, such as 'blk.[0-3].ffn_.*_exps=ram'", text);
  const std::string tier = text.substr(at + 1);
  for (const Tier known : {Tier::kVram, Tier::kRam, Tier::kDisk}) {
    if (tier == tier_name(known)) return {Regex(text.substr(0, at)), known};
  }
  fail(ErrorKind::kUsage, "--place {}: '{}' is no tier; choose vram, ram or disk", text, tier);
}

std::vector<Placement> layer_placements(const PackManifest& manifest, const std::vector<PlacementRule>& rules, bool has_device,
                                        const std::string& name) {
  std::vector<Placement> out(manifest.expert_layers.size(), Placement::kFree);
  std::vector<bool> used(rules.size());
  for (size_t l = 0; l < out.size(); ++l) {
    const ExpertLayer& layer = manifest.expert_layers[l];
    const auto fits = [&](const PlacementRule& rule) {
      for (const ExpertPart* part : layer.parts()) {
        if (rule.names.found_in(part->tensor)) return true;
      }
      return false;
    };
    bool decided = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!fits(rules[i])) continue;
      used[i] = true;
      if (decided) continue;
      decided = true;
      out[l] = placement_of(rules[i].tier);
      if (rules[i].tier == Tier::kVram && !has_device) {
        fail(ErrorKind::kUsage, "{}: --place '{}=vram' needs VRAM, and there is none to use; give --vram or place it in ram", name,
             rules[i].names.pattern());
      }
    }
  }
  check_other_tensors(manifest, rules, used, name);
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!used[i]) fail(ErrorKind::kUsage, "--place '{}={}': no tensor of {} has such a name", rules[i].names.pattern(), tier_name(rules[i].tier), name);
  }
  return out;
}

std::vector<float> expected_uses(const PackManifest& manifest, const Profile& profile) {
  const uint64_t tokens = profile.tokens();
  if (tokens == 0) return {};
  const CacheShape shape = cache_shape(manifest);
  TIERPACK_CHECK(profile.experts >= shape.experts);
  std::vector<float> uses(shape.entries(), 0.0f);
  for (uint32_t l = 0; l < shape.layers; ++l) {
    const ExpertLayer& layer = manifest.expert_layers[l];
    if (layer.layer >= profile.layers) continue;
    for (uint32_t e = 0; e < layer.experts; ++e) {
      uses[shape.entry(l, e)] = static_cast<float>(static_cast<double>(profile.count(layer.layer, e)) / static_cast<double>(tokens));
    }
  }
  return uses;
}

PlannedSlots classify_layers(const PackManifest& manifest, const ModelConfig& config, const std::vector<Placement>& placements) {
  std::map<std::pair<uint64_t, Placement>, PlannedClass> classes;
  for (uint32_t l = 0; l < manifest.expert_layers.size(); ++l) {
    const ExpertLayer& layer = manifest.expert_layers[l];
    const uint64_t slot_bytes = align_up(layer.record_bytes, kRecordAlignment);
    PlannedClass& c = classes[{UINT64_MAX - slot_bytes, placements[l]}];
    c.slot_bytes = slot_bytes;
    c.placement = placements[l];
    c.layers.push_back(l);
    c.entries += layer.experts;
    if (layer.layer >= config.layers) c.idle += layer.experts;
    const uint64_t least = std::min<uint64_t>(std::max(kTokensOfMinimum * config.experts_used, kLeaseRecords), layer.experts);
    c.least_ram_slots = c.placement == Placement::kRam ? c.entries : std::max(c.least_ram_slots, least);
  }
  PlannedSlots slots;
  for (auto& [key, c] : classes) slots.classes.push_back(std::move(c));
  return slots;
}

std::vector<uint32_t> placement_order(const PackManifest& manifest, std::span<const float> uses) {
  const CacheShape shape = cache_shape(manifest);
  struct Entry {
    uint32_t entry;
    double benefit;
    uint64_t offset;
  };
  std::vector<Entry> entries;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    const ExpertLayer& layer = manifest.expert_layers[l];
    const auto slot_bytes = static_cast<double>(align_up(layer.record_bytes, kRecordAlignment));
    for (uint32_t e = 0; e < layer.experts; ++e) {
      const uint32_t entry = shape.entry(l, e);
      entries.push_back({entry, uses.empty() ? 0 : static_cast<double>(uses[entry]) / slot_bytes, manifest.records[layer.first_record + e].offset});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.benefit != b.benefit ? a.benefit > b.benefit : a.offset != b.offset ? a.offset < b.offset : a.entry < b.entry;
  });
  std::vector<uint32_t> order;
  for (const Entry& entry : entries) order.push_back(entry.entry);
  return order;
}

std::optional<PlannedSlots> fill_vram(PlannedSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                      std::span<const float> uses, uint64_t vram_bytes) {
  Growth growth;
  for (PlannedClass& c : slots.classes) {
    c.vram_slots = c.placement == Placement::kVram ? c.entries : 0;
    growth.skip.push_back(0);
    growth.taken.push_back(0);
    growth.most.push_back(c.placement == Placement::kFree ? c.entries : 0);
  }
  if (slots.vram_bytes() > vram_bytes) return std::nullopt;
  grow(slots, manifest, order, uses, vram_bytes - slots.vram_bytes(), growth);
  for (size_t c = 0; c < slots.classes.size(); ++c) slots.classes[c].vram_slots += growth.taken[c];
  return slots;
}

std::optional<PlannedSlots> fill_ram(PlannedSlots slots, const PackManifest& manifest, std::span<const uint32_t> order,
                                     std::span<const float> uses, uint64_t ram_bytes) {
  Growth growth;
  for (PlannedClass& c : slots.classes) {
    c.ram_slots = c.least_ram_slots;
    const uint64_t placed = std::min(c.entries, c.vram_slots + c.ram_slots);
    growth.skip.push_back(placed);
    growth.taken.push_back(0);
    growth.most.push_back(c.placement == Placement::kFree ? c.entries - placed : 0);
  }
  const uint64_t least = slots.ram_bytes();
  if (least > ram_bytes) return std::nullopt;
  grow(slots, manifest, order, uses, ram_bytes - least, growth);
  for (size_t c = 0; c < slots.classes.size(); ++c) slots.classes[c].ram_slots += growth.taken[c];
  return slots;
}

std::vector<Tier> initial_tiers(const PlannedSlots& slots, const PackManifest& manifest, std::span<const uint32_t> order) {
  const CacheShape shape = cache_shape(manifest);
  const std::vector<uint32_t> class_of = classes_of_layers(slots, shape.layers);
  std::vector<uint64_t> vram, ram;
  for (const PlannedClass& c : slots.classes) {
    vram.push_back(c.vram_slots);
    ram.push_back(c.placement == Placement::kDisk ? 0 : c.ram_slots);
  }
  std::vector<Tier> tiers(shape.entries(), Tier::kDisk);
  for (const uint32_t entry : order) {
    const uint32_t c = class_of[entry / shape.experts];
    if (vram[c] > 0) {
      --vram[c];
      tiers[entry] = Tier::kVram;
    } else if (ram[c] > 0) {
      --ram[c];
      tiers[entry] = Tier::kRam;
    }
  }
  return tiers;
}

}  // namespace tierpack::planning
