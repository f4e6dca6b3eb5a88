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
// Why enumerate() is empty ("built without CUDA", "no NVIDIA driver", ...).
std::string unavailable_reason();

// Host memory that the device can read directly (page-locked under CUDA when a device is usable), 4096-byte aligned.
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

// An in-order queue of copies.
class Stream {
 public:
  Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();
  // Ranges are checked against the buffer. The host memory must stay valid until the copy has completed.
  void copy_to_device(DeviceBuffer& to, uint64_t offset, Bytes from);
  void copy_to_host(MutableBytes to, const DeviceBuffer& from, uint64_t offset);
  void record(Event& event);
  void wait(const Event& event);  // later work of this stream waits
  void synchronize();             // blocks until everything queued has completed

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

 private:
  friend class Stream;
  void* handle_ = nullptr;
};

}  // namespace tierpack::device
