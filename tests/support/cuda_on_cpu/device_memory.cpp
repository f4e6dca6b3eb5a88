#include "tests/support/cuda_on_cpu/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <fmt/core.h>

#include "base/error.h"
#include "tests/support/cuda_on_cpu/block_run.h"

namespace tierpack::cuda_on_cpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMemoryBytes = uint64_t{8} << 30;
constexpr uint64_t kFilledBytes = uint64_t{64} << 20;  // of a buffer get a pattern: NaN as floats, -1 as integers
constexpr size_t kFewBuffers = 32;                     // are protected from the host whenever no work runs
constexpr uint32_t kManyPeriod = 64;                   // more than those once in so many times
constexpr size_t kKeptRanges = 256;                    // of freed buffers stay reserved, so that stale addresses fault

struct Buffer {
  uint64_t bytes = 0;
  std::byte* map = nullptr;
  uint64_t map_bytes = 0;  // with a page at each end that stays protected
  bool touchable = true;
};
using Buffers = std::map<uintptr_t, Buffer>;

struct DeviceMemory {
  std::mutex lock;
  Buffers buffers;
  Buffers pinned;
  std::deque<std::pair<uintptr_t, Buffer>> freed;
  uint64_t used_bytes = 0;
  bool open = false;    // work runs
  uint32_t turns = 0;   // ends of work so far
};

void protect(const Buffer& buffer, int protection) {
  TIERPACK_CHECK(::mprotect(buffer.map + kPage, buffer.map_bytes - 2 * kPage, protection) == 0);
}

DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

// The buffer that begins at the address or last before it.
const Buffers::value_type* buffer_before(const Buffers& buffers, uintptr_t address) {
  const auto behind = buffers.upper_bound(address);
  return behind == buffers.begin() ? nullptr : &*std::prev(behind);
}

bool inside(const Buffers& buffers, uintptr_t address, uint64_t bytes) {
  const auto* const found = buffer_before(buffers, address);
  return found != nullptr && address - found->first <= found->second.bytes && bytes <= found->second.bytes - (address - found->first);
}

std::string describe(uintptr_t address) {
  const DeviceMemory& memory = device_memory();
  for (const auto& [start, buffer] : memory.freed) {
    if (address - start < buffer.bytes) return fmt::format("byte {} of a freed buffer of {} bytes", address - start, buffer.bytes);
  }
  for (const auto& [start, buffer] : memory.buffers) {
    const auto map = reinterpret_cast<uintptr_t>(buffer.map);
    if (address < map || address >= map + buffer.map_bytes) continue;
    if (address - start < buffer.bytes) return fmt::format("byte {} of a buffer of {} bytes", address - start, buffer.bytes);
    if (address < start) return fmt::format("{} bytes before a buffer of {} bytes", start - address, buffer.bytes);
    return fmt::format("{} bytes behind a buffer of {} bytes", address - start - buffer.bytes, buffer.bytes);
  }
  return fmt::format("{:#x}, no address of device memory", address);
}

void explain(int number, siginfo_t* info, void*) {
  Launch& launch = launch_state();
  const std::string address = describe(reinterpret_cast<uintptr_t>(info->si_addr));
  const std::string text = launch.running_here() ? fmt::format("cuda_on_cpu: {}, thread {} touches {}\n", launch.place(), launch.thread().number, address)
                                            : fmt::format("cuda_on_cpu: the host, or a copy of a stream, touches {}\n", address);
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  ::signal(number, SIG_DFL);  // the instruction is run again
}

}  // namespace

