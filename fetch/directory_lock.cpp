#include "fetch/directory_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace tierpack::fetch {

namespace {

constexpr const char* kName = "lock";

// Whether the file we locked is still the one with the name: the last holder may have removed it meanwhile.
bool is_current(const Directory& state, const File& file) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(file.fd(), &ours) == 0 && ::fstatat(state.fd(), kName, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

std::string read_holder(const File& file) {
  std::array<char, 256> text{};
  const ssize_t got = ::pread(file.fd(), text.data(), text.size() - 1, 0);
  std::string out(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return out.empty() ? "another process" : out;
}

}  // namespace

std::optional<DirectoryLock> DirectoryLock::try_acquire(const Directory& state, std::string& holder) {
  for (;;) {
    const int fd = ::openat(state.fd(), kName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0 && errno == ENOENT) {
      holder.clear();
      return std::nullopt;
    }
    if (fd < 0) fail_errno("cannot open " + state.path_of(kName));
    File file = File::adopt(fd, state.path_of(kName));
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    if (::fcntl(fd, F_OFD_SETLK, &range) != 0) {
      if (errno == EAGAIN || errno == EACCES) {
        holder = read_holder(file);
        return std::nullopt;
      }
      if (errno == EINTR) continue;
      log_warning(fmt::format("{} cannot be locked ({}): make sure that no other fetch works there", state.path(),
                              std::strerror(errno)));
      return DirectoryLock(std::nullopt);
    }
    if (!is_current(state, file)) continue;
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink != 1) {
      fail(ErrorKind::kIo, "{} is not a file of its own (a link was planted there?); remove it and run again", file.name());
    }
    std::array<char, 128> host{};
    ::gethostname(host.data(), host.size() - 1);
    file.truncate(0);
    file.write_at(0, as_bytes(fmt::format("process {} on {}\n", ::getpid(), host.data())));
    return DirectoryLock(std::move(file));
  }
}

void DirectoryLock::release_and_remove(const Directory& state) {
  if (file_ && is_current(state, *file_)) state.remove(kName);
  file_.reset();
}

}  // namespace tierpack::fetch
