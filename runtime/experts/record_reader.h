// The mover between disk and RAM: reads whole records of a pack into memory and proves them before anyone sees them.
//
// Records are cut into pieces so that one record alone keeps a disk busy; pieces of many records are in flight at once.
// Demand goes before prefetch, prefetch before seeding. A record that is not what was written is read once more, from
// another copy where there is one; then the request fails with an error that names it. Files are read past the page cache
// (O_DIRECT) where the filesystem allows, else what was read is dropped from it.
//
// Several directories may hold copies of the pack's segments (--pack-mirror); each read goes to the copy that will be
// done with it first by the bandwidth measured so far.
//
// submit() and promote() may be called from any thread; on_done is called from the reader's own threads with no lock held.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "formats/pack.h"
#include "runtime/experts/disk_queue.h"

namespace tierpack::experts {

enum class ReadPriority : uint8_t { kDemand, kPrefetch, kSeed };

// Stands between the disk and the reader, for tests and drills: may change the bytes of a piece, its result (bytes or
// -errno), or take its time. Called from the reader's threads.
class ReadFaults {
 public:
  virtual ~ReadFaults() = default;
  virtual int after_read(Segment segment, uint64_t offset, MutableBytes piece, int result) = 0;
};

struct ReaderOptions {
  bool direct = true;  // try O_DIRECT
  bool ring = true;    // try io_uring
  std::vector<std::filesystem::path> mirrors;  // further directories with the same segment files
  ReadFaults* faults = nullptr;                // not owned
};

struct ReaderCounters {
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t retries = 0;     // records read again after an error or a wrong checksum
};

class RecordReader {
 public:
  struct Request {
    uint32_t record = 0;          // of the manifest
    std::byte* to = nullptr;      // aligned to 4096, with room for the record rounded up to 4096
    uint64_t tag = 0;             // the caller's
    ReadPriority priority = ReadPriority::kDemand;
  };
  using OnDone = std::function<void(uint64_t tag, std::exception_ptr failure)>;
  using Ticket = uint32_t;

  // Opens the segments of the pack and its mirrors; throws kUsage for a mirror whose files have other sizes. The pack must
  // outlive the reader. `on_done` must not throw.
  RecordReader(const Pack& pack, ReaderOptions options, OnDone on_done);
  // Waits for the pieces in flight. Requests that have not begun are forgotten.
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  // Room that a record needs in memory.
  static uint64_t room_bytes(uint64_t record_bytes) { return align_up(record_bytes, kRecordAlignment); }

  Ticket submit(const Request& request);
  // Several at once: one call into the system.
  void submit(std::span<const Request> requests, std::span<Ticket> tickets);
  // Makes a request that has not been answered yet as urgent as a demand.
  void promote(Ticket ticket);

  ReaderCounters counters() const;
  double bandwidth() const;  // bytes per second measured so far, all copies together; 0 before the first reads
  const char* backend() const { return queue_->name(); }
  bool direct() const { return direct_; }

 private:
  struct Job;
  struct Piece;
  struct Copy;
  struct Queue {  // of jobs that have pieces to start, linked through Job::next
    uint32_t first = kNone, last = kNone;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  void open_copy(const std::filesystem::path& directory, bool direct);
  uint32_t take_job();
  void append(Queue& queue, uint32_t job);
  void remove(Queue& queue, uint32_t job);
  void start_pieces();                       // as many as may be in flight; mutex_ held
  uint32_t choose_copy(const Job& job) const;
  void on_piece(uint32_t piece, int result);
  void finish(uint32_t job);                 // every piece has come
  void begin_again(uint32_t job);
  std::exception_ptr io_failure(const Job& job) const;
  std::exception_ptr corrupt_failure(const Job& job, const std::string& found) const;

  const Pack& pack_;
  OnDone on_done_;
  ReadFaults* faults_;
  bool direct_ = true;
  mutable std::mutex mutex_;
  std::vector<Copy> copies_;
  std::deque<Job> jobs_;  // tickets; their places do not move
  std::vector<uint32_t> free_jobs_;
  std::vector<Piece> pieces_;
  std::vector<uint32_t> free_pieces_;
  Queue queues_[3];  // by ReadPriority
  uint32_t urgent_in_flight_ = 0;  // pieces of demands
  std::chrono::steady_clock::time_point last_demand_{};
  bool stopping_ = false;
  ReaderCounters counters_;
  std::unique_ptr<DiskQueue> queue_;
};

}  // namespace tierpack::experts
