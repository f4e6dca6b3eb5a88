#include "runtime/experts/tiered_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tierpack::experts {

namespace {

using Clock = std::chrono::steady_clock;
using State = SlotTable::State;

constexpr uint32_t kNone = SlotTable::kNone;
// Records of one request that are held or on their way: with fewer, it may displace what is worth more. Enough to compute
// a batch while the next one is read, and at most half of the class's slots.
constexpr uint32_t kStreamWindow = kLeaseRecords + kLeaseRecords / 2;

uint64_t microseconds(Clock::duration d) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
}

}  // namespace

// A request's experts are named by their index in it; the table's entries and slots stand beside.
class TieredStore::Request final : public ExpertStore::Lease::Impl {
 public:
  explicit Request(TieredStore& store) : store_(store) {}

  bool busy() const { return busy_; }

  int next_ready() override { return take(true); }
  int poll_ready() override { return take(false); }
  Bytes record(int index) const override {
    const uint32_t slot = slots_[static_cast<size_t>(index)];
    TIERPACK_CHECK(slot != kNone);
    const Record& record = store_.pack_.manifest().records[store_.record_of(entries_[static_cast<size_t>(index)])];
    return store_.slot_memory(store_.table_.slot(slot)).first(record.bytes);
  }
  bool on_device(int index) const override {
    const SlotTable::Slot& slot = store_.table_.slot(slots_[static_cast<size_t>(index)]);
    return slot.tier == Tier::kVram && !store_.vram_->host_readable();
  }
  void done(int index) override {
    const std::lock_guard lock(store_.mutex_);
    give_back(static_cast<size_t>(index));
    if (pending_next_ < pending_.size()) store_.load_pending(*this, false);
  }
  void release() override;

 private:
  friend class TieredStore;
  int take(bool wait);
  void give_back(size_t index) {
    if (slots_[index] == kNone) return;
    store_.table_.unpin(slots_[index]);
    slots_[index] = kNone;
    held_ -= counted_[index];
  }

  TieredStore& store_;
  bool busy_ = false;
  uint32_t layer_ = 0;
  std::vector<uint32_t> entries_;
  std::vector<uint32_t> slots_;     // pinned, by index; kNone before and after
  std::vector<uint32_t> pending_;   // indices without a slot, from pending_next_
  size_t pending_next_ = 0;
  std::vector<uint32_t> waiting_;   // indices whose slot is loading or moving
  std::vector<uint32_t> ready_;     // indices in the order they came, from ready_next_
  size_t ready_next_ = 0;
  uint32_t held_ = 0;               // pinned or waited for, in RAM
  std::vector<uint8_t> counted_;    // by index: among them
  std::exception_ptr failure_;
};

int TieredStore::Request::take(bool wait) {
  std::unique_lock lock(store_.mutex_);
  const auto nothing_yet = [this] { return !failure_ && ready_next_ == ready_.size() && ready_.size() < entries_.size(); };
  if (nothing_yet() && wait) {
    const Clock::time_point begin = Clock::now();
    while (nothing_yet()) {
      if (waiting_.empty()) {
        store_.load_pending(*this, true);
        if (!nothing_yet()) break;
        // Otherwise every slot of the class is held by somebody who does not give it back.
        TIERPACK_CHECK(!waiting_.empty() || store_.table_.anything_under_way(store_.table_.class_of_layer(layer_)));
      }
      store_.changed_.wait(lock);
    }
    const uint64_t waited = microseconds(Clock::now() - begin);
    store_.counters_.stall_us += waited;
    store_.by_layer_[layer_].stall_us += waited;
  }
  if (failure_) std::rethrow_exception(failure_);
  if (ready_next_ == ready_.size()) return -1;
  return static_cast<int>(ready_[ready_next_++]);
}

void TieredStore::Request::release() {
  const std::lock_guard lock(store_.mutex_);
  for (size_t i = 0; i < slots_.size(); ++i) give_back(i);
  busy_ = false;
  store_.idle_since_ = Clock::now();
  store_.load_everybodys_pending();
  if (store_.seeding_) store_.seed_more();
}

