// Carves typed arrays out of one allocation. The same layout function runs twice: over a null base it only counts, over
// the allocation it places, so that size and placement cannot disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_placement.h"

namespace tierpack::model {

class Carver {
 public:
  static constexpr uint64_t kAlignment = 64;

  explicit Carver(std::byte* base = nullptr) : base_(base) {}

  // `count` elements, 64-byte aligned; null while counting. Throws kCapacity when the sum leaves 64 bits.
  template <typename T>
  T* take(uint64_t count) {
    const auto bytes = checked_mul(count, sizeof(T));
    const auto end = bytes ? checked_add(at_, *bytes) : bytes;
    const auto aligned = end ? checked_align_up(*end, kAlignment) : end;
    if (!aligned) fail(ErrorKind::kCapacity, "the model's buffers need more than 64-bit sizes");
    std::byte* place = base_ == nullptr ? nullptr : base_ + at_;
    at_ = *aligned;
    if (at_ > high_) high_ = at_;
    return reinterpret_cast<T*>(place);
  }

  // Arrays that are never alive together may share bytes: remember the place, carve one alternative, go back, carve the
  // next, and continue behind the largest with skip_to_high().
  uint64_t place() const { return at_; }
  void back_to(uint64_t place) { at_ = place; }
  void skip_to_high() { at_ = high_; }

  uint64_t bytes() const { return high_; }

 private:
  std::byte* base_;
  uint64_t at_ = 0;
  uint64_t high_ = 0;
};

// Uninitialised memory, aligned for any carved array; untouched pages cost nothing.
class CarvedMemory {
 public:
  CarvedMemory() = default;
  explicit CarvedMemory(uint64_t bytes) : data_(bytes == 0 ? nullptr : allocate_placed(bytes)), bytes_(bytes) {
    if (bytes > 0 && !data_) fail(ErrorKind::kCapacity, "cannot allocate {} for the model's buffers", format_size(bytes));
  }
  std::byte* data() { return data_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  uint64_t bytes_ = 0;
};

}  // namespace tierpack::model
