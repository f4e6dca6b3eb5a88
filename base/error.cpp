#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace tierpack {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return 2;
    case ErrorKind::kCorrupt: return 3;
    case ErrorKind::kCapacity: return 4;
    case ErrorKind::kNetwork: return 5;
    case ErrorKind::kInterrupted: return 130;
    case ErrorKind::kIo:
    case ErrorKind::kRefused:
    case ErrorKind::kUnsupported:
    case ErrorKind::kCuda:
    case ErrorKind::kInternal: return 1;
  }
  return 1;
}

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return "usage";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kNetwork: return "network";
    case ErrorKind::kRefused: return "refused";
    case ErrorKind::kCorrupt: return "corrupt";
    case ErrorKind::kUnsupported: return "unsupported";
    case ErrorKind::kCapacity: return "capacity";
    case ErrorKind::kCuda: return "cuda";
    case ErrorKind::kInterrupted: return "interrupted";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

void fail_errno(const std::string& what) {
  const int code = errno;
  const ErrorKind kind = code == ENOSPC || code == EDQUOT || code == EFBIG ? ErrorKind::kCapacity : ErrorKind::kIo;
  throw Error(kind, what + ": " + std::strerror(code));
}

void check_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::kInternal,
              fmt::format("internal check failed: {} ({}:{}); please report this", condition, file, line));
}

}  // namespace tierpack