TieredStore::TieredStore(const Pack& pack, StoreOptions options)
    : pack_(pack),
      shape_(cache_shape(pack.manifest())),
      policy_(make_policy(options.policy, shape_)),
      values_(shape_.entries(), 0.0),
      keep_out_(std::move(options.keep_out)),
      hysteresis_(options.hysteresis),
      moves_per_token_(options.moves_per_token),
      table_(shape_, options.slots, std::move(options.keep_resident)),
      gate_(options.prefetch),
      ram_(options.slots.ram_bytes()),
      vram_(std::move(options.vram)),
      one_each_(shape_.experts, 1),
      guessed_(shape_.entries(), false),
      by_layer_(shape_.layers) {
  TIERPACK_CHECK(options.slots.vram_bytes() == 0 || (vram_ && vram_->size() >= options.slots.vram_bytes()));
  keep_out_.resize(shape_.layers, false);
  any_kept_out_ = std::find(keep_out_.begin(), keep_out_.end(), true) != keep_out_.end();
  uint64_t largest = 0;  // slot
  for (uint32_t i = 0; i < shape_.layers; ++i) {
    const ExpertLayer& layer = pack.manifest().expert_layers[i];
    if (layer.layer >= layer_of_block_.size()) layer_of_block_.resize(size_t{layer.layer} + 1, kNone);
    layer_of_block_[layer.layer] = i;
    TIERPACK_CHECK(table_.slot_bytes(table_.class_of_layer(i)) >= RecordReader::room_bytes(layer.record_bytes));
    TIERPACK_CHECK(table_.slot_count(table_.class_of_layer(i), Tier::kRam) >= std::min(kLeaseRecords, layer.experts));
    by_layer_[i].layer = layer.layer;
    largest = std::max(largest, table_.slot_bytes(table_.class_of_layer(i)));
  }
  if (!options.uses_per_token.empty()) policy_->seed(options.uses_per_token);
  uint64_t slots = 0;
  holds_all_ = true;
  for (const ExpertSlots::Class& c : options.slots.classes) {
    uint64_t records = 0;
    for (const uint32_t layer : c.layers) records += pack.manifest().expert_layers[layer].experts;
    uint64_t drafts = 0;  // of blocks that no forward pass runs
    for (const uint32_t layer : c.layers) drafts += is_draft(layer) ? pack.manifest().expert_layers[layer].experts : 0;
    vram_holds_.push_back(c.vram_slots >= records - drafts);
    holds_all_ = holds_all_ && c.ram_slots + c.vram_slots >= records;
    slots += c.ram_slots + c.vram_slots;
  }
  seed_slot_.assign(slots, false);
  batch_.reserve(shape_.experts);
  tickets_.resize(shape_.experts);
  guess_list_.reserve(shape_.experts);
  requests_.push_back(std::make_unique<Request>(*this));
  reader_ = std::make_unique<RecordReader>(pack, options.reader, [this](uint64_t slot, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    on_read(slot, failure);
  });
  idle_since_ = Clock::now();
  seeds_of_class_.assign(table_.class_count(), 0);
  seed_closed_.assign(table_.class_count(), false);
  if (vram_) {
    swap_.resize(largest);
    moves_.resize(kMovesMax);
  }
  std::unique_lock lock(mutex_);
  if (options.seed) {
    seed_order_ = std::move(options.seed_order);
    std::vector<uint64_t> room(table_.class_count());
    for (uint32_t c = 0; c < table_.class_count(); ++c) room[c] = table_.slot_count(c, Tier::kRam) + uint64_t{table_.slot_count(c, Tier::kVram)};
    std::erase_if(seed_order_, [&](uint32_t entry) {
      if (keep_out_[entry / shape_.experts] || room[table_.class_of_entry(entry)] == 0) return true;
      --room[table_.class_of_entry(entry)];
      seed_.total_bytes += pack_.manifest().records[record_of(entry)].bytes;
      return false;
    });
    seeding_ = !seed_order_.empty();
    seed_.done = !seeding_;
    seed_more();
  }
  lock.unlock();
  if (vram_) mover_ = std::thread([this] { run_moves(); });
}

TieredStore::~TieredStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  moves_changed_.notify_all();
  reader_.reset();
  if (mover_.joinable()) mover_.join();
}

uint32_t TieredStore::layer_index(uint32_t block) const {
  TIERPACK_CHECK(block < layer_of_block_.size() && layer_of_block_[block] != kNone);
  return layer_of_block_[block];
}

