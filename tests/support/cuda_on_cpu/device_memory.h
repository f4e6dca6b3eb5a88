// Device memory of the emulator: host memory between pages that may not be touched. A kernel that runs over the end of a buffer, or
// into one that is freed, ends the program with a sentence that names the kernel, its thread and the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tierpack::cuda_on_cpu {

std::byte* allocate_device_memory(uint64_t bytes);  // throws kCapacity
void free_device_memory(std::byte* memory);
uint64_t device_memory_bytes();
uint64_t unused_device_memory_bytes();

// While one lives, device memory may be touched: work of a stream runs. Otherwise the host that does so ends the program like a kernel
// that runs over an end. With many buffers only some of the times between, because protecting them takes long.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Host memory that kernels may read.
void add_pinned_memory(const std::byte* memory, uint64_t bytes);
void remove_pinned_memory(const std::byte* memory);

// Throw kCuda unless the range lies in one buffer of device memory; `what` begins the message.
void check_device_range(const char* what, const void* address, uint64_t bytes);
// Throws kCuda unless a kernel may be given this address: null, pinned, inside device memory or one past its end.
void check_kernel_address(const char* what, size_t argument, const void* address);

// The pointers among the arguments of a kernel.
template <typename... Arguments>
void check_arguments(const char* what, const Arguments&... arguments) {
  size_t number = 0;
  const auto check = [&](const auto& argument) {
    ++number;
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>) check_kernel_address(what, number, argument);
  };
  (check(arguments), ...);
}

// From now on a fault in this thread is explained before it ends the program.
void explain_faults();

}  // namespace tierpack::cuda_on_cpu
