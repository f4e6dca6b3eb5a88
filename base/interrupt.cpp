#include "base/interrupt.h"

#include <csignal>
#include <unistd.h>

#include "base/error.h"

namespace tierpack {

namespace {

// A signal handler can reach nothing but statics.
volatile std::sig_atomic_t interrupt_count = 0;

void on_signal(int) {
  interrupt_count = interrupt_count + 1;
  if (interrupt_count > 1) ::_exit(130);
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

bool take_interrupt() {
  const bool arrived = interrupt_count > 0;
  interrupt_count = 0;
  return arrived;
}

void request_interrupt() { interrupt_count = 1; }

}  // namespace tierpack
