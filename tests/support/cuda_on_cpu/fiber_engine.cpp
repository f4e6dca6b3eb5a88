#include "tests/support/cuda_on_cpu/fiber_engine.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <boost/context/protected_fixedsize_stack.hpp>
#include <fmt/core.h>

#include "base/error.h"
#include "tests/support/cuda_on_cpu/block_run.h"
#include "tests/support/cuda_on_cpu/device_memory.h"

namespace tierpack::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 128u << 10;
constexpr size_t kPageBytes = 4096;
constexpr size_t kStackShiftBytes = 13 * 64;
constexpr unsigned kBlockThreads = 1024;

}  // namespace

Current current;

void run_threads(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure) {
  launch_state().run(what, grid, block, shared_bytes, function, closure);
}
void seed_order(uint32_t seed) { launch_state().seed_order(seed); }
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

Launch::~Launch() {
  ending_ = true;
  trace_thread(main_.trace);
  for (const std::unique_ptr<Worker>& worker : workers_) switch_to(main_, *worker);
}

void Launch::run(const char* what, dim3 grid, dim3 block, size_t shared_bytes, ThreadFunction function, const void* closure) {
  TIERPACK_CHECK(!running_);
  explain_faults();
  trace_thread(main_.trace);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kBlockThreads || block.z > 64) {
    fail(ErrorKind::kCuda, "kernel {}: {} x {} x {} threads a block", what, block.x, block.y, block.z);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
    fail(ErrorKind::kCuda, "kernel {}: a grid of {} x {} x {} blocks", what, grid.x, grid.y, grid.z);
  }
  what_ = what;
  function_ = function;
  closure_ = closure;
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
  runner_ = std::this_thread::get_id();
  running_ = true;
  try {
    // Every block once, in steps that share no divisor with their number.
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    uint64_t step = random() % blocks + 1;
    while (std::gcd(step, blocks) != 1) ++step;
    uint64_t block_number = random() % blocks;
    for (uint64_t i = 0; i < blocks; ++i) {
      current.block = {static_cast<unsigned>(block_number % grid.x), static_cast<unsigned>(block_number / grid.x % grid.y),
                       static_cast<unsigned>(block_number / grid.x / grid.y)};
      run_block();
      block_number = (block_number + step) % blocks;
    }
  } catch (...) {
    running_ = false;
    throw;
  }
  running_ = false;
}

void Launch::begin_epoch() {
  TIERPACK_CHECK(++epoch_ != 0);
}

void Launch::run_block() {
  begin_epoch();
  block_epoch_ = epoch_;
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
  warp_number_ = random() % static_cast<unsigned>(warps_.size());
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
  if (warps_[warp_number_].ready == 0) {
    const unsigned turn = random() % 32;
    warp_number_ = (static_cast<unsigned>(std::countr_zero(std::rotr(ready_warps_, static_cast<int>(turn)))) + turn) % 32;
  }
  Warp& warp = warps_[warp_number_];
  const unsigned turn = random() % 32;
  const unsigned lane = (static_cast<unsigned>(std::countr_zero(std::rotr(warp.ready, static_cast<int>(turn)))) + turn) % 32;
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << warp_number_);
  thread_ = &threads_[warp_number_ * kWarpLanes + lane];
  current.thread = thread_->index;
  current.now = {epoch_, warp.full, thread_->time, static_cast<uint16_t>(thread_->number), false, false};
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
  trace_switch(from.trace, to.trace);
  boost::context::fiber back = std::move(to.fiber).resume();
  trace_arrival(from.trace, from_->trace);
  from_->fiber = std::move(back);
}

Worker* Launch::idle_worker() {
  if (idle_.empty()) return make_worker();
  Worker* const worker = idle_.back();
  idle_.pop_back();
  return worker;
}

Worker* Launch::make_worker() {
  workers_.push_back(std::make_unique<Worker>());
  Worker* const made = workers_.back().get();
  boost::context::protected_fixedsize_stack allocator(kStackBytes);
  const boost::context::stack_context stack = allocator.allocate();
  // Stacks that all began at the same place of a page would share few lines of the caches.
  const size_t shift = workers_.size() * kStackShiftBytes % kPageBytes;
  trace_new_fiber(made->trace, static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
  const boost::context::preallocated place(static_cast<std::byte*>(stack.sp) - shift, stack.size - shift, stack);
  made->fiber = boost::context::fiber(std::allocator_arg, place, allocator, [this, made](boost::context::fiber&& back) {
    trace_arrival(made->trace, from_->trace);
    from_->fiber = std::move(back);
    work(*made);
    from_ = made;
    trace_switch(made->trace, main_.trace);
    return std::move(main_.fiber);
  });
  return made;
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
    if (ending_) return;
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

void Launch::give_up(const std::string& message) {
  failure_ = std::make_exception_ptr(Error(ErrorKind::kCuda, message));
  Worker* const self = std::exchange(thread_->worker, nullptr);
  for (std::unique_ptr<Worker>& worker : workers_) {
    if (worker.get() == self) static_cast<void>(worker.release());  // its stack cannot be unwound
  }
  std::erase(workers_, nullptr);
  switch_to(*self, main_);
  std::abort();
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
  begin_epoch();
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
  advance(warp, first_number, meeting.mask);
  warp.ready |= meeting.mask;
  ready_warps_ |= 1u << first_number / kWarpLanes;
}

// After a collective each of its lanes knows what any of them knew, and that all before it is over.
void Launch::advance(Warp& warp, unsigned first_number, uint32_t mask) {
  if (mask == warp.lanes) {
    ++warp.full;
    warp.partial = false;
    return;
  }
  warp.partial = true;
  uint32_t known[kWarpLanes] = {};
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    for (unsigned other = 0; other < kWarpLanes; ++other) known[other] = std::max(known[other], warp.known[lane][other]);
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    known[lane] = ++threads_[first_number + lane].time;
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    std::copy(std::begin(known), std::end(known), warp.known[std::countr_zero(rest)]);
  }
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
