// The device layer over the emulator: device memory is host memory between pages that may not be touched, streams are queues that
// run when something waits for them.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/memory_placement.h"
#include "runtime/device/device.h"
#include "tests/support/cuda_on_cpu/work_queue.h"

namespace tierpack::device {
namespace {

using cuda_on_cpu::Record;
using cuda_on_cpu::WorkQueue;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMemoryBytes = uint64_t{8} << 30;
constexpr uint64_t kFilledBytes = uint64_t{64} << 20;  // of a buffer get a pattern: NaN as floats, -1 as integers

std::atomic<uint64_t>& used_bytes() {
  static std::atomic<uint64_t> used = 0;
  return used;
}

// Where a buffer of so many bytes lies in its mapping: a page before and one behind may not be touched, and its end is as near to the
// latter as alignment allows, 256 bytes for multiples of that and else 16.
struct Layout {
  explicit Layout(uint64_t bytes) {
    const uint64_t alignment = bytes % 256 == 0 ? 256 : 16;
    const uint64_t aligned = (bytes + alignment - 1) / alignment * alignment;
    body = (aligned + kPage - 1) / kPage * kPage;
    start = kPage + body - aligned;
  }
  uint64_t body;
  uint64_t start;  // from the beginning of the mapping
};

WorkQueue& queue_at(void* handle) { return *static_cast<WorkQueue*>(handle); }

struct EventState {
  std::mutex lock;
  std::shared_ptr<Record> record;
  std::shared_ptr<Record> get() {
    const std::lock_guard guard(lock);
    return record;
  }
};
EventState& event_at(void* handle) { return *static_cast<EventState*>(handle); }

void copy(void* to, const void* from, uint64_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace

const char* backend_name() { return "cuda_on_cpu"; }

std::vector<DeviceInfo> enumerate() {
  DeviceInfo info;
  info.name = "cuda_on_cpu";
  info.compute_major = 8;
  info.memory_bytes = kMemoryBytes;
  info.free_bytes = free_device_bytes();
  return {info};
}

std::string unavailable_reason() { return {}; }

void use_device(int index) {
  if (index != 0) fail(ErrorKind::kCuda, "device {} cannot be used: there is one", index);
}

uint64_t free_device_bytes() { return kMemoryBytes - std::min(kMemoryBytes, used_bytes().load()); }

PinnedBuffer::PinnedBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = allocate_placed(bytes);
  if (!data_) fail(ErrorKind::kCapacity, "cannot allocate {} bytes of host memory", bytes);
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
PinnedBuffer::~PinnedBuffer() { std::free(data_); }

DeviceBuffer::DeviceBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes > free_device_bytes()) fail(ErrorKind::kCapacity, "cannot allocate {} bytes of GPU memory", bytes);
  const Layout layout(bytes);
  void* const map = ::mmap(nullptr, layout.body + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || ::mprotect(static_cast<std::byte*>(map) + kPage, layout.body, PROT_READ | PROT_WRITE) != 0) {
    fail(ErrorKind::kCapacity, "cannot allocate {} bytes of GPU memory", bytes);
  }
  data_ = static_cast<std::byte*>(map) + layout.start;
  std::memset(data_, 0xFF, std::min(bytes, kFilledBytes));
  used_bytes() += bytes;
}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  const Layout layout(bytes_);
  ::munmap(data_ - layout.start, layout.body + 2 * kPage);
  used_bytes() -= bytes_;
}

Stream::Stream() : handle_(new WorkQueue) {}
Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}
Stream::~Stream() { delete static_cast<WorkQueue*>(handle_); }

void Stream::copy_to_device(DeviceBuffer& to, uint64_t offset, Bytes from) {
  TIERPACK_CHECK(offset <= to.size() && from.size() <= to.size() - offset);
  copy_to_device(to.address() + offset, from);
}
void Stream::copy_to_host(MutableBytes to, const DeviceBuffer& from, uint64_t offset) {
  TIERPACK_CHECK(offset <= from.size() && to.size() <= from.size() - offset);
  copy_to_host(to, from.address() + offset);
}
void Stream::copy_to_device(void* to, Bytes from) {
  if (!from.empty()) queue_at(handle_).add("copy_to_device", [=] { copy(to, from.data(), from.size()); });
}
void Stream::copy_to_host(MutableBytes to, const void* from) {
  if (!to.empty()) queue_at(handle_).add("copy_to_host", [=] { copy(to.data(), from, to.size()); });
}
void Stream::copy_on_device(void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) queue_at(handle_).add("copy_on_device", [=] { copy(to, from, bytes); });
}
void Stream::clear(void* to, uint64_t bytes) {
  if (bytes > 0) queue_at(handle_).add("clear", [=] { std::memset(to, 0, bytes); });
}
void Stream::record(Event& event) {
  EventState& state = event_at(event.handle_);
  const std::lock_guard guard(state.lock);
  state.record = queue_at(handle_).record();
}
void Stream::wait(const Event& event) {
  if (std::shared_ptr<Record> record = event_at(event.handle_).get()) queue_at(handle_).wait(std::move(record));
}
void Stream::synchronize() { queue_at(handle_).synchronize(); }

Event::Event() : handle_(new EventState) {}
Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}
Event::~Event() { delete static_cast<EventState*>(handle_); }

bool Event::done() const {
  const std::shared_ptr<Record> record = event_at(handle_).get();
  return record == nullptr || WorkQueue::approach(*record);
}
void Event::synchronize() const {
  if (const std::shared_ptr<Record> record = event_at(handle_).get()) WorkQueue::reach(*record);
}
double Event::seconds_since(const Event& earlier) const {
  const std::shared_ptr<Record> to = event_at(handle_).get(), from = event_at(earlier.handle_).get();
  if (to == nullptr || from == nullptr || !to->done || !from->done) fail(ErrorKind::kCuda, "the time between events that are not done");
  return std::chrono::duration<double>(to->when - from->when).count();
}

}  // namespace tierpack::device

namespace tierpack::cuda_on_cpu {

WorkQueue& queue_of(device::Stream& stream) { return *static_cast<WorkQueue*>(stream.handle()); }

}  // namespace tierpack::cuda_on_cpu
