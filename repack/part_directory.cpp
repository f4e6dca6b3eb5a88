#include "repack/part_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/file.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

// True if `path` still names the directory open as `fd`: another process may have published or removed it meanwhile.
bool names_open_directory(const fs::path& path, int fd) {
  struct stat by_path {};
  struct stat by_fd {};
  return ::stat(path.c_str(), &by_path) == 0 && ::fstat(fd, &by_fd) == 0 && by_path.st_dev == by_fd.st_dev &&
         by_path.st_ino == by_fd.st_ino;
}

// Removes the plain files of a directory and the directory; anything else in it stops the removal.
void remove_flat_directory(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.is_symlink()) {
      fail(ErrorKind::kUsage, "{}: holds {}, which no pack does; move it away first", directory.string(),
           entry.path().filename().string());
    }
  }
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) fs::remove(entry.path(), failed);
  if (::rmdir(directory.c_str()) != 0) fail_errno(fmt::format("cannot remove {}", directory.string()));
}

}  // namespace

PartDirectory::PartDirectory(const fs::path& target, Lock lock) : target_(target), part_(target.string() + ".part") {
  for (;;) {
    std::error_code failed;
    if (const fs::path parent = part_.parent_path(); !parent.empty()) fs::create_directories(parent, failed);
    if (::mkdir(part_.c_str(), 0755) != 0 && errno != EEXIST) fail_errno(fmt::format("cannot create {}", part_.string()));
    fd_ = ::open(part_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd_ < 0) {
      if (errno == ENOENT) continue;
      fail_errno(fmt::format("cannot open {}", part_.string()));
    }
    if (::flock(fd_, (lock == Lock::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      const int code = errno;
      ::close(fd_);
      errno = code;
      if (code == EWOULDBLOCK) {
        fail(ErrorKind::kUsage, "{} is being written by another process; wait for it or choose another name", part_.string());
      }
      fail_errno(fmt::format("cannot lock {}", part_.string()));
    }
    if (names_open_directory(part_, fd_)) break;
    ::close(fd_);
  }
}

PartDirectory::~PartDirectory() {
  if (!published_ && !kept_) {
    try {
      remove_flat_directory(part_);
    } catch (const Error&) {
      // What cannot be removed stays under its .part name and is dealt with by the next run.
    }
  }
  ::close(fd_);
}

void PartDirectory::clear() {
  for (const fs::directory_entry& entry : fs::directory_iterator(part_)) {
    if (!entry.is_regular_file() && !entry.is_symlink()) {
      fail(ErrorKind::kUsage, "{}: holds {}, which no unfinished pack does; move it away first", part_.string(),
           entry.path().filename().string());
    }
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(part_)) fs::remove(entry.path());
}

void PartDirectory::publish(bool replace) {
  sync_directory(part_);
  if (!replace) {
    if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) != 0) {
      // Some filesystems know no flags; their plain rename replaces at most an empty directory.
      if (errno != EINVAL && errno != ENOSYS) {
        fail_errno(fmt::format("cannot rename {} to {}", part_.string(), target_.string()));
      }
      rename_durably(part_, target_);
    }
  } else if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    remove_flat_directory(part_);
  } else {
    if (errno != EINVAL && errno != ENOSYS) {
      fail_errno(fmt::format("cannot exchange {} and {}", part_.string(), target_.string()));
    }
    remove_flat_directory(target_);
    rename_durably(part_, target_);
  }
  published_ = true;
  const fs::path parent = target_.parent_path();
  sync_directory(parent.empty() ? fs::path(".") : parent);
}

}  // namespace tierpack::repack
