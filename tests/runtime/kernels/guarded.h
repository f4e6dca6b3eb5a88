// Inputs and outputs of kernels whose last byte is followed by memory that may not be touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.h"

namespace tierpack::kernels {

// A copy that ends where memory may not be touched: reading or writing one byte too many ends the test.
template <typename T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), bytes = values.size() * sizeof(T);
    const size_t body = (bytes + page - 1) / page * page;
    bytes_ = body + page;
    map_ = static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TIERPACK_CHECK(map_ != MAP_FAILED && ::mprotect(map_ + body, page, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(map_ + body - bytes);
    std::copy(values.begin(), values.end(), data_);
  }
  ~Guarded() { ::munmap(map_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() const { return data_; }

 private:
  std::byte* map_;
  size_t bytes_;
  T* data_;
};

template <typename T>
std::vector<T> listed(const T* values, size_t count) {
  return values == nullptr ? std::vector<T>{} : std::vector<T>(values, values + count);
}

}  // namespace tierpack::kernels
