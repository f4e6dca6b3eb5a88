#include "runtime/experts/row_store.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "formats/pack_layout.h"

namespace tierpack::experts {

namespace {

constexpr uint64_t kSlotsMin = 64;
constexpr uint32_t kDepth = 256;  // pages on their way

}  // namespace

RowStore::RowStore(const Pack& pack, const ReaderOptions& options, uint64_t cache_bytes) : pack_(pack), faults_(options.faults) {
  const std::filesystem::path path = pack.directory() / segment_file_name(Segment::kRows);
  auto [file, direct] = open_to_read(path, options.direct);
  file_ = std::move(file);
  direct_ = direct;
  for (const RowTable& table : pack.manifest().rows) slot_bytes_ = std::max(slot_bytes_, table.unit_bytes());
  TIERPACK_CHECK(slot_bytes_ > 0);
  const uint64_t slots = std::max(kSlotsMin, cache_bytes / slot_bytes_);
  memory_ = device::PinnedBuffer(slots * slot_bytes_);
  slots_.resize(slots);
  buckets_.assign(std::bit_ceil(2 * slots), kNone);
  shift_ = 64 - std::countr_zero(buckets_.size());
  const auto on_done = [this](uint32_t slot, int result) { on_page(slot, result); };
  if (options.ring) queue_ = make_ring_queue(kDepth, on_done);
  if (!queue_) queue_ = make_thread_queue(kDepth, on_done);
}

RowStore::~RowStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queue_.reset();
}

uint32_t RowStore::window() const { return std::min(static_cast<uint32_t>(slots_.size()), kDepth) / 2; }

uint32_t RowStore::find(uint64_t unit) {
  uint32_t slot = bucket(unit);
  while (slot != kNone && slots_[slot].unit != unit) slot = slots_[slot].next;
  return slot;
}

void RowStore::forget(uint32_t slot) {
  uint32_t* at = &bucket(slots_[slot].unit);
  while (*at != slot) at = &slots_[*at].next;
  *at = slots_[slot].next;
  slots_[slot].state = State::kFree;
  slots_[slot].failure = nullptr;
}

uint32_t RowStore::begin_load(uint64_t unit, uint32_t bytes) {
  if (loading_ == kDepth) return kNone;
  for (size_t step = 0; step < 2 * slots_.size(); ++step) {
    const uint32_t index = hand_;
    hand_ = static_cast<uint32_t>((hand_ + 1) % slots_.size());
    Slot& slot = slots_[index];
    if (slot.state == State::kLoading) continue;
    if (slot.state == State::kReady && slot.used) {
      slot.used = false;
      continue;
    }
    if (slot.state != State::kFree) forget(index);
    slot.unit = unit;
    slot.bytes = bytes;
    slot.state = State::kLoading;
    slot.used = true;
    slot.attempt = 0;
    slot.next = bucket(unit);
    bucket(unit) = index;
    ++loading_;
    start(index);
    return index;
  }
  return kNone;
}

void RowStore::start(uint32_t slot) {
  ++counters_.page_reads;
  queue_->start({file_->fd(), slots_[slot].unit * kPageBytes, memory(slot).data(), slots_[slot].bytes, slot});
}

void RowStore::request(const RowTable& table, std::span<const uint64_t> rows) {
  const std::lock_guard lock(mutex_);
  bool started = false;
  for (const uint64_t row : rows) {
    const uint64_t unit = unit_of(table, row);
    const uint32_t found = find(unit);
    if (found != kNone) {
      slots_[found].used = true;
      continue;
    }
    if (begin_load(unit, static_cast<uint32_t>(table.unit_bytes())) == kNone) break;
    started = true;
  }
  if (started) queue_->flush();
}

void RowStore::read(const RowTable& table, uint64_t row, MutableBytes out) {
  TIERPACK_CHECK(row < table.shape.rows() && out.size() >= table.row_bytes);
  const uint64_t unit = unit_of(table, row);
  std::unique_lock lock(mutex_);
  ++counters_.rows;
  bool waited = false;
  std::chrono::steady_clock::time_point begin;
  for (;;) {
    uint32_t slot = find(unit);
    if (slot == kNone) {
      slot = begin_load(unit, static_cast<uint32_t>(table.unit_bytes()));
      if (slot != kNone) queue_->flush();
    }
    if (slot != kNone && slots_[slot].state == State::kFailed) {
      const std::exception_ptr failure = slots_[slot].failure;
      forget(slot);
      std::rethrow_exception(failure);
    }
    if (slot != kNone && slots_[slot].state == State::kReady) {
      slots_[slot].used = true;
      std::memcpy(out.data(), memory(slot).data() + row % table.unit_rows() * table.row_bytes, table.row_bytes);
      break;
    }
    if (!waited) begin = std::chrono::steady_clock::now();
    waited = true;
    changed_.wait(lock);
  }
  if (!waited) {
    ++counters_.hits;
    return;
  }
  const auto spent = std::chrono::steady_clock::now() - begin;
  counters_.stall_us += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
}

void RowStore::on_page(uint32_t index, int result) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[index];
  const MutableBytes page = memory(index);
  if (faults_ != nullptr) result = faults_->after_read(Segment::kRows, slot.unit * kPageBytes, page, result);
  if (!direct_) ::posix_fadvise(file_->fd(), static_cast<off_t>(slot.unit * kPageBytes), slot.bytes, POSIX_FADV_DONTNEED);
  const bool whole = result == static_cast<int>(slot.bytes);
  if (!whole || !unit_is_intact(page, slot.unit)) {
    if (slot.attempt++ == 0 && !stopping_) {
      ++counters_.retries;
      start(index);
      queue_->flush();
      return;
    }
    slot.failure = std::make_exception_ptr(
        whole ? Error(ErrorKind::kCorrupt, fmt::format("{}: page {} at byte {} does not match its checksum, read twice; run tierpack verify {}",
                                                       file_->name(), slot.unit, slot.unit * kPageBytes, pack_.directory().string()))
              : Error(ErrorKind::kIo, fmt::format("{}: cannot read page {} at byte {}, tried twice: {}", file_->name(), slot.unit,
                                                  slot.unit * kPageBytes, result < 0 ? std::strerror(-result) : "too few bytes came")));
  }
  slot.state = slot.failure ? State::kFailed : State::kReady;
  --loading_;
  changed_.notify_all();
}

RowCounters RowStore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace tierpack::experts
