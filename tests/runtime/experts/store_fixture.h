// Tiered stores for tests: the slots of a pack by share of its experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "formats/pack.h"
#include "runtime/experts/tiered_store.h"

namespace tierpack::testing_support {

// Slots for `ram` of each class's records, at least kLeaseRecords, and for `vram` of them.
inline ExpertSlots slots_for(const PackManifest& manifest, double ram, double vram = 0) {
  std::map<uint64_t, ExpertSlots::Class> by_size;
  std::map<uint64_t, uint64_t> records;
  for (uint32_t i = 0; i < manifest.expert_layers.size(); ++i) {
    const ExpertLayer& layer = manifest.expert_layers[i];
    ExpertSlots::Class& c = by_size[layer.record_bytes];
    c.slot_bytes = experts::RecordReader::room_bytes(layer.record_bytes);
    c.layers.push_back(i);
    records[layer.record_bytes] += layer.experts;
  }
  ExpertSlots slots;
  for (auto& [bytes, c] : by_size) {
    const uint64_t all = records[bytes];
    c.ram_slots = std::clamp<uint64_t>(static_cast<uint64_t>(std::llround(ram * static_cast<double>(all))),
                                       std::min<uint64_t>(kLeaseRecords, all), all);
    c.vram_slots = static_cast<uint64_t>(std::llround(vram * static_cast<double>(all)));
    slots.classes.push_back(std::move(c));
  }
  return slots;
}

// Every entry in the order of the segment, which is hottest first.
inline std::vector<uint32_t> segment_order(const PackManifest& manifest) {
  const experts::CacheShape shape = experts::cache_shape(manifest);
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t e = 0; e < manifest.expert_layers[l].experts; ++e) {
      order.emplace_back(manifest.records[manifest.expert_layers[l].first_record + e].offset, shape.entry(l, e));
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> entries;
  for (const auto& [offset, entry] : order) entries.push_back(entry);
  return entries;
}

inline experts::StoreOptions store_options(const Pack& pack, double ram, double vram = 0) {
  experts::StoreOptions options;
  options.slots = slots_for(pack.manifest(), ram, vram);
  options.seed_order = segment_order(pack.manifest());
  if (vram > 0) options.vram = device::make_sim_vram(options.slots.vram_bytes(), 0);
  return options;
}

inline std::unique_ptr<experts::TieredStore> make_store(const Pack& pack, double ram, double vram = 0) {
  return std::make_unique<experts::TieredStore>(pack, store_options(pack, ram, vram));
}

}  // namespace tierpack::testing_support
