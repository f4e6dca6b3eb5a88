// The state of the launch that runs now, shared by the files of the emulator: threads of the block, warps, workers, stacks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/context/fiber.hpp>

#include "tests/support/cuda_on_cpu/fiber_engine.h"
#include "tests/support/cuda_on_cpu/fiber_sanitizers.h"

namespace tierpack::cuda_on_cpu {

inline constexpr unsigned kWarpLanes = 32;

struct Thread;

// A fiber with its stack. It runs threads of blocks, the next in the same fiber unless one waits inside it.
struct Worker {
  boost::context::fiber fiber;  // while it is not running
  FiberTrace trace;
  Thread* first = nullptr;      // to begin with when it is resumed from idleness
};

enum class Waiting : uint8_t { kNo, kBarrier, kCollective };

struct Thread {
  uint3 index{};
  unsigned number = 0;       // in the block
  Worker* worker = nullptr;  // while it is begun and not finished
  bool finished = false;
  Waiting waiting = Waiting::kNo;
  Collective kind{};
  uint32_t mask = 0;
  Exchange* exchange = nullptr;
  uint32_t time = 0;  // collectives of some lanes of the warp so far
};

// Lanes that have arrived at one collective.
struct Meeting {
  uint32_t mask = 0;
  uint32_t arrived = 0;
  Collective kind{};
};

struct Warp {
  uint32_t ready = 0;  // lanes that can run
  uint32_t lanes = 0;  // that exist
  unsigned open = 0;   // meetings
  Meeting meetings[kWarpLanes];
  uint32_t full = 0;     // collectives of all lanes so far
  bool partial = false;  // one of some lanes has followed the last of those
  uint32_t known[kWarpLanes][kWarpLanes] = {};  // [a][b]: the last time of lane b that lane a knows to be over
};

class Launch {
 public:
  Launch() = default;
  ~Launch();
  void run(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure);
  void wait_at_barrier();
  void meet(Collective kind, uint32_t mask, Exchange& exchange);
  // Ends the launch from within the running thread where an exception cannot.
  [[noreturn]] void give_up(const std::string& message);
  Thread& thread() { return *thread_; }
  // Of the running block, "kernel NAME, block (x, y, z)".
  std::string place() const;
  const Warp& warp(unsigned thread) const { return warps_[thread / kWarpLanes]; }
  // Epochs count barriers and blocks; this is the one that the block began with.
  uint32_t block_epoch() const { return block_epoch_; }
  bool running() const { return running_; }
  // Whether the calling thread runs it.
  bool running_here() const { return running_ && runner_ == std::this_thread::get_id(); }
  void seed_order(uint32_t seed) { launches_ = seed; }

 private:
  struct Abandoned {};

  void run_block();
  Thread* next();
  void suspend();
  void switch_to(Worker& from, Worker& to);
  Worker* idle_worker();
  Worker* make_worker();
  void work(Worker& self);
  void run_thread(Worker& self, Thread& thread);
  void complete(Warp& warp, unsigned first_number, const Meeting& meeting);
  void advance(Warp& warp, unsigned first_number, uint32_t mask);
  void begin_epoch();
  void abandon();
  std::string describe_stop() const;
  uint32_t random();

  const char* what_ = "";
  ThreadFunction function_ = nullptr;
  const void* closure_ = nullptr;
  uint32_t epoch_ = 0;
  uint32_t block_epoch_ = 0;
  unsigned count_ = 0;      // threads of a block
  unsigned unfinished_ = 0;
  unsigned at_barrier_ = 0;
  uint32_t ready_warps_ = 0;
  unsigned warp_number_ = 0;  // that ran last
  uint32_t random_ = 1;
  std::atomic<uint32_t> launches_ = 0;
  bool running_ = false;
  std::thread::id runner_;
  bool abandoning_ = false;
  bool ending_ = false;
  std::exception_ptr failure_;
  Thread* thread_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Worker main_;
  Worker* from_ = nullptr;  // the worker that switched last
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
};

inline Launch& launch_state() {
  static Launch launch;
  return launch;
}

// What a warp computes together once all lanes of `mask` have arrived; lanes[l] belongs to lane l. Throws through fail_thread.
void exchange_values(Collective kind, uint32_t mask, Exchange* const (&lanes)[kWarpLanes]);
const char* name_of(Collective kind);

// Shared memory: a new launch, a new block.
void begin_launch_memory(size_t dynamic_bytes, unsigned threads);
void begin_block_memory();

}  // namespace tierpack::cuda_on_cpu
