// Ctrl-C as a state that long work asks for at safe points, so that it can leave a resumable state behind.
#pragma once

namespace tierpack {

// Installs handlers for SIGINT and SIGTERM: the first signal sets the flag, a second one ends the process at once. A write
// beyond the limit on file sizes (ulimit -f) fails like one on a full disk instead of ending the process.
void install_interrupt_handlers();
bool interrupted();
// Throws kInterrupted if a signal has arrived.
void throw_if_interrupted();
// Whether a signal has arrived, which is then forgotten: for conversations, where Ctrl-C stops only the answer.
bool take_interrupt();
// For tests and for a server that wants to stop itself.
void request_interrupt();

}  // namespace tierpack
