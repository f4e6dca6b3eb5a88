// Streams through several sequences at once with a team of threads: the chunks of one lane are worked on in parallel and
// then take turns in order, which is what hashing a file while doing something else with its bytes needs.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "base/interrupt.h"
#include "base/threads.h"

namespace tierpack::verify {

// For lane l in [0, counts.size()) and chunk c in [0, counts[l]): calls work(l, c, thread) on some thread and afterwards,
// on the same thread, in_turn(l, c, thread); the in_turn calls of one lane happen in ascending c, one at a time. Lanes are
// begun in order, at most as many at a time as there are threads. The first exception stops all lanes and is rethrown; so
// does Ctrl-C. No chunk waits for one that no thread has begun, so threads never wait for each other in a circle.
template <typename Work, typename InTurn>
void run_ordered_lanes(ThreadTeam& team, const std::vector<uint64_t>& counts, Work&& work, InTurn&& in_turn) {
  struct Lane {
    uint64_t next = 0;  // chunk to begin
    uint64_t turn = 0;  // chunk whose turn it is
  };
  std::mutex mutex;
  std::condition_variable turn_moved;
  std::vector<Lane> lanes(counts.size());
  std::vector<size_t> open;
  size_t unopened = 0;
  size_t rotation = 0;
  std::exception_ptr error;

  const auto open_lanes = [&] {
    while (open.size() < static_cast<size_t>(team.size()) && unopened < counts.size()) {
      if (counts[unopened] > 0) open.push_back(unopened);
      ++unopened;
    }
  };
  const auto worker = [&](int thread) {
    for (;;) {
      size_t lane = 0;
      uint64_t chunk = 0;
      {
        const std::lock_guard lock(mutex);
        open_lanes();
        if (error || open.empty()) return;
        const size_t slot = rotation++ % open.size();
        lane = open[slot];
        chunk = lanes[lane].next++;
        if (lanes[lane].next == counts[lane]) open.erase(open.begin() + static_cast<ptrdiff_t>(slot));
      }
      try {
        throw_if_interrupted();
        work(lane, chunk, thread);
        {
          std::unique_lock lock(mutex);
          turn_moved.wait(lock, [&] { return error != nullptr || lanes[lane].turn == chunk; });
          if (error) return;
        }
        in_turn(lane, chunk, thread);
        const std::lock_guard lock(mutex);
        ++lanes[lane].turn;
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      turn_moved.notify_all();
    }
  };
  team.for_each_on_thread(static_cast<size_t>(team.size()), [&](size_t, int thread) { worker(thread); });
  if (error) std::rethrow_exception(error);
}

}  // namespace tierpack::verify
