// One way to fail. An Error ends a command: it carries a kind, which decides the exit code and the retry policy,
// and a sentence that says what was attempted, on what, what was found and what to do. Code branches on the kind,
// never on the text. Expected outcomes are values (optional, enum, small struct), findings are data, and broken
// promises of our own go through TIERPACK_CHECK. Errors are caught in main.cpp, at thread and request boundaries,
// and in fetch's retry loop.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace tierpack {

enum class ErrorKind {
  kUsage,        // the caller asked for something impossible              exit 2
  kIo,           // a local file or system call failed                     exit 1
  kNetwork,      // the network gave up; the work can be resumed           exit 5
  kRefused,      // a server answered, and the answer is no                exit 1
  kCorrupt,      // bytes are not what they must be                        exit 3
  kUnsupported,  // well-formed, but beyond what this build can do         exit 1
  kCapacity,     // does not fit: disk, RAM, VRAM                          exit 4
  kCuda,         // a CUDA call failed                                     exit 1
  kInterrupted,  // the user asked to stop; the work can be resumed        exit 130
  kInternal,     // a promise of our own was broken                        exit 1
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The process exit code of an error kind (DESIGN.md section 2).
int exit_code(ErrorKind kind);

// The short name of a kind, as used in JSON output ("corrupt", "network", ...).
const char* kind_name(ErrorKind kind);

// fail(ErrorKind::kCorrupt, "{}: {} tensors, expected {}", path, found, expected)
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Throws kIo with "<what>: <strerror(errno)>"; errno is read first.
[[noreturn]] void fail_errno(const std::string& what);

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace tierpack

// A promise of our own code; stays on in release builds.
#define TIERPACK_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tierpack::check_failed(#condition, __FILE__, __LINE__))
