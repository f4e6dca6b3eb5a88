// How much of a model's experts fits where: the sizes that a plan decides and the store is built with.
//
// Layers whose experts have the same record size form a size class. A slot is a place for one record of a class, in RAM
// or in VRAM; slots of a class are interchangeable, slots of different classes are not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tierpack {

enum class Tier : uint8_t { kVram, kRam, kDisk };

// Records of one layer that a forward pass holds at once.
inline constexpr uint32_t kLeaseRecords = 16;

struct ExpertSlots {
  struct Class {
    uint64_t slot_bytes = 0;       // a multiple of 4096
    std::vector<uint32_t> layers;  // indices into PackManifest::expert_layers, ascending
    uint64_t ram_slots = 0;
    uint64_t vram_slots = 0;
  };
  std::vector<Class> classes;

  uint64_t ram_bytes() const {
    uint64_t sum = 0;
    for (const Class& c : classes) sum += c.slot_bytes * c.ram_slots;
    return sum;
  }
  uint64_t vram_bytes() const {
    uint64_t sum = 0;
    for (const Class& c : classes) sum += c.slot_bytes * c.vram_slots;
    return sum;
  }
};

}  // namespace tierpack
