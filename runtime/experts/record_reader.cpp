#include "runtime/experts/record_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"

namespace tierpack::experts {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPieceBytes = 512 << 10;
constexpr uint32_t kDepth = 32;         // pieces in flight on one copy
constexpr uint32_t kIdleDepth = 16;     // of them, pieces that nobody waits for
constexpr uint32_t kPoliteDepth = 4;    // and as many soon after a demand, so that the next one finds the disk nearly free
constexpr std::chrono::milliseconds kPolite{100};
constexpr int kAttemptsMax = 2;
constexpr uint32_t kJobsAtStart = 1024;
constexpr double kRateShare = 0.2;      // of a measurement in the running bandwidth
constexpr double kRateWindow_s = 0.02;  // busy time that makes a measurement

}  // namespace

struct RecordReader::Job {
  Request request;
  uint64_t next_offset = 0;  // in the record: where the next piece begins
  uint32_t pieces = 0;       // in flight
  uint32_t copy = 0;
  int attempt = 0;
  int error = 0;  // errno of the first piece that failed; 0: none
  bool queued = false;
  uint32_t next = kNone;
};

struct RecordReader::Piece {
  uint32_t job = 0;
  uint64_t offset = 0;  // in the record
  uint32_t bytes = 0;
  uint32_t done = 0;    // bytes of it that have come
  bool urgent = false;
};

struct RecordReader::Copy {
  std::filesystem::path directory;
  std::array<std::optional<File>, 3> files;  // by Segment
  uint32_t in_flight = 0;
  uint64_t bytes_in_flight = 0;
  double rate = 0;  // bytes per second, 0: not known
  Clock::time_point busy_since;
  double window_s = 0;
  uint64_t window_bytes = 0;
};

RecordReader::RecordReader(const Pack& pack, ReaderOptions options, OnDone on_done)
    : pack_(pack), on_done_(std::move(on_done)), faults_(options.faults) {
  open_copy(pack.directory(), options.direct);
  for (const std::filesystem::path& mirror : options.mirrors) open_copy(mirror, options.direct);
  const auto depth = static_cast<uint32_t>(kDepth * copies_.size());
  jobs_.resize(kJobsAtStart);
  for (uint32_t i = kJobsAtStart; i > 0; --i) free_jobs_.push_back(i - 1);
  pieces_.resize(depth);
  for (uint32_t i = depth; i > 0; --i) free_pieces_.push_back(i - 1);
  const auto on_piece_done = [this](uint32_t piece, int result) { on_piece(piece, result); };
  if (options.ring) queue_ = make_ring_queue(depth, on_piece_done);
  if (!queue_) queue_ = make_thread_queue(depth, on_piece_done);
}

RecordReader::~RecordReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queue_.reset();
}

void RecordReader::open_copy(const std::filesystem::path& directory, bool direct) {
  Copy copy;
  copy.directory = directory;
  for (const Segment segment : {Segment::kDense, Segment::kExperts, Segment::kRows}) {
    if (segment == Segment::kRows && pack_.manifest().rows.empty()) continue;
    if (segment == Segment::kExperts && pack_.manifest().expert_layers.empty()) continue;
    const std::filesystem::path path = directory / segment_file_name(segment);
    auto [file, is_direct] = open_to_read(path, direct);
    direct_ = direct_ && is_direct;
    const uint64_t expected = pack_.segment(segment).size();
    if (file.size() != expected) {
      fail(ErrorKind::kUsage, "{}: {} bytes, but the pack's own has {}; a mirror must be a whole copy of the pack", path.string(),
           file.size(), expected);
    }
    copy.files[static_cast<size_t>(segment)] = std::move(file);
  }
  copies_.push_back(std::move(copy));
}

uint32_t RecordReader::take_job() {
  if (free_jobs_.empty()) {
    free_jobs_.push_back(static_cast<uint32_t>(jobs_.size()));
    jobs_.emplace_back();
  }
  const uint32_t job = free_jobs_.back();
  free_jobs_.pop_back();
  return job;
}

void RecordReader::append(Queue& queue, uint32_t job) {
  jobs_[job].next = kNone;
  jobs_[job].queued = true;
  (queue.last == kNone ? queue.first : jobs_[queue.last].next) = job;
  queue.last = job;
}

void RecordReader::remove(Queue& queue, uint32_t job) {
  uint32_t before = kNone;
  for (uint32_t at = queue.first; at != job; at = jobs_[at].next) before = at;
  (before == kNone ? queue.first : jobs_[before].next) = jobs_[job].next;
  if (queue.last == job) queue.last = before;
  jobs_[job].queued = false;
}

