#include "runtime/experts/slot_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tierpack::experts {

SlotTable::SlotTable(const CacheShape& shape, const ExpertSlots& slots, std::vector<bool> keep_resident)
    : shape_(shape), class_of_layer_(shape.layers, kNone), stays_(std::move(keep_resident)), slot_of_(shape.entries(), kNone) {
  stays_.resize(shape.layers, false);
  uint64_t ram_offset = 0;
  uint64_t vram_offset = 0;
  for (uint32_t c = 0; c < slots.classes.size(); ++c) {
    const ExpertSlots::Class& given = slots.classes[c];
    for (const uint32_t layer : given.layers) {
      TIERPACK_CHECK(layer < shape.layers && class_of_layer_[layer] == kNone);
      class_of_layer_[layer] = c;
    }
    Class made;
    made.slot_bytes = given.slot_bytes;
    made.first = static_cast<uint32_t>(slots_.size());
    made.ram = static_cast<uint32_t>(given.ram_slots);
    made.vram = static_cast<uint32_t>(given.vram_slots);
    for (uint32_t i = 0; i < made.ram + made.vram; ++i) {
      Slot slot;
      slot.class_index = c;
      slot.tier = i < made.ram ? Tier::kRam : Tier::kVram;
      uint64_t& offset = i < made.ram ? ram_offset : vram_offset;
      slot.offset = offset;
      offset += made.slot_bytes;
      slots_.push_back(slot);
    }
    classes_.push_back(std::move(made));
    // Room for every slot at once; low slots are taken first, so that memory is touched from its beginning.
    for (const Tier tier : {Tier::kVram, Tier::kRam}) {
      std::vector<uint32_t>& list = free_list(c, tier);
      const Class& own = classes_.back();
      const uint32_t begin = own.first + (tier == Tier::kRam ? 0 : own.ram);
      for (uint32_t i = tier == Tier::kRam ? own.ram : own.vram; i > 0; --i) list.push_back(begin + i - 1);
    }
  }
  for (const uint32_t c : class_of_layer_) TIERPACK_CHECK(c != kNone);
  ranked_.reserve(slots_.size());
  picked_.reserve(slots_.size());
}

uint32_t SlotTable::slot_count(uint32_t class_index, Tier tier) const {
  return tier == Tier::kRam ? classes_[class_index].ram : tier == Tier::kVram ? classes_[class_index].vram : 0;
}

uint32_t SlotTable::begin_load(uint32_t entry, Tier tier, bool prefetched) {
  TIERPACK_CHECK(slot_of_[entry] == kNone);
  std::vector<uint32_t>& list = free_list(class_of_entry(entry), tier);
  TIERPACK_CHECK(!list.empty());
  const uint32_t index = list.back();
  list.pop_back();
  Slot& slot = slots_[index];
  slot.entry = entry;
  slot.state = State::kLoading;
  slot.prefetched = prefetched;
  slot_of_[entry] = index;
  return index;
}

void SlotTable::end_load(uint32_t slot) {
  TIERPACK_CHECK(slots_[slot].state == State::kLoading);
  slots_[slot].state = State::kReady;
}

void SlotTable::release(uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.entry != kNone) slot_of_[slot.entry] = kNone;
  slot.entry = kNone;
  slot.prefetched = false;
  slot.state = State::kFree;
  free_list(slot.class_index, slot.tier).push_back(index);
}

void SlotTable::fail_load(uint32_t slot) {
  TIERPACK_CHECK(slots_[slot].state == State::kLoading);
  release(slot);
}

void SlotTable::pin(uint32_t slot) {
  TIERPACK_CHECK(slots_[slot].state == State::kReady);
  ++slots_[slot].pins;
}

void SlotTable::unpin(uint32_t slot) {
  TIERPACK_CHECK(slots_[slot].pins > 0);
  --slots_[slot].pins;
}

void SlotTable::evict(uint32_t slot) {
  TIERPACK_CHECK(slots_[slot].state == State::kReady && slots_[slot].pins == 0);
  release(slot);
}

void SlotTable::begin_move(uint32_t from, uint32_t to) {
  for (const uint32_t index : {from, to}) {
    Slot& slot = slots_[index];
    TIERPACK_CHECK(slot.state == State::kReady && slot.pins == 0);
    slot.state = State::kMoving;
  }
  TIERPACK_CHECK(slots_[from].class_index == slots_[to].class_index && slots_[from].tier != slots_[to].tier);
}

