#include "runtime/hardware/disk_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/interrupt.h"
#include "runtime/hardware/read_queue.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSlots = kPagesInFlight;
constexpr uint32_t kPiecesInFlight = kInFlightBytes / kPieceBytes;
constexpr uint64_t kFillBytes = uint64_t{1} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, Free>;

AlignedMemory aligned_memory(uint64_t bytes) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(kSectorBytes, bytes)));
  if (!memory) fail(ErrorKind::kCapacity, "cannot allocate {} to read into", format_size(bytes));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

bool set_direct(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

struct DiskReader::State {
  State(File& file_, uint64_t bytes_, const ReadOptions& options)
      : file(file_), bytes(bytes_ / kSectorBytes * kSectorBytes), memory(aligned_memory(kInFlightBytes)) {
    if (bytes == 0) fail(ErrorKind::kIo, "{}: too small to read from", file.name());
    const auto readable = [&] { return ::pread(file.fd(), memory.get(), kSectorBytes, 0) == static_cast<ssize_t>(kSectorBytes); };
    direct = options.direct && set_direct(file.fd(), true) && readable();
    if (!direct) {
      set_direct(file.fd(), false);
      if (!readable()) fail(ErrorKind::kIo, "{}: cannot be read: {}", file.name(), std::strerror(errno));
    }
    use_queue(options.io_uring, kPiecesInFlight, kPieceBytes);
    uring = options.io_uring && uring;
  }

  // One size of slots at a time: pieces of records, or pages.
  void use_queue(bool want_uring, uint32_t count, uint32_t slot_bytes) {
    if (queue && slots == count) return;
    queue.reset();
    slots = count;
    if (want_uring) queue = make_uring_queue(file, memory.get(), count, slot_bytes);
    uring = queue != nullptr;
    if (!queue) queue = make_thread_queue(file, memory.get(), count, slot_bytes);
    registered = queue->registered();
  }

  void queue_for(uint64_t record_bytes) {
    if (record_bytes <= kSectorBytes) {
      use_queue(uring, kSlots, kSectorBytes);
    } else {
      use_queue(uring, kPiecesInFlight, kPieceBytes);
    }
  }

  // Where the page cache cannot be passed by, it is emptied before each window.
  void forget() {
    if (!direct) ::posix_fadvise(file.fd(), 0, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  }

  uint64_t take_done() {
    const ReadQueue::Done done = queue->wait();
    idle.push_back(done.slot);
    if (done.result <= 0) {
      problem = done.result < 0 ? static_cast<int>(-done.result) : EIO;
      return 0;
    }
    return static_cast<uint64_t>(done.result);
  }

  void begin() {
    throw_if_interrupted();
    forget();
    problem = 0;
    idle.clear();
    for (uint32_t slot = slots; slot > 0;) idle.push_back(--slot);
  }

  void finish() {
    while (idle.size() < slots) take_done();
    if (problem != 0) fail(ErrorKind::kIo, "{}: cannot be read: {}", file.name(), std::strerror(problem));
    throw_if_interrupted();
  }

  uint64_t stride_of(uint64_t record_bytes) const { return std::min(align_up(record_bytes, kSectorBytes), bytes); }
  uint64_t random_offset(uint64_t stride) { return generator() % (bytes / stride) * stride; }

  // Keeps all slots busy with pieces of records at next(); bytes a second.
  template <typename Next>
  double keep_busy(uint64_t stride, double seconds, Next&& next) {
    begin();
    uint64_t at = 0, left = 0, taken = 0;
    const double start = now();
    while (problem == 0 && !interrupted() && (taken == 0 || now() - start < seconds)) {
      while (!idle.empty()) {
        if (left == 0) {
          at = next();
          left = stride;
        }
        const auto piece = static_cast<uint32_t>(std::min(left, kPieceBytes));
        queue->submit(idle.back(), at, piece);
        idle.pop_back();
        at += piece;
        left -= piece;
      }
      taken += take_done();
    }
    while (idle.size() < slots) taken += take_done();
    const double rate = static_cast<double>(taken) / (now() - start);
    finish();
    return rate;
  }

  File& file;
  uint64_t bytes;
  AlignedMemory memory;
  std::unique_ptr<ReadQueue> queue;  // after the memory it reads into
  uint32_t slots = 0;
  bool direct = false;
  bool uring = false;
  bool registered = false;
  int problem = 0;
  std::vector<uint32_t> idle;
  std::mt19937_64 generator{0x7469657270616b};
};

DiskReader::DiskReader(File& file, uint64_t bytes, const ReadOptions& options)
    : state_(std::make_unique<State>(file, bytes, options)) {}
DiskReader::~DiskReader() = default;

bool DiskReader::direct() const { return state_->direct; }
bool DiskReader::io_uring() const { return state_->uring; }
bool DiskReader::registered_buffers() const { return state_->registered; }

double DiskReader::sequential(double seconds) {
  State& s = *state_;
  s.queue_for(kPieceBytes);
  const uint64_t stride = s.stride_of(kPieceBytes);
  uint64_t at = s.random_offset(stride);
  return s.keep_busy(stride, seconds, [&] {
    const uint64_t offset = at;
    at += stride;
    if (at + stride > s.bytes) at = 0;
    return offset;
  });
}

double DiskReader::random(uint64_t record_bytes, double seconds) {
  State& s = *state_;
  s.queue_for(record_bytes);
  const uint64_t stride = s.stride_of(record_bytes);
  return s.keep_busy(stride, seconds, [&] { return s.random_offset(stride); }) / static_cast<double>(stride);
}

std::vector<double> DiskReader::latencies(uint64_t record_bytes, double seconds) {
  State& s = *state_;
  s.queue_for(record_bytes);
  const uint64_t stride = s.stride_of(record_bytes);
  s.begin();
  std::vector<double> out;
  const double start = now();
  while (s.problem == 0 && !interrupted() && (out.empty() || now() - start < seconds)) {
    const uint64_t offset = s.random_offset(stride);
    const double begun = now();
    for (uint64_t at = 0; at < stride;) {
      if (s.idle.empty()) s.take_done();
      const auto piece = static_cast<uint32_t>(std::min(stride - at, kPieceBytes));
      s.queue->submit(s.idle.back(), offset + at, piece);
      s.idle.pop_back();
      at += piece;
    }
    while (s.idle.size() < s.slots) s.take_done();
    out.push_back(1e6 * (now() - begun));
  }
  s.finish();
  return out;
}

File make_probe_file(const fs::path& directory, uint64_t wanted_bytes) {
  const uint64_t bytes = align_up(wanted_bytes, kSectorBytes);
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {
    // Filesystems without files that never had a name: one that loses it at once.
    const std::string path = (directory / fmt::format("tierpack-probe-{}.tmp", ::getpid())).string();
    fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) fail_errno(fmt::format("{}: a file to measure the disk with cannot be created", directory.string()));
    ::unlink(path.c_str());
  }
  File file = File::adopt(fd, (directory / "(temporary file)").string());
  file.reserve(bytes);
  const bool direct = set_direct(fd, true);
  const AlignedMemory memory = aligned_memory(kFillBytes);
  std::mt19937_64 generator(static_cast<uint64_t>(::getpid()));
  for (uint64_t at = 0; at < bytes; at += kFillBytes) {
    throw_if_interrupted();
    for (uint64_t i = 0; i < kFillBytes; i += sizeof(uint64_t)) store(memory.get() + i, generator());
    const uint64_t part = std::min(bytes - at, kFillBytes);
    try {
      file.write_at(at, {memory.get(), part});
    } catch (const Error&) {
      if (at > 0 || !direct) throw;
      set_direct(fd, false);  // accepted, but not meant
      file.write_at(at, {memory.get(), part});
    }
    if (!direct && at % (64 * kFillBytes) == 0) {
      file.sync_data();
      ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
  }
  file.sync_data();
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return file;
}

}  // namespace tierpack::hardware