RecordReader::Ticket RecordReader::submit(const Request& request) {
  Ticket ticket = 0;
  submit(std::span(&request, 1), std::span(&ticket, 1));
  return ticket;
}

void RecordReader::submit(std::span<const Request> requests, std::span<Ticket> tickets) {
  TIERPACK_CHECK(requests.size() == tickets.size());
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint32_t job = take_job();
    jobs_[job] = Job{};
    jobs_[job].request = requests[i];
    append(queues_[static_cast<size_t>(requests[i].priority)], job);
    if (requests[i].priority == ReadPriority::kDemand) last_demand_ = Clock::now();
    tickets[i] = job;
  }
  start_pieces();
}

void RecordReader::promote(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  Job& job = jobs_[ticket];
  if (job.request.priority == ReadPriority::kDemand) return;
  const bool queued = job.queued;
  if (queued) remove(queues_[static_cast<size_t>(job.request.priority)], ticket);
  job.request.priority = ReadPriority::kDemand;
  if (!queued) return;
  append(queues_[static_cast<size_t>(ReadPriority::kDemand)], ticket);
  start_pieces();
}

// The copy that will have read this record first, by what it has in flight and its measured rate; one that failed the
// record before is asked last.
uint32_t RecordReader::choose_copy(const Job& job) const {
  uint32_t best = job.copy;
  double best_s = -1;
  for (uint32_t i = 0; i < copies_.size(); ++i) {
    if (job.attempt > 0 && i == job.copy && copies_.size() > 1) continue;
    const Copy& copy = copies_[i];
    const double rate = copy.rate > 0 ? copy.rate : 1e9;
    const double wait_s = static_cast<double>(copy.bytes_in_flight + kPieceBytes) / rate;
    if (best_s >= 0 && wait_s >= best_s) continue;
    best = i;
    best_s = wait_s;
  }
  return best;
}

void RecordReader::start_pieces() {
  if (stopping_) return;
  bool started = false;
  const uint32_t background = Clock::now() - last_demand_ < kPolite ? kPoliteDepth : kIdleDepth;
  for (size_t priority = 0; priority < 3; ++priority) {
    Queue& queue = queues_[priority];
    while (queue.first != kNone && !free_pieces_.empty()) {
      const uint32_t index = queue.first;
      Job& job = jobs_[index];
      if (job.next_offset == 0 && job.pieces == 0) job.copy = choose_copy(job);
      Copy& copy = copies_[job.copy];
      const uint32_t limit = priority == 0 ? kDepth : urgent_in_flight_ > 0 ? 0 : background;
      if (copy.in_flight >= limit) break;
      const Record& record = pack_.manifest().records[job.request.record];
      const uint64_t room = room_bytes(record.bytes);
      const uint32_t slot = free_pieces_.back();
      free_pieces_.pop_back();
      Piece& piece = pieces_[slot];
      piece = {index, job.next_offset, static_cast<uint32_t>(std::min<uint64_t>(kPieceBytes, room - job.next_offset)), 0,
               priority == 0};
      job.next_offset += piece.bytes;
      ++job.pieces;
      if (job.next_offset == room) remove(queue, index);
      if (copy.in_flight++ == 0) copy.busy_since = Clock::now();
      copy.bytes_in_flight += piece.bytes;
      urgent_in_flight_ += piece.urgent;
      queue_->start({copy.files[static_cast<size_t>(record.segment)]->fd(), record.offset + piece.offset,
                     job.request.to + piece.offset, piece.bytes, slot});
      started = true;
    }
  }
  if (started) queue_->flush();
}

