#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "runtime/experts/disk_queue.h"

namespace tierpack::experts {

namespace {

constexpr size_t kTrialBytes = 4096;

// Some filesystems open files for O_DIRECT and then refuse to read them so.
bool can_read(int fd) {
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kTrialBytes, kTrialBytes), &std::free);
  if (!memory) return false;
  ssize_t result = 0;
  do {
    result = ::pread(fd, memory.get(), kTrialBytes, 0);
  } while (result < 0 && errno == EINTR);
  return result >= 0 || (errno != EINVAL && errno != EOPNOTSUPP);
}

}  // namespace

OpenedFile open_to_read(const std::filesystem::path& path, bool direct) {
  if (direct) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0) {
      File file = File::adopt(fd, path.string());
      if (can_read(fd)) return {std::move(file), true};
    }
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("cannot open " + path.string());
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return {File::adopt(fd, path.string()), false};
}

}  // namespace tierpack::experts
