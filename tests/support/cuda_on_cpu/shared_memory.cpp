#include "tests/support/cuda_on_cpu/shared_memory.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "tests/support/cuda_on_cpu/block_run.h"

namespace tierpack::cuda_on_cpu {

struct SharedArray {
  const void* site = nullptr;
  const char* name = "";
  size_t element_bytes = 1;
  size_t bytes = 0;
  std::unique_ptr<std::byte[]> storage;
  std::byte* data = nullptr;  // 16-byte aligned
};

namespace {

struct PendingCopy {
  SharedArray* array;
  int64_t offset;
  const void* from;
  uint32_t group;
};

struct SharedMemory {
  size_t dynamic_bytes = 0;
  std::vector<std::unique_ptr<SharedArray>> arrays;
  std::vector<std::vector<PendingCopy>> copies;  // by thread
  std::vector<uint32_t> groups;                  // committed by each thread
};

SharedMemory& memory() {
  static SharedMemory state;
  return state;
}

std::byte* checked(SharedArray* array, int64_t offset, size_t bytes, const char* doing) {
  if (array == nullptr) fail_thread(fmt::format("{} through a null pointer to shared memory", doing));
  if (offset < 0 || static_cast<size_t>(offset) + bytes > array->bytes) {
    const auto element = static_cast<int64_t>(array->element_bytes);
    fail_thread(fmt::format("{} of {} bytes at {}[{}], which has {} elements", doing, bytes, array->name,
                            (offset - (offset < 0 ? element - 1 : 0)) / element, array->bytes / array->element_bytes));
  }
  return array->data + offset;
}

}  // namespace

void begin_launch_memory(size_t dynamic_bytes, unsigned threads) {
  SharedMemory& m = memory();
  m.dynamic_bytes = dynamic_bytes;
  m.arrays.clear();
  if (m.copies.size() < threads) m.copies.resize(threads);
  m.groups.assign(std::max<size_t>(threads, m.groups.size()), 0);
}

void begin_block_memory() {
  SharedMemory& m = memory();
  for (std::vector<PendingCopy>& copies : m.copies) copies.clear();
}

SharedArray* shared_array(const void* site, const char* name, size_t element_bytes, size_t count) {
  SharedMemory& m = memory();
  for (const auto& array : m.arrays) {
    if (array->site == site) return array.get();
  }
  auto array = std::make_unique<SharedArray>();
  array->site = site;
  array->name = name;
  array->element_bytes = element_bytes;
  array->bytes = site == nullptr ? m.dynamic_bytes : element_bytes * count;
  array->storage = std::make_unique<std::byte[]>(array->bytes + 15);
  array->data = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(array->storage.get()) + 15) & ~uintptr_t{15});
  m.arrays.push_back(std::move(array));
  return m.arrays.back().get();
}

std::byte* read_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, "read"); }
std::byte* write_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, "write"); }
std::byte* update_shared(SharedArray* array, int64_t offset, size_t bytes) { return checked(array, offset, bytes, "atomic update"); }

void check_shared_alignment(SharedArray* array, int64_t offset, size_t bytes) {
  if (offset % static_cast<int64_t>(bytes) == 0) return;
  checked(array, offset, bytes, "access");
  fail_thread(fmt::format("access of {} bytes at byte {} of {}, which is not a multiple", bytes, offset, array->name));
}

void copy_async(SharedArray* array, int64_t offset, const void* from) {
  check_shared_alignment(array, offset, 16);
  checked(array, offset, 16, "copy_async_16");
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
    return true;
  });
}

}  // namespace tierpack::cuda_on_cpu
