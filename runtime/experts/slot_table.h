// Which expert lies in which slot: the index of the tiered store, without memory, files or threads.
//
// Invariants, held between any two calls and verified by check():
//  - An entry has at most one slot, and that slot names the entry; a slot that names no entry is free, or reserved as the
//    destination of a move.
//  - A free slot is in its class's free list exactly once; no other slot is in one.
//  - Only a ready slot has pins. A pinned, loading or moving slot is never given to another entry.
//  - Slots of a class serve entries of that class alone.
// Finding an entry's slot and pinning it are O(1); choosing what to evict looks at every slot of one class once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/experts/cache_policy.h"
#include "runtime/experts/expert_slots.h"

namespace tierpack::experts {

class SlotTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  enum class State : uint8_t { kFree, kLoading, kReady, kMoving };
  struct Slot {
    uint32_t entry = kNone;
    uint32_t pins = 0;
    uint32_t ticket = 0;       // of the read that fills it
    uint32_t class_index = 0;
    uint64_t offset = 0;       // in its tier's memory
    Tier tier = Tier::kRam;
    State state = State::kFree;
    bool prefetched = false;   // read ahead and not asked for yet
  };

  // Entries of layers that `keep_resident` names are never evicted once they are there.
  SlotTable(const CacheShape& shape, const ExpertSlots& slots, std::vector<bool> keep_resident);

  const CacheShape& shape() const { return shape_; }
  uint32_t class_count() const { return static_cast<uint32_t>(classes_.size()); }
  uint32_t class_of_layer(uint32_t layer) const { return class_of_layer_[layer]; }
  uint32_t class_of_entry(uint32_t entry) const { return class_of_layer_[entry / shape_.experts]; }
  uint64_t slot_bytes(uint32_t class_index) const { return classes_[class_index].slot_bytes; }
  uint32_t slot_count(uint32_t class_index, Tier tier) const;

  uint32_t find(uint32_t entry) const { return slot_of_[entry]; }
  const Slot& slot(uint32_t index) const { return slots_[index]; }
  bool has_free(uint32_t class_index, Tier tier) const { return !free_list(class_index, tier).empty(); }

  // A free slot becomes the loading slot of `entry`.
  uint32_t begin_load(uint32_t entry, Tier tier, bool prefetched);
  void set_ticket(uint32_t slot, uint32_t ticket) { slots_[slot].ticket = ticket; }
  void end_load(uint32_t slot);   // loading -> ready
  void fail_load(uint32_t slot);  // loading -> free
  void pin(uint32_t slot);
  void unpin(uint32_t slot);
  void mark_used(uint32_t slot) { slots_[slot].prefetched = false; }
  void evict(uint32_t slot);      // ready, not pinned -> free

  // The entry of ready, unpinned `from` moves to a free slot of the same class in the other tier, or changes places with
  // the entry of ready, unpinned `to`. Both slots are moving until end_move.
  void begin_move(uint32_t from, uint32_t to);
  uint32_t begin_move_to_free(uint32_t from, Tier tier);
  void end_move(uint32_t from, uint32_t to);

  // Of the class's ready, unpinned slots in `tier`, the `count` whose entries are worth least, least first. Entries of
  // layers that stay are not among them. Valid until the next call.
  std::span<const uint32_t> cheapest(uint32_t class_index, Tier tier, size_t count, std::span<const double> values);
  // Likewise those worth most, most first.
  std::span<const uint32_t> dearest(uint32_t class_index, Tier tier, size_t count, std::span<const double> values);

  // Slots of the class that are loading or moving, and so become usable by themselves.
  bool anything_under_way(uint32_t class_index) const;

  // Throws kInternal when an invariant does not hold.
  void check() const;

 private:
  struct Class {
    uint64_t slot_bytes = 0;
    uint32_t first = 0;      // its slots: RAM, then VRAM
    uint32_t ram = 0, vram = 0;
    std::vector<uint32_t> free[2];  // by tier: VRAM, RAM
  };
  struct Ranked {
    double value;
    uint32_t slot;
  };
  std::vector<uint32_t>& free_list(uint32_t class_index, Tier tier) { return classes_[class_index].free[static_cast<size_t>(tier)]; }
  const std::vector<uint32_t>& free_list(uint32_t class_index, Tier tier) const {
    return classes_[class_index].free[static_cast<size_t>(tier)];
  }
  void release(uint32_t slot);
  void gather(uint32_t class_index, Tier tier, bool leaving, std::span<const double> values);
  std::span<const uint32_t> picked(size_t count);

  CacheShape shape_;
  std::vector<uint32_t> class_of_layer_;
  std::vector<bool> stays_;         // by layer
  std::vector<Class> classes_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> slot_of_;   // by entry
  std::vector<Ranked> ranked_;      // scratch
  std::vector<uint32_t> picked_;    // scratch
};

}  // namespace tierpack::experts