uint32_t TieredStore::record_of(uint32_t entry) const {
  return pack_.manifest().expert_layers[entry / shape_.experts].first_record + entry % shape_.experts;
}

Bytes TieredStore::slot_memory(const SlotTable::Slot& slot) const {
  const uint64_t bytes = table_.slot_bytes(slot.class_index);
  if (slot.tier == Tier::kVram) return {vram_->address(slot.offset), bytes};
  return ram_.bytes().subspan(slot.offset, bytes);
}

MutableBytes TieredStore::ram_memory(const SlotTable::Slot& slot) {
  TIERPACK_CHECK(slot.tier == Tier::kRam);
  return ram_.bytes().subspan(slot.offset, table_.slot_bytes(slot.class_index));
}

TieredStore::Request& TieredStore::idle_request() {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (!request->busy()) return *request;
  }
  return *requests_.emplace_back(std::make_unique<Request>(*this));
}

ExpertStore::Lease TieredStore::acquire(uint32_t block, std::span<const uint32_t> experts, const RouteCounts& route) {
  const uint32_t layer = layer_index(block);
  const uint32_t limit = pack_.manifest().expert_layers[layer].experts;
  for (const uint32_t expert : experts) TIERPACK_CHECK(expert < limit);
  const std::lock_guard lock(mutex_);
  const bool begins = static_cast<int64_t>(layer) <= last_layer_ || last_layer_ < 0;
  if (vram_ && begins) choose_moves();
  last_layer_ = layer;
  const std::span<const uint32_t> counts =
      route.counts.empty() ? std::span<const uint32_t>(one_each_).first(experts.size()) : route.counts;
  TIERPACK_CHECK(counts.size() == experts.size());
  if (!experts.empty()) policy_->on_route(layer, experts, counts, route.tokens);
  apply_rules();
  if (route.tokens == 1) gate_.on_layer();

  Request& request = idle_request();
  request.busy_ = true;
  request.layer_ = layer;
  request.failure_ = nullptr;
  request.entries_.clear();
  request.pending_.clear();
  request.waiting_.clear();
  request.ready_.clear();
  request.slots_.assign(experts.size(), kNone);
  request.counted_.assign(experts.size(), 0);
  request.pending_next_ = request.ready_next_ = 0;
  request.held_ = 0;

  ExpertLayerCounters& own = by_layer_[layer];
  for (uint32_t i = 0; i < experts.size(); ++i) {
    const uint32_t entry = shape_.entry(layer, experts[i]);
    request.entries_.push_back(entry);
    counters_.guesses_right += guessed_[entry];
    const uint32_t slot = table_.find(entry);
    if (slot == kNone) {
      request.pending_.push_back(i);
      ++own.disk_reads;
      continue;
    }
    const SlotTable::Slot& found = table_.slot(slot);
    ++(found.state != State::kReady ? own.late_hits : found.tier == Tier::kVram ? own.vram_hits : own.ram_hits);
    take(request, i, slot);
  }
  own.requests += experts.size();
  judge_guesses();
  if (!request.pending_.empty()) {
    if (route.tokens == 1 && !begins) gate_.on_idle(static_cast<double>(microseconds(Clock::now() - idle_since_)));
    load_pending(request, false);
  }
  return Lease(request);
}

// With every record of a size class in VRAM there is none in RAM to change places with; those of draft blocks never do.
bool TieredStore::device_addresses(uint32_t block, std::span<uint64_t> addresses) const {
  const uint32_t layer = layer_index(block);
  const uint32_t class_index = table_.class_of_layer(layer);
  if (!vram_ || vram_->host_readable() || !vram_holds_[class_index]) return false;
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < shape_.layers; ++i) {
    if (table_.class_of_layer(i) != class_index || is_draft(i)) continue;
    for (uint32_t expert = 0; expert < pack_.manifest().expert_layers[i].experts; ++expert) {
      const uint32_t slot = table_.find(shape_.entry(i, expert));
      if (slot == kNone || table_.slot(slot).tier != Tier::kVram || table_.slot(slot).state != State::kReady) return false;
    }
  }
  TIERPACK_CHECK(addresses.size() == pack_.manifest().expert_layers[layer].experts);
  for (uint32_t expert = 0; expert < addresses.size(); ++expert) {
    const SlotTable::Slot& slot = table_.slot(table_.find(shape_.entry(layer, expert)));
    addresses[expert] = reinterpret_cast<uint64_t>(vram_->address(slot.offset));
  }
  return true;
}

