#include "tests/support/cuda_on_cpu/shared_memory.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "tests/support/cuda_on_cpu/block_run.h"
#include "tests/support/cuda_on_cpu/shared_shadow.h"

namespace tierpack::cuda_on_cpu {

struct SharedArray {
  const void* site = nullptr;
  const char* name = "";
  size_t element_bytes = 1;
  size_t bytes = 0;
  std::unique_ptr<std::byte[]> storage;
  size_t capacity = 0;
  std::byte* data = nullptr;  // 16-byte aligned
  Shadow shadow;
};

namespace {

constexpr size_t kStaticBytes = 48u << 10;
constexpr size_t kSharedBytes = 64u << 10;  // what every supported architecture has for a block

struct PendingCopy {
  SharedArray* array;
  int64_t offset;
  const void* from;
  uint32_t group;
};

struct SharedMemory {
  size_t dynamic_bytes = 0;
  size_t static_bytes = 0;
  std::vector<std::unique_ptr<SharedArray>> arrays;  // the first `used` belong to the launch
  size_t used = 0;
  std::vector<std::vector<PendingCopy>> copies;  // by thread
  std::vector<uint32_t> groups;                  // committed by each thread
};

SharedMemory& memory() {
  static SharedMemory state;
  return state;
}

[[noreturn]] void fail_access(const SharedArray& array, int64_t offset, const std::string& what) {
  const auto element = static_cast<int64_t>(array.element_bytes);
  const int64_t index = (offset - (offset < 0 ? element - 1 : 0)) / element;
  fail_thread(fmt::format("{}[{}]: {}", array.name, index, what));
}

void check_bounds(SharedArray* array, int64_t offset, size_t bytes, const char* doing) {
  if (array == nullptr) fail_thread(fmt::format("{} through a null pointer to shared memory", doing));
  if (offset >= 0 && static_cast<size_t>(offset) + bytes <= array->bytes) return;
  fail_access(*array, offset, fmt::format("{} of {} bytes outside the array of {} elements", doing, bytes, array->bytes / array->element_bytes));
}

std::byte* checked(SharedArray* array, int64_t offset, size_t bytes, Access access, const char* doing) {
  check_bounds(array, offset, bytes, doing);
  const Launch& launch = launch_state();
  if (!array->shadow.access(launch, access, static_cast<size_t>(offset), bytes)) {
    fail_access(*array, static_cast<int64_t>(array->shadow.wrong_offset()), array->shadow.complaint(launch, access));
  }
  return array->data + offset;
}

}  // namespace

void begin_launch_memory(size_t dynamic_bytes, unsigned threads) {
  SharedMemory& m = memory();
  m.dynamic_bytes = dynamic_bytes;
  m.used = 0;
  m.static_bytes = 0;
  if (m.copies.size() < threads) m.copies.resize(threads);
  m.groups.assign(std::max<size_t>(threads, m.groups.size()), 0);
}

void begin_block_memory() {
  SharedMemory& m = memory();
  for (std::vector<PendingCopy>& copies : m.copies) copies.clear();
}

SharedArray* shared_array(const void* site, const char* name, size_t element_bytes, size_t count) {
  SharedMemory& m = memory();
  for (size_t i = 0; i < m.used; ++i) {
    SharedArray& array = *m.arrays[i];
    if (array.site != site) continue;
    if (site == nullptr) array.shadow.refine(element_bytes);
    return &array;
  }
  if (m.used == m.arrays.size()) m.arrays.push_back(std::make_unique<SharedArray>());
  SharedArray& array = *m.arrays[m.used++];
  array.site = site;
  array.name = name;
  array.element_bytes = element_bytes;
  array.bytes = site == nullptr ? m.dynamic_bytes : element_bytes * count;
  if (site != nullptr) m.static_bytes += array.bytes;
  if (m.static_bytes > kStaticBytes || m.static_bytes + m.dynamic_bytes > kSharedBytes) {
    fail_thread(fmt::format("{} bytes of declared and {} of dynamic shared memory; a block has at most {} of the former and {} in all",
                            m.static_bytes, m.dynamic_bytes, kStaticBytes, kSharedBytes));
  }
  if (array.capacity < array.bytes) {
    array.capacity = array.bytes;
    array.storage = std::make_unique<std::byte[]>(array.capacity + 15);
    array.data = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(array.storage.get()) + 15) & ~uintptr_t{15});
  }
  array.shadow.resize(array.bytes, element_bytes);
  return &array;
}

std::byte* read_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, Access::kRead, "read"); }
std::byte* write_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, Access::kWrite, "write"); }
std::byte* update_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, Access::kUpdate, "atomic update"); }

void check_shared_alignment(SharedArray* array, int64_t offset, size_t bytes) {
  if (offset % static_cast<int64_t>(bytes) == 0) return;
  check_bounds(array, offset, bytes, "access");
  fail_access(*array, offset, fmt::format("access of {} bytes at byte {} of the array, which is no multiple", bytes, offset));
}

void copy_async(SharedArray* array, int64_t offset, const void* from) {
  check_shared_alignment(array, offset, 16);
  checked(array, offset, 16, Access::kCopy, "copy_async_16");
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) fail_thread("copy_async_16 from an address that is no multiple of 16");
  const unsigned thread = launch_state().thread().number;
  memory().copies[thread].push_back({array, offset, from, memory().groups[thread]});
}

void commit_copies() { ++memory().groups[launch_state().thread().number]; }

void wait_for_copies(unsigned pending) {
  const unsigned thread = launch_state().thread().number;
  std::vector<PendingCopy>& copies = memory().copies[thread];
  const uint32_t committed = memory().groups[thread];
  std::erase_if(copies, [&](const PendingCopy& copy) {
    if (copy.group + pending >= committed) return false;
    std::memcpy(copy.array->data + copy.offset, copy.from, 16);
    copy.array->shadow.land(static_cast<size_t>(copy.offset), 16);
    return true;
  });
}

}  // namespace tierpack::cuda_on_cpu
