#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
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

// One loop at a time. A loop is published by raising `generation`; helpers take indices from `next` until they run out
// and then report in `finished`. The fields of a loop are written only while every helper is parked.
struct ThreadTeam::State {
  std::vector<std::thread> helpers;
  std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> finished{0};
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  size_t count = 0;
  Call call = nullptr;
  void* context = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;

  void work(int thread) {
    try {
      for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) call(context, i, thread);
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }

  // Waits until `value` differs from `old`: spins for some microseconds, then sleeps.
  static void wait_while(std::atomic<uint32_t>& value, uint32_t old) {
    constexpr int kSpins = 2000;
    for (int i = 0; i < kSpins; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      relax();
    }
    value.wait(old, std::memory_order_acquire);
  }

  void helper_main(int thread) {
    for (uint32_t seen = 0;;) {
      wait_while(generation, seen);
      ++seen;
      if (stop.load()) return;
      work(thread);
      finished.fetch_add(1, std::memory_order_release);
      finished.notify_one();
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
  state.count = count;
  state.call = call;
  state.context = context;
  state.next.store(0);
  state.finished.store(0);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  state.work(0);
  const auto helpers = static_cast<uint32_t>(state.helpers.size());
  for (uint32_t done = state.finished.load(std::memory_order_acquire); done != helpers;
       done = state.finished.load(std::memory_order_acquire)) {
    State::wait_while(state.finished, done);
  }
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

}  // namespace tierpack
