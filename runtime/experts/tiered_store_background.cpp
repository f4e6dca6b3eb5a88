// What the tiered store does without being asked by a request: seeding, reading ahead, moves between RAM and VRAM.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/error.h"
#include "runtime/experts/tiered_store.h"

namespace tierpack::experts {

namespace {

constexpr uint32_t kNone = SlotTable::kNone;
constexpr uint32_t kSeedsUnderWay = 16;

}  // namespace

// Hottest first, into what is free; when nothing is, in place of what is worth less.
void TieredStore::seed_more() {
  while (!stopping_ && seed_next_ < seed_order_.size() && seeds_under_way_ < kSeedsUnderWay) {
    const uint32_t entry = seed_order_[seed_next_];
    const uint32_t class_index = table_.class_of_entry(entry);
    const uint64_t bytes = pack_.manifest().records[record_of(entry)].bytes;
    if (table_.find(entry) != kNone) {
      ++seed_next_;
      seed_.loaded_bytes += bytes;
      continue;
    }
    if (seed_closed_[class_index]) {
      ++seed_next_;
      seed_.total_bytes -= bytes;
      continue;
    }
    // Half of a class is left to requests, which do not wait for seeds.
    if (2 * seeds_of_class_[class_index] >= table_.slot_count(class_index, Tier::kRam)) break;
    if (!table_.has_free(class_index, Tier::kRam)) {
      if (move_count_ > 0) break;  // a move to VRAM will free one
      if (table_.has_free(class_index, Tier::kVram)) {
        const std::span<const uint32_t> dearest = table_.dearest(class_index, Tier::kRam, 1, values());
        if (!dearest.empty()) queue_move(dearest[0], table_.begin_move_to_free(dearest[0], Tier::kVram));
        break;
      }
      const std::span<const uint32_t> victims = table_.cheapest(class_index, Tier::kRam, 1, values());
      if (victims.empty()) break;  // every record is in use: on with it when one is given back
      if (values()[table_.slot(victims[0]).entry] >= values()[entry]) {
        seed_closed_[class_index] = true;  // seeds come dearest first
        continue;
      }
      evict(victims[0]);
    }
    ++seed_next_;
    ++seeds_of_class_[class_index];
    const uint32_t slot = table_.begin_load(entry, Tier::kRam, false);
    seed_slot_[slot] = true;
    ++seeds_under_way_;
    queue_load(entry, slot, ReadPriority::kSeed);
  }
  submit_batch();
  if (seed_next_ == seed_order_.size() && seeds_under_way_ == 0) {
    seeding_ = false;
    seed_.done = true;
    changed_.notify_all();
  }
}

void TieredStore::wait_until_seeded() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !seeding_; });
}

bool TieredStore::wants_guess(uint32_t block) const {
  if (holds_all_) return false;
  const std::lock_guard lock(mutex_);
  return !keep_out_[layer_index(block)] && gate_.open();
}

void TieredStore::prefetch(uint32_t block, std::span<const uint32_t> experts) {
  const uint32_t layer = layer_index(block);
  const uint32_t class_index = table_.class_of_layer(layer);
  const std::lock_guard lock(mutex_);
  uint32_t left = gate_.open() ? gate_.records(table_.slot_bytes(class_index), reader_->bandwidth()) : 0;
  std::span<const uint32_t> victims;
  size_t next_victim = 0;
  bool looked = false;
  for (const uint32_t expert : experts) {
    TIERPACK_CHECK(expert < pack_.manifest().expert_layers[layer].experts);
    const uint32_t entry = shape_.entry(layer, expert);
    if (guessed_[entry]) continue;
    guessed_[entry] = true;
    guess_list_.push_back(entry);
    ++counters_.guesses;
  }
  for (const uint32_t expert : experts) {
    const uint32_t entry = shape_.entry(layer, expert);
    if (left == 0) break;
    if (table_.find(entry) != kNone) continue;
    if (!table_.has_free(class_index, Tier::kRam)) {
      // Room for those guessed that are there already is not taken.
      if (!looked) victims = table_.cheapest(class_index, Tier::kRam, left + experts.size(), values());
      looked = true;
      while (next_victim < victims.size() && guessed_[table_.slot(victims[next_victim]).entry]) ++next_victim;
      if (next_victim == victims.size()) break;
      evict(victims[next_victim++]);
    }
    queue_load(entry, table_.begin_load(entry, Tier::kRam, true), ReadPriority::kPrefetch);
    ++counters_.prefetches;
    --left;
  }
  submit_batch();
}

