// A fixed team of threads for data-parallel loops. The caller works too; helpers spin briefly for the next loop, then
// sleep, so that an idle team costs nothing and a busy machine does not stall it.
//
// Results never depend on the team's size: a loop's iterations write to places of their own, and any reduction happens
// afterwards in a fixed order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tierpack {

// Physical cores this process may use (affinity and cgroup quota respected), at least 1.
int usable_cores();

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);  // 1 runs everything on the caller
  ~ThreadTeam();                     // joins
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;

  // Calls body(i) once for each i in [0, count), in any order, on any thread of the team; returns when all are done. The
  // first exception is rethrown. Not reentrant: a body may not start a loop on the same team.
  template <typename Body>
  void for_each(size_t count, Body&& body) {
    run(count, [](void* context, size_t index, int) { (*static_cast<std::remove_reference_t<Body>*>(context))(index); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  // As for_each; body(i, thread) also gets the index of the thread in [0, size()), for per-thread scratch memory.
  template <typename Body>
  void for_each_on_thread(size_t count, Body&& body) {
    run(count,
        [](void* context, size_t index, int thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(index, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, size_t index, int thread);
  void run(size_t count, Call call, void* context);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tierpack
