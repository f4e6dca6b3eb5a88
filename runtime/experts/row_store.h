// Rows of a pack's lookup tables, which stay on disk: a small cache of pages, filled ahead of use.
//
// A token's rows are known as soon as the token is; request() begins to read their pages, many at once, and read() waits
// for the one it needs. Pages are proved before a row of them is handed out; a page that is not what was written is read
// once more. The page that has not been asked for longest (by CLOCK) makes room.
//
// request and read: any thread. A read may wait for the disk; a request never does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "formats/pack.h"
#include "runtime/device/device.h"
#include "runtime/experts/record_reader.h"

namespace tierpack::experts {

// Pages of lookup tables that an engine keeps.
inline constexpr uint64_t kRowCacheBytes = uint64_t{4} << 20;

struct RowCounters {
  uint64_t rows = 0;        // read
  uint64_t hits = 0;        // whose page was there
  uint64_t page_reads = 0;  // from disk
  uint64_t retries = 0;
  uint64_t stall_us = 0;    // waited for pages
};

class RowStore {
 public:
  // Keeps pages in at most `cache_bytes`, at least 64 of them. The pack must have tables and outlive the store.
  RowStore(const Pack& pack, const ReaderOptions& options, uint64_t cache_bytes);
  ~RowStore();

  void request(const RowTable& table, std::span<const uint64_t> rows);
  // Row `row` into `out` (row_bytes). Throws kIo, or kCorrupt naming the page.
  void read(const RowTable& table, uint64_t row, MutableBytes out);
  RowCounters counters() const;
  // Rows that may be requested ahead without displacing each other.
  uint32_t window() const;

 private:
  enum class State : uint8_t { kFree, kLoading, kReady, kFailed };
  struct Slot {
    uint64_t unit = 0;      // its first page in the segment
    uint32_t bytes = 0;
    uint32_t next = 0;      // in its bucket
    State state = State::kFree;
    bool used = false;      // since the clock's hand passed
    uint8_t attempt = 0;
    std::exception_ptr failure;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  static uint64_t unit_of(const RowTable& table, uint64_t row) {
    return table.first_page + row / table.unit_rows() * table.pages_per_row;
  }
  uint32_t& bucket(uint64_t unit) { return buckets_[unit * 0x9E3779B97F4A7C15u >> shift_]; }
  uint32_t find(uint64_t unit);
  uint32_t begin_load(uint64_t unit, uint32_t bytes);  // kNone when every slot is loading
  void forget(uint32_t slot);
  void start(uint32_t slot);
  void on_page(uint32_t slot, int result);
  MutableBytes memory(uint32_t slot) { return memory_.bytes().subspan(slot * slot_bytes_, slots_[slot].bytes); }

  const Pack& pack_;
  ReadFaults* faults_;
  std::optional<File> file_;
  bool direct_ = true;
  uint64_t slot_bytes_ = 0;
  device::PinnedBuffer memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> buckets_;  // first slot of each chain
  int shift_ = 0;
  uint32_t hand_ = 0;
  uint32_t loading_ = 0;
  bool stopping_ = false;
  RowCounters counters_;
  std::unique_ptr<DiskQueue> queue_;  // last: its threads use everything above
};

}  // namespace tierpack::experts
