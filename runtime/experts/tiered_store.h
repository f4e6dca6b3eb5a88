// The expert store: VRAM, RAM and disk as one memory. Composes what decides (CachePolicy, SlotTable, PrefetchGate) with
// what moves bytes (RecordReader, VramMemory).
//
// A request pins what is there and reads what is not into slots of the layer's size class, evicting the resident records
// that are worth least. Records of a prompt that are worth less than everything resident stream through a few slots and
// leave the others alone. Hottest experts go to VRAM, then RAM, from the start on: seeding runs in the background while
// requests are served, and a demand always goes before it.
//
// Invariants: those of SlotTable; every loading slot has exactly one read under way; every request that waits for an entry
// waits for a loading or moving slot. check() verifies them.
//
// Nothing is allocated after construction, except when a request is larger than any before it.
// acquire, prefetch and a lease's members: one thread. Everything const: any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "formats/pack.h"
#include "runtime/device/device.h"
#include "runtime/device/vram_memory.h"
#include "runtime/experts/cache_policy.h"
#include "runtime/experts/expert_slots.h"
#include "runtime/experts/expert_store.h"
#include "runtime/experts/pack_shape.h"
#include "runtime/experts/prefetch_gate.h"
#include "runtime/experts/record_reader.h"
#include "runtime/experts/slot_table.h"

namespace tierpack::experts {

struct StoreOptions {
  ExpertSlots slots;
  std::string policy = "adaptive";
  std::vector<float> uses_per_token;  // (layers, experts) of a profile; empty: none
  std::vector<uint32_t> seed_order;   // entries, hottest first
  std::vector<bool> keep_resident;    // by layer: never evicted once there
  std::vector<bool> keep_out;         // by layer: never seeded, first to go
  bool prefetch = true;
  bool seed = true;                   // load what seed_order names without being asked
  double hysteresis = 0.25;           // by how much more an expert must be worth to change places with one in VRAM
  uint32_t moves_per_token = 4;       // between RAM and VRAM, at most
  ReaderOptions reader;
  std::unique_ptr<device::VramMemory> vram;  // of slots.vram_bytes(), if there are VRAM slots
};

class TieredStore final : public ExpertStore {
 public:
  // The pack must outlive the store. Throws kCapacity when there is no memory for the slots.
  TieredStore(const Pack& pack, StoreOptions options);
  ~TieredStore() override;

  Lease acquire(uint32_t layer, std::span<const uint32_t> experts, const RouteCounts& route = {}) override;
  bool device_addresses(uint32_t layer, std::span<uint64_t> addresses) const override;
  bool wants_guess(uint32_t layer) const override;
  void prefetch(uint32_t layer, std::span<const uint32_t> experts) override;
  ExpertCounters counters() const override;
  SeedProgress seed_progress() const override;

  // By the pack's expert layers, in their order.
  std::vector<ExpertLayerCounters> layer_counters() const;
  void wait_until_seeded();
  void check() const;

 private:
  class Request;
  static constexpr size_t kMovesMax = 64;  // queued between RAM and VRAM
  struct Move {
    uint32_t from = 0, to = 0;
  };

  uint32_t layer_index(uint32_t block) const;
  bool is_draft(uint32_t layer) const { return pack_.manifest().expert_layers[layer].layer >= pack_.config().layers; }
  Bytes slot_memory(const SlotTable::Slot& slot) const;
  MutableBytes ram_memory(const SlotTable::Slot& slot);
  Request& idle_request();
  // All below are called with mutex_ held.
  uint32_t record_of(uint32_t entry) const;
  std::span<const double> values() const { return any_kept_out_ ? std::span<const double>(values_) : policy_->values(); }
  void apply_rules();
  void judge_guesses();
  void take(Request& request, uint32_t index, uint32_t slot);
  void take_present(Request& request);
  void load_pending(Request& request, bool must);
  void evict(uint32_t slot);
  void load_everybodys_pending();
  void submit_batch();
  void queue_load(uint32_t entry, uint32_t slot, ReadPriority priority);
  void on_read(uint64_t slot, std::exception_ptr failure);
  void resolve(uint32_t entry, uint32_t slot);
  void seed_more();
  void queue_move(uint32_t from, uint32_t to);
  void choose_moves();
  void run_moves();

  const Pack& pack_;
  const CacheShape shape_;
  std::vector<uint32_t> layer_of_block_;
  std::unique_ptr<CachePolicy> policy_;
  std::vector<double> values_;  // of the policy with keep_out applied, where it names a layer
  std::vector<bool> keep_out_;
  bool any_kept_out_ = false;
  double hysteresis_;
  uint32_t moves_per_token_;
  SlotTable table_;
  PrefetchGate gate_;
  device::PinnedBuffer ram_;
  std::unique_ptr<device::VramMemory> vram_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<uint32_t> one_each_;  // counts of a request that brings none
  std::vector<RecordReader::Request> batch_;
  std::vector<RecordReader::Ticket> tickets_;
  int64_t last_layer_ = -1;         // of the last request, by index
  std::chrono::steady_clock::time_point idle_since_{};
  std::vector<bool> guessed_;       // by entry: guessed for its layer's next request
  std::vector<uint32_t> guess_list_;

  bool holds_all_ = false;          // no record ever needs to leave
  std::vector<bool> vram_holds_;    // by class: VRAM has a slot for every record
  std::vector<uint32_t> seed_order_;
  std::vector<bool> seed_slot_;     // by slot: a seed is being read into it
  size_t seed_next_ = 0;
  uint32_t seeds_under_way_ = 0;
  std::vector<uint32_t> seeds_of_class_;  // of them
  std::vector<bool> seed_closed_;         // by class: what is resident is worth more than the seeds that are left
  bool seeding_ = false;
  bool stopping_ = false;
  SeedProgress seed_;

  ExpertCounters counters_;
  std::vector<ExpertLayerCounters> by_layer_;

  std::vector<Move> moves_;         // a ring of `move_count_` from `move_first_`
  size_t move_first_ = 0, move_count_ = 0;
  std::condition_variable moves_changed_;
  std::vector<std::byte> swap_;     // one record, for the mover
  std::thread mover_;
  std::unique_ptr<RecordReader> reader_;  // last: its threads use everything above
};

}  // namespace tierpack::experts