// The values that decide, with layers that are kept out at the bottom.
void TieredStore::apply_rules() {
  if (!any_kept_out_) return;
  const std::span<const double> values = policy_->values();
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const size_t at = size_t{layer} * shape_.experts;
    if (keep_out_[layer]) {
      std::fill_n(values_.begin() + static_cast<ptrdiff_t>(at), shape_.experts, -1.0);
    } else {
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(at), shape_.experts, values_.begin() + static_cast<ptrdiff_t>(at));
    }
  }
}

// The layer that was guessed about has come: what was read ahead for it and not asked for was read in vain.
void TieredStore::judge_guesses() {
  for (const uint32_t entry : guess_list_) {
    guessed_[entry] = false;
    const uint32_t slot = table_.find(entry);
    if (slot == kNone || !table_.slot(slot).prefetched) continue;
    gate_.on_outcome(false);
    table_.mark_used(slot);
  }
  guess_list_.clear();
}

void TieredStore::queue_load(uint32_t entry, uint32_t slot, ReadPriority priority) {
  batch_.push_back({record_of(entry), ram_memory(table_.slot(slot)).data(), slot, priority});
}

void TieredStore::submit_batch() {
  if (batch_.empty()) return;
  if (tickets_.size() < batch_.size()) tickets_.resize(batch_.size());
  reader_->submit(batch_, std::span(tickets_).first(batch_.size()));
  for (size_t i = 0; i < batch_.size(); ++i) table_.set_ticket(static_cast<uint32_t>(batch_[i].tag), tickets_[i]);
  batch_.clear();
}

// The record of the request's expert `index` is in `slot`, or on its way there.
void TieredStore::take(Request& request, uint32_t index, uint32_t slot) {
  const SlotTable::Slot& found = table_.slot(slot);
  request.counted_[index] = found.tier == Tier::kRam;
  request.held_ += request.counted_[index];
  if (found.prefetched) {
    ++counters_.prefetches_used;
    gate_.on_outcome(true);
    table_.mark_used(slot);
  }
  if (found.state == State::kReady) {
    table_.pin(slot);
    request.slots_[index] = slot;
    request.ready_.push_back(index);
  } else {
    if (found.state == State::kLoading) reader_->promote(found.ticket);
    request.waiting_.push_back(index);
  }
}

// What has come or is coming, for a seed or for another request, is taken as it is.
void TieredStore::take_present(Request& request) {
  size_t kept = request.pending_next_;
  for (size_t i = request.pending_next_; i < request.pending_.size(); ++i) {
    const uint32_t index = request.pending_[i];
    const uint32_t slot = table_.find(request.entries_[index]);
    if (slot == kNone) {
      request.pending_[kept++] = index;
      continue;
    }
    take(request, index, slot);
  }
  request.pending_.resize(kept);
}

// Finds slots for what has none: free ones, then those of the least worth. What is worth no more than the record it would
// displace waits for the request's own slots, unless one `must` be found.
void TieredStore::load_pending(Request& request, bool must) {
  take_present(request);
  const uint32_t class_index = table_.class_of_layer(request.layer_);
  const uint32_t window = std::clamp(table_.slot_count(class_index, Tier::kRam) / 2, 1u, kStreamWindow);
  std::span<const uint32_t> victims;
  size_t next_victim = 0;
  bool looked = false;
  while (request.pending_next_ < request.pending_.size()) {
    const uint32_t index = request.pending_[request.pending_next_];
    const uint32_t entry = request.entries_[index];
    if (!table_.has_free(class_index, Tier::kRam)) {
      if (!looked) {
        victims = table_.cheapest(class_index, Tier::kRam, request.pending_.size() - request.pending_next_, values());
        looked = true;
      }
      if (next_victim == victims.size()) break;
      const bool worth_more = values()[entry] > values()[table_.slot(victims[next_victim]).entry];
      if (!worth_more && !must && request.held_ >= window) break;
      evict(victims[next_victim++]);
    }
    must = false;
    ++request.pending_next_;
    const uint32_t slot = table_.begin_load(entry, Tier::kRam, false);
    request.waiting_.push_back(index);
    request.counted_[index] = 1;
    ++request.held_;
    queue_load(entry, slot, ReadPriority::kDemand);
  }
  submit_batch();
}

