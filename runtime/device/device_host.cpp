// The device layer without an accelerator: device memory is plain memory, and every copy is done when it is queued.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/memory_placement.h"
#include "runtime/device/device.h"

namespace tierpack::device {
namespace {

std::byte* allocate(uint64_t bytes, const char* what) {
  if (bytes == 0) return nullptr;
  std::byte* const memory = allocate_placed(bytes);
  if (!memory) fail(ErrorKind::kCapacity, "cannot allocate {} bytes of {} memory; lower the budget or free memory", bytes, what);
  return memory;
}

}  // namespace

const char* backend_name() { return "host"; }
std::vector<DeviceInfo> enumerate() { return {}; }
int device_count() { return 0; }
int compute_capability(int) { return 0; }
void lock_pages(bool) {}
void leave_devices() {}
std::string unavailable_reason() { return "tierpack was built without CUDA"; }
void use_device(int index) { fail(ErrorKind::kCuda, "device {} cannot be used: {}", index, unavailable_reason()); }
uint64_t free_device_bytes() { return 0; }

PinnedBuffer::PinnedBuffer(uint64_t bytes) : data_(allocate(bytes, "host")), bytes_(bytes) {}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
PinnedBuffer::~PinnedBuffer() { std::free(data_); }

DeviceBuffer::DeviceBuffer(uint64_t bytes) : data_(allocate(bytes, "device")), bytes_(bytes) {}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() { std::free(data_); }

// A queue whose work is always complete needs no handle, nor does an event on it.
Stream::Stream() = default;
Stream::Stream(Stream&& other) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept = default;
Stream::~Stream() = default;

void Stream::copy_to_device(DeviceBuffer& to, uint64_t offset, Bytes from) {
  TIERPACK_CHECK(offset <= to.size() && from.size() <= to.size() - offset);
  if (!from.empty()) std::memcpy(to.address() + offset, from.data(), from.size());
}

void Stream::copy_to_host(MutableBytes to, const DeviceBuffer& from, uint64_t offset) {
  TIERPACK_CHECK(offset <= from.size() && to.size() <= from.size() - offset);
  if (!to.empty()) std::memcpy(to.data(), from.address() + offset, to.size());
}

void Stream::copy_to_device(void* to, Bytes from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}
void Stream::copy_to_host(MutableBytes to, const void* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}
void Stream::copy_on_device(void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void Stream::clear(void* to, uint64_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

void Stream::record(Event&) {}
void Stream::wait(const Event&) {}
void Stream::synchronize() {}

Event::Event() = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(Event&& other) noexcept = default;
Event::~Event() = default;
bool Event::done() const { return true; }
void Event::synchronize() const {}
double Event::seconds_since(const Event&) const { return 0; }

WorkGraph::WorkGraph() = default;
WorkGraph::~WorkGraph() = default;
void WorkGraph::record(Stream&) {}
void WorkGraph::finish(Stream&, uint64_t) {}
void WorkGraph::abandon(Stream&) noexcept {}

}  // namespace tierpack::device