void RecordReader::on_piece(uint32_t slot, int result) {
  bool whole = false;
  uint32_t index = 0;
  {
    std::unique_lock lock(mutex_);
    Piece& piece = pieces_[slot];
    index = piece.job;
    Job& job = jobs_[index];
    const Record& record = pack_.manifest().records[job.request.record];
    std::byte* const to = job.request.to + piece.offset + piece.done;
    const uint32_t left = piece.bytes - piece.done;
    if (faults_ != nullptr) {
      lock.unlock();
      result = faults_->after_read(record.segment, record.offset + piece.offset + piece.done, {to, left}, result);
      lock.lock();
    }
    Copy& copy = copies_[job.copy];
    // A short read goes on at a multiple of the alignment, or has come to the end of the file with all that was wanted.
    const bool at_end = result >= 0 && piece.offset + piece.done + static_cast<uint32_t>(result) >= record.bytes;
    if (result >= 0 && static_cast<uint32_t>(result) < left && !at_end && !stopping_) {
      const auto usable = static_cast<uint32_t>(result) / static_cast<uint32_t>(kRecordAlignment) * static_cast<uint32_t>(kRecordAlignment);
      if (usable > 0) {
        piece.done += usable;
        queue_->start({copy.files[static_cast<size_t>(record.segment)]->fd(), record.offset + piece.offset + piece.done,
                       to + usable, left - usable, slot});
        queue_->flush();
        return;
      }
      result = -EIO;
    }
    if (result < 0 && job.error == 0) job.error = -result;
    if (!direct_) {
      ::posix_fadvise(copy.files[static_cast<size_t>(record.segment)]->fd(), static_cast<off_t>(record.offset + piece.offset),
                      piece.bytes, POSIX_FADV_DONTNEED);
    }
    const Clock::time_point now = Clock::now();
    const double busy_s = std::chrono::duration<double>(now - copy.busy_since).count();
    copy.busy_since = now;
    copy.window_s += busy_s;
    copy.window_bytes += piece.bytes;
    counters_.bytes += piece.bytes;
    if (copy.window_s >= kRateWindow_s) {
      const double rate = static_cast<double>(copy.window_bytes) / copy.window_s;
      copy.rate = copy.rate == 0 ? rate : copy.rate + kRateShare * (rate - copy.rate);
      copy.window_s = 0;
      copy.window_bytes = 0;
    }
    --copy.in_flight;
    copy.bytes_in_flight -= piece.bytes;
    urgent_in_flight_ -= piece.urgent;
    free_pieces_.push_back(slot);
    whole = --job.pieces == 0 && !job.queued;
    start_pieces();
  }
  if (whole) finish(index);
}

void RecordReader::begin_again(uint32_t index) {
  const std::lock_guard lock(mutex_);
  Job& job = jobs_[index];
  ++counters_.retries;
  ++job.attempt;
  job.error = 0;
  job.next_offset = 0;
  append(queues_[static_cast<size_t>(job.request.priority)], index);
  start_pieces();
}

void RecordReader::finish(uint32_t index) {
  Request request;
  std::exception_ptr failure;
  int error = 0;
  int attempt = 0;
  {
    const std::lock_guard lock(mutex_);
    const Job& job = jobs_[index];
    request = job.request;
    error = job.error;
    attempt = job.attempt;
    if (error != 0 && attempt + 1 >= kAttemptsMax) failure = io_failure(job);
  }
  if (error == 0) {
    const Record& record = pack_.manifest().records[request.record];
    const Xxh128 found = xxh3_128({request.to, record.bytes});
    if (found != record.checksum) {
      const std::lock_guard lock(mutex_);
      if (attempt + 1 >= kAttemptsMax) failure = corrupt_failure(jobs_[index], found.hex());
      error = -1;
    }
  }
  if (error != 0 && !failure) {
    begin_again(index);
    return;
  }
  if (!failure) {
    const std::lock_guard lock(mutex_);
    ++counters_.records;
  }
  // The ticket may name this request until the owner has heard of it.
  on_done_(request.tag, failure);
  const std::lock_guard lock(mutex_);
  free_jobs_.push_back(index);
}

std::exception_ptr RecordReader::io_failure(const Job& job) const {
  const Record& record = pack_.manifest().records[job.request.record];
  const Copy& copy = copies_[job.copy];
  return std::make_exception_ptr(
      Error(ErrorKind::kIo, fmt::format("{}: cannot read record {} at byte {} ({} bytes), tried twice: {}",
                                        copy.files[static_cast<size_t>(record.segment)]->name(), job.request.record,
                                        record.offset, record.bytes, std::strerror(job.error))));
}

std::exception_ptr RecordReader::corrupt_failure(const Job& job, const std::string& found) const {
  const Record& record = pack_.manifest().records[job.request.record];
  const Copy& copy = copies_[job.copy];
  return std::make_exception_ptr(Error(
      ErrorKind::kCorrupt,
      fmt::format("{}: record {} at byte {} ({} bytes) has checksum {}, read twice; the pack says {}; run tierpack verify {}",
                  copy.files[static_cast<size_t>(record.segment)]->name(), job.request.record, record.offset, record.bytes,
                  found, record.checksum.hex(), copy.directory.string())));
}

ReaderCounters RecordReader::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

double RecordReader::bandwidth() const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const Copy& copy : copies_) sum += copy.rate;
  return sum;
}

}  // namespace tierpack::experts
