// Arrays in device memory for tests of kernels, with whichever implementation of device.h is linked.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "runtime/device/device.h"

namespace tierpack::device {

template <typename T>
class OnDevice {
 public:
  // Zeros.
  OnDevice(Stream& stream, size_t count) : stream_(&stream), buffer_(count * sizeof(T)), count_(count) {
    stream.clear(buffer_.address(), buffer_.size());
  }
  OnDevice(Stream& stream, std::span<const T> values) : stream_(&stream), buffer_(values.size_bytes()), count_(values.size()) {
    stream.copy_to_device(buffer_, 0, std::as_bytes(values));
    stream.synchronize();
  }
  OnDevice(Stream& stream, const std::vector<T>& values) : OnDevice(stream, std::span<const T>(values)) {}

  T* data() const { return reinterpret_cast<T*>(buffer_.address()); }
  size_t size() const { return count_; }
  // The values after everything queued on the stream so far.
  std::vector<T> get() const {
    std::vector<T> values(count_);
    stream_->copy_to_host(std::as_writable_bytes(std::span(values)), buffer_, 0);
    stream_->synchronize();
    return values;
  }

 private:
  Stream* stream_;
  DeviceBuffer buffer_;
  size_t count_;
};

}  // namespace tierpack::device
