// Tells the sanitizers which stack runs; nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tierpack::cuda_on_cpu {

// What they keep of a fiber, or of the thread that starts a launch.
struct FiberTrace {
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* state = nullptr;
};

inline void trace_thread([[maybe_unused]] FiberTrace& trace) {
#if defined(__SANITIZE_THREAD__)
  trace.state = __tsan_get_current_fiber();
#endif
}
inline void trace_new_fiber([[maybe_unused]] FiberTrace& trace, [[maybe_unused]] const void* bottom, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  trace.bottom = bottom;
  trace.bytes = bytes;
#elif defined(__SANITIZE_THREAD__)
  trace.state = __tsan_create_fiber(0);
#endif
}
inline void trace_switch([[maybe_unused]] FiberTrace& from, [[maybe_unused]] const FiberTrace& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.state, to.bottom, to.bytes);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.state, 0);
#endif
}
// On the new stack; `from` is the one that was left.
inline void trace_arrival([[maybe_unused]] const FiberTrace& here, [[maybe_unused]] FiberTrace& from) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here.state, &from.bottom, &from.bytes);
#endif
}

}  // namespace tierpack::cuda_on_cpu
