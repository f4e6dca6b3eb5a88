// Runs the threads of a kernel as fibers, one block after the other, on the calling thread. A thread gives way only where it waits
// for others: at a barrier or a collective of its warp. Which thread goes on is drawn from a seeded generator.
//
// A block that cannot go on, lanes of a warp in different collectives and every other misuse end the launch with an exception that
// names kernel, block and threads. One launch at a time: the queues of device_on_cpu.cpp hold a lock around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/support/cuda_on_cpu/device_values.h"

namespace tierpack::cuda_on_cpu {

// An access to shared memory, or when it would be now: by whom, after how many barriers and collectives (shared_shadow.h).
struct Stamp {
  uint32_t epoch = 0;  // 0: no access
  uint32_t full = 0;   // collectives of the whole warp before it
  uint32_t time = 0;   // other collectives of the thread before it
  uint16_t thread = 0;
  bool atomic = false;
  bool pending = false;  // a write by copy_async_16 that no one has waited for
  bool others_too = false;
};

// What threadIdx and its like read: of the thread that runs now.
struct Current {
  Stamp now;
  uint3 thread{};
  uint3 block{};
  dim3 block_size;
  dim3 grid_size;
};
extern Current current;

enum class Collective : uint8_t { kSyncWarp, kShuffle, kShuffleXor, kShuffleUp, kShuffleDown, kBallot, kAny, kAll, kMma };

// What one lane brings to a collective, and takes away in `value`.
struct Exchange {
  uint64_t value = 0;
  int argument = 0;            // source lane, lane mask or distance
  int width = 32;              // lanes that exchange among themselves
  int32_t* d = nullptr;        // of kMma: 4 sums, in place
  const uint32_t* a = nullptr;  // argument / 8 registers
  const uint32_t* b = nullptr;  // argument / 16
};

// Waits for all lanes of `mask` and exchanges.
void collective(Collective kind, uint32_t mask, Exchange& exchange);
// __syncthreads
void barrier();

// Ends the launch with an error: "kernel NAME, block (x, y, z), thread N: MESSAGE".
[[noreturn]] void fail_thread(const std::string& message);

// The order in which threads and blocks run is another for every launch, the same for the same seed.
void seed_order(uint32_t seed);

using ThreadFunction = void (*)(const void* closure);
void run_threads(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure);

template <typename Function>
void run_grid(const char* what, dim3 grid, dim3 block, size_t shared_bytes, const Function& function) {
  run_threads(what, grid, block, shared_bytes, [](const void* closure) { (*static_cast<const Function*>(closure))(); }, &function);
}

}  // namespace tierpack::cuda_on_cpu

#define threadIdx (::tierpack::cuda_on_cpu::current.thread)
#define blockIdx (::tierpack::cuda_on_cpu::current.block)
#define blockDim (::tierpack::cuda_on_cpu::current.block_size)
#define gridDim (::tierpack::cuda_on_cpu::current.grid_size)
