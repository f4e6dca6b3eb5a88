#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tierpack {

namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// CPU bandwidth of the cgroup in cores, or a negative number if unlimited or unknown.
double cgroup_cores() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double us = 0;
  if (v1_quota >> us && v1_period >> period && us > 0 && period > 0) return us / period;
  return -1;
}

// How long a helper has had its core. Where another program wants the core too, the scheduler ends a slice in the middle of
// an index, and the whole team waits for it until the other program's slice is over. A helper that gives way between two
// indices, sooner than any scheduler would take the core away, leaves nothing to wait for. Without another program giving
// way is a system call that returns at once.
class TimeSlice {
 public:
  TimeSlice() { begin(); }
  void begin() { started_ = Clock::now(); }
  bool over() const { return Clock::now() - started_ > kSlice; }
  void give_way() {
    std::this_thread::yield();
    begin();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kSlice{1};
  Clock::time_point started_;
};

}  // namespace

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  // Hyper-threads of one core share its arithmetic units: count distinct (package, core) pairs.
  std::set<std::pair<int, int>> cores;
  int logical = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    ++logical;
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    int package = 0;
    int core = 0;
    if (std::ifstream(topology + "physical_package_id") >> package && std::ifstream(topology + "core_id") >> core) {
      cores.emplace(package, core);
    }
  }
  int count = cores.empty() ? logical : static_cast<int>(cores.size());
  const double quota = cgroup_cores();
  if (quota > 0) count = std::min(count, static_cast<int>(std::ceil(quota)));
  return std::max(count, 1);
}

// One loop at a time. `ticket` holds the loop's generation in its high and the next free index in its low half; an index is
// taken by raising the ticket, so whoever comes late, even by whole loops, takes nothing. The caller waits only for
// indices that were taken: a helper that sleeps or is not scheduled delays nobody.
//
// A loop's fields are written while its ticket is closed (no index can be taken) and are read between reading the ticket
// and raising it. Raising succeeds only on the value that was read, so the fields then belong to that loop: a reader that
// saw a later loop's field also sees the ticket closed after the earlier one.
struct ThreadTeam::State {
  static constexpr uint64_t kClosed = 0xFFFFFFFFu;  // low half: larger than any count

  std::vector<std::thread> helpers;
  std::atomic<uint64_t> ticket{kClosed};
  std::atomic<uint32_t> generation{0};  // helpers wait for it to change
  std::atomic<uint32_t> completed{0};   // indices of this loop that are done
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> count{0};
  std::atomic<Call> call{nullptr};
  std::atomic<void*> context{nullptr};
  std::mutex error_mutex;
  std::exception_ptr error;

  // `slice`: the helper's; null on the caller.
  void work(int thread, TimeSlice* slice) {
    uint32_t done = 0;
    for (uint64_t seen = ticket.load(std::memory_order_acquire);;) {
      const auto index = static_cast<uint32_t>(seen);
      const uint32_t end = count.load(std::memory_order_acquire);
      const Call body = call.load(std::memory_order_acquire);
      void* const argument = context.load(std::memory_order_acquire);
      if (index >= end) break;
      if (slice != nullptr && slice->over()) {
        complete(std::exchange(done, 0));
        slice->give_way();
        seen = ticket.load(std::memory_order_acquire);
        continue;
      }
      if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      ++seen;
      ++done;
      try {
        body(argument, index, thread);
      } catch (...) {
        {
          const std::lock_guard lock(error_mutex);
          if (!error) error = std::current_exception();
        }
        done += take_all_left(end);
        break;
      }
    }
    complete(done);
  }

  void complete(uint32_t done) {
    if (done == 0) return;
    completed.fetch_add(done, std::memory_order_acq_rel);
    completed.notify_one();
  }

  // Takes every index that is left of the running loop, which waits for one of ours and so cannot end meanwhile.
  uint32_t take_all_left(uint32_t end) {
    for (uint64_t seen = ticket.load(std::memory_order_acquire);;) {
      const auto index = static_cast<uint32_t>(seen);
      if (ticket.compare_exchange_weak(seen, seen - index + end, std::memory_order_acq_rel)) return end - index;
    }
  }

  // Waits until `value` differs from `old`: spins for some microseconds, then sleeps. Returns
  // whether it slept.
  static bool wait_while(std::atomic<uint32_t>& value, uint32_t old) {
    constexpr int kSpins = 2000;
    for (int i = 0; i < kSpins; ++i) {
      if (value.load(std::memory_order_acquire) != old) return false;
      relax();
    }
    value.wait(old, std::memory_order_acquire);
    return true;
  }

  void helper_main(int thread) {
    TimeSlice slice;
    for (uint32_t seen = 0;;) {
      if (wait_while(generation, seen)) slice.begin();
      seen = generation.load(std::memory_order_acquire);
      if (stop.load()) return;
      work(thread, &slice);
    }
  }
};

ThreadTeam::ThreadTeam(int threads) : state_(std::make_unique<State>()) {
  TIERPACK_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) {
    state_->helpers.emplace_back([state = state_.get(), i] { state->helper_main(i); });
  }
}

ThreadTeam::~ThreadTeam() {
  state_->stop.store(true);
  state_->generation.fetch_add(1);
  state_->generation.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
}

int ThreadTeam::size() const { return static_cast<int>(state_->helpers.size()) + 1; }

void ThreadTeam::run(size_t count, Call call, void* context) {
  State& state = *state_;
  if (state.helpers.empty() || count <= 1) {
    for (size_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  TIERPACK_CHECK(count < State::kClosed);
  const auto items = static_cast<uint32_t>(count);
  const uint32_t next = state.generation.load(std::memory_order_relaxed) + 1;
  state.completed.store(0, std::memory_order_release);
  state.count.store(items, std::memory_order_release);
  state.call.store(call, std::memory_order_release);
  state.context.store(context, std::memory_order_release);
  state.ticket.store(uint64_t{next} << 32, std::memory_order_release);
  state.generation.store(next, std::memory_order_release);
  state.generation.notify_all();
  state.work(0, nullptr);
  for (uint32_t done = state.completed.load(std::memory_order_acquire); done != items;
       done = state.completed.load(std::memory_order_acquire)) {
    State::wait_while(state.completed, done);
  }
  state.ticket.store(uint64_t{next} << 32 | State::kClosed, std::memory_order_release);
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

}  // namespace tierpack
