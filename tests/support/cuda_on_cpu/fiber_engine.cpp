#include "tests/support/cuda_on_cpu/fiber_engine.h"

#include <bit>
#include <utility>

#include <boost/context/protected_fixedsize_stack.hpp>
#include <fmt/core.h>

#include "base/error.h"
#include "tests/support/cuda_on_cpu/block_run.h"

namespace tierpack::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 128u << 10;
constexpr unsigned kBlockThreads = 1024;
constexpr size_t kSharedBytes = 64u << 10;  // what every supported architecture has for a block

}  // namespace

Current current;

Launch& launch_state() {
  static Launch launch;
  return launch;
}

void run_threads(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure) {
  launch_state().run(what, grid, block, shared_bytes, function, closure);
}
void barrier() { launch_state().wait_at_barrier(); }
void collective(Collective kind, uint32_t mask, Exchange& exchange) { launch_state().meet(kind, mask, exchange); }

void fail_thread(const std::string& message) {
  Launch& launch = launch_state();
  fail(ErrorKind::kCuda, "{}, thread {}: {}", launch.place(), launch.thread().number, message);
}

std::string Launch::place() const {
  return fmt::format("kernel {}, block ({}, {}, {})", what_, current.block.x, current.block.y, current.block.z);
}

uint32_t Launch::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_;
}

void Launch::run(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure) {
  TIERPACK_CHECK(!running_);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kBlockThreads || block.z > 64) {
    fail(ErrorKind::kCuda, "kernel {}: {} x {} x {} threads a block", what, block.x, block.y, block.z);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
    fail(ErrorKind::kCuda, "kernel {}: a grid of {} x {} x {} blocks", what, grid.x, grid.y, grid.z);
  }
  if (shared_bytes > kSharedBytes) {
    fail(ErrorKind::kCuda, "kernel {}: {} bytes of dynamic shared memory, {} are there", what, shared_bytes, kSharedBytes);
  }
  what_ = what;
  function_ = function;
  closure_ = closure;
  dynamic_bytes_ = shared_bytes;
  count_ = static_cast<unsigned>(threads);
  random_ = ++launches_ * 2654435761u | 1u;
  current.block_size = block;
  current.grid_size = grid;
  threads_.assign(count_, {});
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].number = i;
    threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  }
  warps_.assign((count_ + kWarpLanes - 1) / kWarpLanes, {});
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min(count_ - w * kWarpLanes, kWarpLanes);
    warps_[w].lanes = lanes == kWarpLanes ? UINT32_MAX : (1u << lanes) - 1;
  }
  begin_launch_memory(shared_bytes, count_);
  running_ = true;
  try {
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          current.block = {x, y, z};
          run_block();
        }
      }
    }
  } catch (...) {
    running_ = false;
    throw;
  }
  running_ = false;
}

void Launch::run_block() {
  begin_block_memory();
  for (Thread& thread : threads_) {
    thread.finished = false;
    thread.waiting = Waiting::kNo;
  }
  for (Warp& warp : warps_) {
    warp.ready = warp.lanes;
    warp.open = 0;
  }
  ready_warps_ = warps_.size() == 32 ? UINT32_MAX : (1u << warps_.size()) - 1;
  unfinished_ = count_;
  at_barrier_ = 0;
  warp_ = random() % static_cast<unsigned>(warps_.size());
  failure_ = nullptr;
  Worker* const worker = idle_worker();
  worker->first = next();
  switch_to(main_, *worker);
  if (failure_ == nullptr && unfinished_ > 0) {
    failure_ = std::make_exception_ptr(Error(ErrorKind::kCuda, describe_stop()));
  }
  if (failure_ != nullptr) {
    abandon();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

// A thread that can run, of the warp that ran last if it has one; null when there is none.
Thread* Launch::next() {
  if (ready_warps_ == 0) return nullptr;
  if (warps_[warp_].ready == 0) {
    const unsigned turn = random() % 32;
    warp_ = (static_cast<unsigned>(std::countr_zero(std::rotr(ready_warps_, static_cast<int>(turn)))) + turn) % 32;
  }
  Warp& warp = warps_[warp_];
  const unsigned turn = random() % 32;
  const unsigned lane = (static_cast<unsigned>(std::countr_zero(std::rotr(warp.ready, static_cast<int>(turn)))) + turn) % 32;
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << warp_);
  thread_ = &threads_[warp_ * kWarpLanes + lane];
  current.thread = thread_->index;
  return thread_;
}

// The running thread gives way until it is chosen again.
void Launch::suspend() {
  Thread& self = *thread_;
  Thread* const chosen = next();
  if (chosen == &self) return;
  Worker* to = &main_;
  if (chosen != nullptr) {
    to = chosen->worker;
    if (to == nullptr) {
      to = idle_worker();
      to->first = chosen;
    }
  }
  switch_to(*self.worker, *to);
  if (abandoning_) throw Abandoned();
}

void Launch::switch_to(Worker& from, Worker& to) {
  from_ = &from;
  boost::context::fiber back = std::move(to.fiber).resume();
  from_->fiber = std::move(back);
}

Worker* Launch::idle_worker() {
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Worker>());
    Worker* const made = workers_.back().get();
    made->fiber = boost::context::fiber(std::allocator_arg, boost::context::protected_fixedsize_stack(kStackBytes),
                                        [this, made](boost::context::fiber&& back) {
                                          from_->fiber = std::move(back);
                                          work(*made);
                                          return std::move(main_.fiber);
                                        });
    return made;
  }
  Worker* const worker = idle_.back();
  idle_.pop_back();
  return worker;
}