void TieredStore::queue_move(uint32_t from, uint32_t to) {
  TIERPACK_CHECK(move_count_ < kMovesMax);
  moves_[(move_first_ + move_count_++) % kMovesMax] = {from, to};
  moves_changed_.notify_one();
}

// Between two tokens: the dearest in RAM change places with the cheapest in VRAM, when they are worth clearly more.
void TieredStore::choose_moves() {
  uint32_t left = moves_per_token_ - std::min<uint32_t>(moves_per_token_, static_cast<uint32_t>(move_count_));
  for (uint32_t c = 0; c < table_.class_count() && left > 0; ++c) {
    if (table_.slot_count(c, Tier::kVram) == 0) continue;
    std::array<uint32_t, kMovesMax> hot{};
    const std::span<const uint32_t> dearest = table_.dearest(c, Tier::kRam, std::min<size_t>(left, kMovesMax), values());
    const size_t count = dearest.size();
    std::copy(dearest.begin(), dearest.end(), hot.begin());
    size_t next = 0;
    while (next < count && left > 0 && move_count_ < kMovesMax && table_.has_free(c, Tier::kVram)) {
      queue_move(hot[next], table_.begin_move_to_free(hot[next], Tier::kVram));
      ++next;
      --left;
    }
    const std::span<const uint32_t> cold = table_.cheapest(c, Tier::kVram, count - next, values());
    for (size_t i = 0; i < cold.size() && left > 0 && move_count_ < kMovesMax; ++i, ++next, --left) {
      if (is_draft(table_.slot(hot[next]).entry / shape_.experts)) break;  // worth nothing, as is all behind it
      const double gain = values()[table_.slot(hot[next]).entry];
      if (gain <= values()[table_.slot(cold[i]).entry] * (1 + hysteresis_)) break;
      table_.begin_move(hot[next], cold[i]);
      queue_move(hot[next], cold[i]);
    }
  }
}

void TieredStore::run_moves() {
  std::unique_lock lock(mutex_);
  for (;;) {
    moves_changed_.wait(lock, [this] { return move_count_ > 0 || stopping_; });
    if (stopping_) return;
    const Move move = moves_[move_first_];
    const bool from_ram = table_.slot(move.from).tier == Tier::kRam;
    const SlotTable::Slot ram = table_.slot(from_ram ? move.from : move.to);
    const SlotTable::Slot vram = table_.slot(from_ram ? move.to : move.from);
    lock.unlock();
    const uint64_t bytes = table_.slot_bytes(ram.class_index);
    uint64_t moved = 0;
    if (vram.entry != kNone) {
      vram_->copy_out(vram.offset, std::span(swap_).first(bytes));
      moved += bytes;
    }
    if (ram.entry != kNone) {
      vram_->copy_in(vram.offset, Bytes(ram_.bytes()).subspan(ram.offset, bytes));
      moved += bytes;
    }
    if (vram.entry != kNone) std::memcpy(ram_.bytes().data() + ram.offset, swap_.data(), bytes);
    lock.lock();
    move_first_ = (move_first_ + 1) % kMovesMax;
    --move_count_;
    counters_.moves += (ram.entry != kNone) + (vram.entry != kNone);
    counters_.move_bytes += moved;
    table_.end_move(move.from, move.to);
    for (const uint32_t entry : {ram.entry, vram.entry}) {
      if (entry != kNone) resolve(entry, table_.find(entry));
    }
    load_everybodys_pending();
    if (seeding_) seed_more();
  }
}

}  // namespace tierpack::experts