void TieredStore::evict(uint32_t slot) {
  if (table_.slot(slot).prefetched) gate_.on_outcome(false);
  table_.evict(slot);
  ++counters_.evictions;
}

void TieredStore::load_everybodys_pending() {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (request->busy() && request->pending_next_ < request->pending_.size()) load_pending(*request, false);
  }
}

void TieredStore::on_read(uint64_t tag, std::exception_ptr failure) {
  const auto slot = static_cast<uint32_t>(tag);
  const uint32_t entry = table_.slot(slot).entry;
  const uint64_t bytes = pack_.manifest().records[record_of(entry)].bytes;
  const bool seed = seed_slot_[slot];
  if (seed) {
    seed_slot_[slot] = false;
    --seeds_under_way_;
    --seeds_of_class_[table_.slot(slot).class_index];
    (failure ? seed_.total_bytes -= bytes : seed_.loaded_bytes += bytes);
  }
  if (failure) {
    // Whoever asked for it hears of it; a seed or a guess that failed is read again, and reported, when it is asked for.
    table_.fail_load(slot);
    for (const std::unique_ptr<Request>& request : requests_) {
      if (!request->busy()) continue;
      for (const uint32_t index : request->waiting_) {
        if (request->entries_[index] == entry) request->failure_ = failure;
      }
    }
    changed_.notify_all();
  } else {
    table_.end_load(slot);
    resolve(entry, slot);
    const uint32_t class_index = table_.slot(slot).class_index;
    if (seed && table_.slot(slot).pins == 0 && table_.has_free(class_index, Tier::kVram) && move_count_ < kMovesMax) {
      queue_move(slot, table_.begin_move_to_free(slot, Tier::kVram));
    }
  }
  load_everybodys_pending();
  if (seeding_) seed_more();
}

void TieredStore::resolve(uint32_t entry, uint32_t slot) {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (!request->busy()) continue;
    for (size_t i = 0; i < request->waiting_.size(); ++i) {
      const uint32_t index = request->waiting_[i];
      if (request->entries_[index] != entry) continue;
      request->waiting_[i] = request->waiting_.back();
      request->waiting_.pop_back();
      table_.pin(slot);
      request->slots_[index] = slot;
      request->ready_.push_back(index);
      break;
    }
  }
  changed_.notify_all();
}

ExpertCounters TieredStore::counters() const {
  const std::lock_guard lock(mutex_);
  ExpertCounters sum = counters_;
  for (const ExpertLayerCounters& layer : by_layer_) {
    sum.requests += layer.requests;
    sum.vram_hits += layer.vram_hits;
    sum.ram_hits += layer.ram_hits;
    sum.late_hits += layer.late_hits;
    sum.disk_reads += layer.disk_reads;
  }
  const ReaderCounters reads = reader_->counters();
  sum.disk_bytes = reads.bytes;
  sum.retries = reads.retries;
  return sum;
}

SeedProgress TieredStore::seed_progress() const {
  const std::lock_guard lock(mutex_);
  return seed_;
}

std::vector<ExpertLayerCounters> TieredStore::layer_counters() const {
  const std::lock_guard lock(mutex_);
  return by_layer_;
}

void TieredStore::check() const {
  const std::lock_guard lock(mutex_);
  table_.check();
  uint64_t pins = 0;
  for (const std::unique_ptr<Request>& request : requests_) {
    if (!request->busy()) continue;
    for (const uint32_t slot : request->slots_) pins += slot != kNone;
    for (const uint32_t index : request->waiting_) {
      const uint32_t slot = table_.find(request->entries_[index]);
      TIERPACK_CHECK(request->failure_ || (slot != kNone && table_.slot(slot).state != State::kReady));
    }
  }
  uint64_t found = 0;
  for (uint32_t entry = 0; entry < shape_.entries(); ++entry) {
    if (table_.find(entry) != kNone) found += table_.slot(table_.find(entry)).pins;
  }
  TIERPACK_CHECK(pins == found);
}

}  // namespace tierpack::experts