void Launch::work(Worker& self) {
  for (;;) {
    Thread* thread = self.first;
    Worker* to = &main_;
    while (thread != nullptr) {
      if (thread->worker != nullptr) {
        to = thread->worker;
        break;
      }
      run_thread(self, *thread);
      thread = failure_ != nullptr || abandoning_ ? nullptr : next();
    }
    idle_.push_back(&self);
    switch_to(self, *to);
  }
}

void Launch::run_thread(Worker& self, Thread& thread) {
  thread.worker = &self;
  try {
    function_(closure_);
    thread.finished = true;
    --unfinished_;
  } catch (const Abandoned&) {
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
  thread.worker = nullptr;
}

// Unwinds every thread that waits.
void Launch::abandon() {
  abandoning_ = true;
  for (Thread& thread : threads_) {
    if (thread.worker != nullptr) switch_to(main_, *thread.worker);
  }
  abandoning_ = false;
}

void Launch::wait_at_barrier() {
  Thread& self = *thread_;
  if (++at_barrier_ < count_) {
    self.waiting = Waiting::kBarrier;
    suspend();
    return;
  }
  at_barrier_ = 0;
  for (Thread& thread : threads_) thread.waiting = Waiting::kNo;
  for (Warp& warp : warps_) warp.ready = warp.lanes;
  ready_warps_ = warps_.size() == 32 ? UINT32_MAX : (1u << warps_.size()) - 1;
  suspend();
}

void Launch::meet(Collective kind, uint32_t mask, Exchange& exchange) {
  Thread& self = *thread_;
  const unsigned w = self.number / kWarpLanes, bit = 1u << self.number % kWarpLanes;
  Warp& warp = warps_[w];
  if ((mask & bit) == 0) fail_thread(fmt::format("{} with mask {:#010x}, which leaves out the calling lane {}", name_of(kind), mask, self.number % kWarpLanes));
  if ((mask & ~warp.lanes) != 0) {
    fail_thread(fmt::format("{} with mask {:#010x}, but the lanes of warp {} are {:#010x}", name_of(kind), mask, w, warp.lanes));
  }
  self.kind = kind;
  self.mask = mask;
  self.exchange = &exchange;
  Meeting* meeting = nullptr;
  for (unsigned i = 0; i < warp.open && meeting == nullptr; ++i) {
    if (warp.meetings[i].mask == mask) meeting = &warp.meetings[i];
  }
  if (meeting == nullptr) {
    meeting = &warp.meetings[warp.open++];
    *meeting = {mask, 0, kind};
  }
  if (meeting->kind != kind) {
    fail_thread(fmt::format("{} with mask {:#010x}, while lanes {:#010x} of warp {} are in {} with the same mask", name_of(kind), mask,
                            meeting->arrived, w, name_of(meeting->kind)));
  }
  meeting->arrived |= bit;
  if (meeting->arrived != mask) {
    self.waiting = Waiting::kCollective;
    suspend();
    return;
  }
  const Meeting complete_one = *meeting;
  *meeting = warp.meetings[--warp.open];
  complete(warp, w * kWarpLanes, complete_one);
  suspend();
}

void Launch::complete(Warp& warp, unsigned first_number, const Meeting& meeting) {
  Exchange* lanes[kWarpLanes] = {};
  for (uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    Thread& thread = threads_[first_number + lane];
    lanes[lane] = thread.exchange;
    thread.waiting = Waiting::kNo;
  }
  exchange_values(meeting.kind, meeting.mask, lanes);
  warp.ready |= meeting.mask;
  ready_warps_ |= 1u << first_number / kWarpLanes;
}

std::string Launch::describe_stop() const {
  std::string groups;
  unsigned first = 0;
  const auto text = [](const Thread& t) -> std::string {
    if (t.finished) return "returned";
    if (t.waiting == Waiting::kBarrier) return "wait at __syncthreads";
    return fmt::format("wait in {} with mask {:#010x}", name_of(t.kind), t.mask);
  };
  for (unsigned i = 1; i <= count_; ++i) {
    const std::string before = text(threads_[first]);
    if (i < count_ && text(threads_[i]) == before) continue;
    groups += fmt::format("{}threads {}-{} {}", groups.empty() ? "" : ", ", first, i - 1, before);
    first = i;
  }
  return fmt::format("{} cannot go on: {}", place(), groups);
}

}  // namespace tierpack::cuda_on_cpu