uint32_t SlotTable::begin_move_to_free(uint32_t from, Tier tier) {
  Slot& slot = slots_[from];
  TIERPACK_CHECK(slot.state == State::kReady && slot.pins == 0 && slot.tier != tier);
  std::vector<uint32_t>& list = free_list(slot.class_index, tier);
  TIERPACK_CHECK(!list.empty());
  const uint32_t to = list.back();
  list.pop_back();
  slot.state = State::kMoving;
  slots_[to].state = State::kMoving;
  return to;
}

void SlotTable::end_move(uint32_t from, uint32_t to) {
  Slot& a = slots_[from];
  Slot& b = slots_[to];
  TIERPACK_CHECK(a.state == State::kMoving && b.state == State::kMoving);
  std::swap(a.entry, b.entry);
  std::swap(a.prefetched, b.prefetched);
  for (const uint32_t index : {from, to}) {
    Slot& slot = slots_[index];
    if (slot.entry == kNone) {
      release(index);
    } else {
      slot.state = State::kReady;
      slot_of_[slot.entry] = index;
    }
  }
}

void SlotTable::gather(uint32_t class_index, Tier tier, bool leaving, std::span<const double> values) {
  const Class& own = classes_[class_index];
  const uint32_t begin = own.first + (tier == Tier::kRam ? 0 : own.ram);
  const uint32_t end = begin + (tier == Tier::kRam ? own.ram : own.vram);
  const bool at_home = tier == Tier::kVram || own.vram == 0;  // with VRAM slots, those in RAM are on their way there
  ranked_.clear();
  for (uint32_t i = begin; i < end; ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != State::kReady || slot.pins > 0) continue;
    if (leaving && at_home && stays_[slot.entry / shape_.experts]) continue;
    ranked_.push_back({values[slot.entry], i});
  }
}

// Equal values go by the number of the slot, so that a run can be repeated.
std::span<const uint32_t> SlotTable::cheapest(uint32_t class_index, Tier tier, size_t count, std::span<const double> values) {
  gather(class_index, tier, true, values);
  count = std::min(count, ranked_.size());
  std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(count), ranked_.end(), [](const Ranked& a, const Ranked& b) {
    return a.value != b.value ? a.value < b.value : a.slot < b.slot;
  });
  return picked(count);
}

std::span<const uint32_t> SlotTable::dearest(uint32_t class_index, Tier tier, size_t count, std::span<const double> values) {
  gather(class_index, tier, false, values);
  count = std::min(count, ranked_.size());
  std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(count), ranked_.end(), [](const Ranked& a, const Ranked& b) {
    return a.value != b.value ? a.value > b.value : a.slot < b.slot;
  });
  return picked(count);
}

std::span<const uint32_t> SlotTable::picked(size_t count) {
  picked_.clear();
  for (size_t i = 0; i < count; ++i) picked_.push_back(ranked_[i].slot);
  return picked_;
}

bool SlotTable::anything_under_way(uint32_t class_index) const {
  const Class& own = classes_[class_index];
  return std::any_of(slots_.begin() + own.first, slots_.begin() + own.first + own.ram + own.vram,
                     [](const Slot& slot) { return slot.state == State::kLoading || slot.state == State::kMoving; });
}

void SlotTable::check() const {
  std::vector<uint32_t> listed(slots_.size(), 0);
  for (uint32_t c = 0; c < classes_.size(); ++c) {
    for (const Tier tier : {Tier::kVram, Tier::kRam}) {
      for (const uint32_t index : free_list(c, tier)) {
        TIERPACK_CHECK(index < slots_.size() && slots_[index].class_index == c && slots_[index].tier == tier);
        ++listed[index];
      }
    }
  }
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    TIERPACK_CHECK(listed[i] == (slot.state == State::kFree ? 1u : 0u));
    TIERPACK_CHECK(slot.pins == 0 || slot.state == State::kReady);
    if (slot.entry == kNone) {
      TIERPACK_CHECK(slot.state == State::kFree || slot.state == State::kMoving);
    } else {
      TIERPACK_CHECK(slot.state != State::kFree && slot_of_[slot.entry] == i);
      TIERPACK_CHECK(class_of_entry(slot.entry) == slot.class_index);
    }
  }
  for (uint32_t entry = 0; entry < slot_of_.size(); ++entry) {
    TIERPACK_CHECK(slot_of_[entry] == kNone || slots_[slot_of_[entry]].entry == entry);
  }
}

}  // namespace tierpack::experts