std::byte* allocate_device_memory(uint64_t bytes) {
  explain_faults();
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  // The end is as near to the last page as alignment allows: 256 bytes for multiples of that and else 16.
  const uint64_t alignment = bytes % 256 == 0 ? 256 : 16, aligned = (bytes + alignment - 1) / alignment * alignment;
  const uint64_t body = (aligned + kPage - 1) / kPage * kPage;
  Buffer buffer{bytes, nullptr, body + 2 * kPage, true};
  void* const map = bytes > kMemoryBytes - memory.used_bytes
                        ? MAP_FAILED
                        : ::mmap(nullptr, buffer.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || ::mprotect(static_cast<std::byte*>(map) + kPage, body, PROT_READ | PROT_WRITE) != 0) {
    fail(ErrorKind::kCapacity, "cannot allocate {} bytes of GPU memory", bytes);
  }
  buffer.map = static_cast<std::byte*>(map);
  std::byte* const start = buffer.map + kPage + body - aligned;
  std::memset(start, 0xFF, std::min(aligned, kFilledBytes));
  memory.used_bytes += bytes;
  if (!memory.open) {
    protect(buffer, PROT_NONE);
    buffer.touchable = false;
  }
  memory.buffers.emplace(reinterpret_cast<uintptr_t>(start), buffer);
  return start;
}

void free_device_memory(std::byte* start) {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  const auto found = memory.buffers.find(reinterpret_cast<uintptr_t>(start));
  if (found == memory.buffers.end()) return;
  const Buffer buffer = found->second;
  memory.used_bytes -= buffer.bytes;
  // Gives the pages back and keeps the addresses.
  static_cast<void>(::mmap(buffer.map, buffer.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
  memory.freed.emplace_back(found->first, buffer);
  memory.buffers.erase(found);
  if (memory.freed.size() <= kKeptRanges) return;
  ::munmap(memory.freed.front().second.map, memory.freed.front().second.map_bytes);
  memory.freed.pop_front();
}

DeviceAccess::DeviceAccess() {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  memory.open = true;
  for (auto& [start, buffer] : memory.buffers) {
    if (buffer.touchable) continue;
    protect(buffer, PROT_READ | PROT_WRITE);
    buffer.touchable = true;
  }
}

DeviceAccess::~DeviceAccess() {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  memory.open = false;
  if (memory.buffers.size() > kFewBuffers && ++memory.turns % kManyPeriod != 0) return;
  for (auto& [start, buffer] : memory.buffers) {
    protect(buffer, PROT_NONE);
    buffer.touchable = false;
  }
}

uint64_t device_memory_bytes() { return kMemoryBytes; }

uint64_t unused_device_memory_bytes() {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  return kMemoryBytes - memory.used_bytes;
}

void add_pinned_memory(const std::byte* start, uint64_t bytes) {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  memory.pinned.emplace(reinterpret_cast<uintptr_t>(start), Buffer{bytes});
}

void remove_pinned_memory(const std::byte* start) {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  memory.pinned.erase(reinterpret_cast<uintptr_t>(start));
}

void check_device_range(const char* what, const void* address, uint64_t bytes) {
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (inside(memory.buffers, start, bytes)) return;
  fail(ErrorKind::kCuda, "{} of {} bytes at {:#x}, which do not lie in one buffer of device memory", what, bytes, start);
}

void check_kernel_address(const char* what, size_t argument, const void* address) {
  if (address == nullptr) return;
  DeviceMemory& memory = device_memory();
  const std::lock_guard guard(memory.lock);
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (inside(memory.buffers, start, 0) || inside(memory.pinned, start, 0)) return;
  fail(ErrorKind::kCuda, "kernel {}: argument {} is {:#x}, no address of device memory", what, argument, start);
}

void explain_faults() {
  // Fibers run over their stacks' ends too, so the handler has a stack of its own.
  constexpr size_t kStackBytes = 64u << 10;
  thread_local std::unique_ptr<std::byte[]> stack;
  if (stack != nullptr) return;
  stack = std::make_unique<std::byte[]>(kStackBytes);
  stack_t alternative{};
  alternative.ss_sp = stack.get();
  alternative.ss_size = kStackBytes;
  TIERPACK_CHECK(::sigaltstack(&alternative, nullptr) == 0);
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  TIERPACK_CHECK(::sigaction(SIGSEGV, &action, nullptr) == 0 && ::sigaction(SIGBUS, &action, nullptr) == 0);
}

}  // namespace tierpack::cuda_on_cpu
