// Accelerator memory and work queues, as owned handles. Exactly one implementation is linked: device_host.cpp (no
// accelerator: plain memory, everything completes at once) or device_cuda.cpp. Everything above builds and runs with
// either; a CUDA build also starts on a machine without a driver and then reports no device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tierpack::device {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  std::string pci_address;  // "0000:01:00.0"; empty when unknown
};

const char* backend_name();                 // "host" or "cuda"
std::vector<DeviceInfo> enumerate();        // empty without a usable device
int device_count();                         // of enumerate(), without opening any of them
int compute_capability(int index);          // 10 * major + minor, likewise; 0 for no such device
// Why enumerate() is empty ("built without CUDA", "no NVIDIA driver", ...).
std::string unavailable_reason();

// From now on, whether a PinnedBuffer is page-locked, which costs time and cannot be swapped: for a process that computes on a device.
void lock_pages(bool locked);
// Gives back what this process holds of the devices it has opened; buffers, streams and events of them must be gone.
void leave_devices();

// Host memory that a device can read, 4096-byte aligned: directly and beside other work if page-locked (lock_pages), else more slowly.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(uint64_t bytes);  // throws kCapacity
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();
  MutableBytes bytes() { return {data_, bytes_}; }
  Bytes bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  bool registered_ = false;
};

// Makes device `index` of enumerate() the one that this thread's buffers, streams and events belong to; the first until then. Every
// thread that touches them calls it. Throws kCuda.
void use_device(int index);
// Bytes of device memory that are free now; 0 without a device.
uint64_t free_device_bytes();

// Device memory; never dereferenced by the host.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(uint64_t bytes);  // throws kCapacity
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  std::byte* address() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Event;

// An in-order queue of copies and kernels. Work queued on two streams is ordered by events alone.
class Stream {
 public:
  Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();
  // Ranges are checked against the buffer. The host memory must stay valid until the copy has completed.
  void copy_to_device(DeviceBuffer& to, uint64_t offset, Bytes from);
  void copy_to_host(MutableBytes to, const DeviceBuffer& from, uint64_t offset);
  // The same for addresses inside device buffers, which the caller vouches for.
  void copy_to_device(void* to, Bytes from);
  void copy_to_host(MutableBytes to, const void* from);
  void copy_on_device(void* to, const void* from, uint64_t bytes);  // not overlapping
  void clear(void* to, uint64_t bytes);                             // zero bytes
  void record(Event& event);
  void wait(const Event& event);  // later work of this stream waits
  void synchronize();             // blocks until everything queued has completed
  void* handle() const { return handle_; }  // for launching kernels

 private:
  void* handle_ = nullptr;
};

class Event {
 public:
  Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();
  bool done() const;
  void synchronize() const;
  // Time on the device from an earlier event to this one, both done.
  double seconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  void* handle_ = nullptr;
};

// Work of one shape that is queued again and again, started as one, which costs the host less than its parts. It is recorded anew each time:
// addresses, sizes and values may change.
class WorkGraph {
 public:
  WorkGraph();
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;
  ~WorkGraph();
  // From here to finish or abandon the stream only takes down what is queued, and nothing may wait for it.
  void record(Stream& stream);
  // Queues what was taken down. `shape`: the same for recordings that differ in addresses, sizes and values alone; then the graph is made
  // once. A wrong one costs time only.
  void finish(Stream& stream, uint64_t shape);
  void abandon(Stream& stream) noexcept;   // forgets it

 private:
  void* handle_ = nullptr;
};

}  // namespace tierpack::device
