// The device layer over the emulator: streams are queues that run when something waits for them.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/memory_placement.h"
#include "runtime/device/device.h"
#include "tests/support/cuda_on_cpu/device_memory.h"
#include "tests/support/cuda_on_cpu/work_queue.h"

namespace tierpack::device {
namespace {

using cuda_on_cpu::Record;
using cuda_on_cpu::WorkQueue;

constexpr uint64_t kSpoiltBytes = uint64_t{16} << 20;  // of page-locked memory that is freed, to show up in late copies

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

}  // namespace

const char* backend_name() { return "cuda_on_cpu"; }

std::vector<DeviceInfo> enumerate() {
  DeviceInfo info;
  info.name = "cuda_on_cpu";
  info.compute_major = 8;
  info.memory_bytes = cuda_on_cpu::device_memory_bytes();
  info.free_bytes = free_device_bytes();
  return {info};
}

int device_count() { return 1; }
int compute_capability(int index) { return index == 0 ? 90 : 0; }
void lock_pages(bool) {}
void leave_devices() {}
std::string unavailable_reason() { return {}; }

void use_device(int index) {
  if (index != 0) fail(ErrorKind::kCuda, "device {} cannot be used: there is one", index);
}

uint64_t free_device_bytes() { return cuda_on_cpu::unused_device_memory_bytes(); }

PinnedBuffer::PinnedBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = allocate_placed(bytes);
  if (!data_) fail(ErrorKind::kCapacity, "cannot allocate {} bytes of host memory", bytes);
  cuda_on_cpu::add_pinned_memory(data_, bytes);
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  cuda_on_cpu::remove_pinned_memory(data_);
  std::memset(data_, 0xA5, std::min(bytes_, kSpoiltBytes));
  std::free(data_);
}

DeviceBuffer::DeviceBuffer(uint64_t bytes) : bytes_(bytes) {
  if (bytes > 0) data_ = cuda_on_cpu::allocate_device_memory(bytes);
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
  WorkQueue::drain_all();
  cuda_on_cpu::free_device_memory(data_);
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
  if (from.empty()) return;
  cuda_on_cpu::check_device_range("copy to the device", to, from.size());
  queue_at(handle_).add("copy to the device", [=] { std::memcpy(to, from.data(), from.size()); });
}
void Stream::copy_to_host(MutableBytes to, const void* from) {
  if (to.empty()) return;
  cuda_on_cpu::check_device_range("copy to the host", from, to.size());
  queue_at(handle_).add("copy to the host", [=] { std::memcpy(to.data(), from, to.size()); });
}
void Stream::copy_on_device(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  cuda_on_cpu::check_device_range("copy on the device from", from, bytes);
  cuda_on_cpu::check_device_range("copy on the device to", to, bytes);
  const auto* const a = static_cast<const std::byte*>(from);
  const auto* const b = static_cast<const std::byte*>(to);
  if (a < b + bytes && b < a + bytes) fail(ErrorKind::kCuda, "copy on the device of {} bytes between places that overlap", bytes);
  queue_at(handle_).add("copy on the device", [=] { std::memcpy(to, from, bytes); });
}
void Stream::clear(void* to, uint64_t bytes) {
  if (bytes == 0) return;
  cuda_on_cpu::check_device_range("clearing", to, bytes);
  queue_at(handle_).add("clearing", [=] { std::memset(to, 0, bytes); });
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

// Recording changes nothing here but that waiting is an error, as it is on a device.
WorkGraph::WorkGraph() = default;
WorkGraph::~WorkGraph() = default;
void WorkGraph::record(Stream& stream) { queue_at(stream.handle()).set_recording(true); }
void WorkGraph::finish(Stream& stream, uint64_t) { queue_at(stream.handle()).set_recording(false); }
void WorkGraph::abandon(Stream& stream) noexcept { queue_at(stream.handle()).set_recording(false); }

}  // namespace tierpack::device

namespace tierpack::cuda_on_cpu {

WorkQueue& queue_of(device::Stream& stream) { return *static_cast<WorkQueue*>(stream.handle()); }

}  // namespace tierpack::cuda_on_cpu
