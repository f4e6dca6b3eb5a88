// How much of a model's experts the fast tiers hold: places for records, by class. A slot holds any record of its class.
//
// A class is a set of expert layers whose records fill slots of one size and that are placed by one rule. A store needs no other
// word about rules: a class pinned to a tier has a slot there for each of its experts, so nothing is ever evicted from it, and a
// class that is to stay on disk has the fewest slots that a forward pass can work with.
#pragma once

#include <cstdint>
#include <vector>

namespace tierpack::experts {

enum class Placement : uint8_t {
  kFree,  // where the benefit is largest
  kVram,  // every record in VRAM, always
  kRam,   // every record in RAM, always
  kDisk,  // cached no more than needed
};

struct ExpertSlots {
  struct Class {
    uint64_t slot_bytes = 0;       // record_bytes rounded up to kRecordAlignment
    std::vector<uint32_t> layers;  // indices into PackManifest::expert_layers, ascending
    Placement placement = Placement::kFree;
    uint64_t entries = 0;          // experts of all its layers
    uint64_t ram_slots = 0;
    uint64_t vram_slots = 0;       // ram_slots + vram_slots <= entries
    bool resident() const { return ram_slots + vram_slots == entries; }
  };
  std::vector<Class> classes;  // largest slots first, then by placement

  uint64_t ram_bytes() const { return sum(&Class::ram_slots); }
  uint64_t vram_bytes() const { return sum(&Class::vram_slots); }
  bool resident() const {  // nothing is read again after the start
    for (const Class& c : classes) {
      if (!c.resident()) return false;
    }
    return true;
  }

 private:
  uint64_t sum(uint64_t Class::*slots) const {
    uint64_t bytes = 0;
    for (const Class& c : classes) bytes += c.*slots * c.slot_bytes;
    return bytes;
  }
};

}  // namespace tierpack::experts
