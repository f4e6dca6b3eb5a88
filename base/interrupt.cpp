#include "base/interrupt.h"

#include <atomic>
#include <csignal>
#include <unistd.h>

#include "base/error.h"

namespace tierpack {

namespace {

// A signal handler can reach nothing but statics; it runs on any thread while others read.
std::atomic<int> interrupt_count{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  if (interrupt_count.fetch_add(1) > 0) ::_exit(130);
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;  // no SA_RESTART: blocking calls return EINTR
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);  // the write fails with EFBIG instead
}

bool interrupted() { return interrupt_count > 0; }

void throw_if_interrupted() {
  if (interrupted()) fail(ErrorKind::kInterrupted, "interrupted");
}

bool take_interrupt() { return interrupt_count.exchange(0) > 0; }

void request_interrupt() { interrupt_count = 1; }

}  // namespace tierpack
