#include "fetch/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

#include "base/error.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

int openat_retrying(int directory, const char* name, int flags, mode_t mode) {
  for (;;) {
    const int fd = ::openat(directory, name, flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

std::string random_suffix() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

}  // namespace

Directory Directory::open(const fs::path& path, bool create) {
  if (create) {
    std::error_code code;
    fs::create_directories(path, code);
    if (code && !fs::is_directory(path)) {
      fail(ErrorKind::kIo, "cannot create directory {}: {}", path.string(), code.message());
    }
  }
  const int fd = openat_retrying(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) fail_errno(fmt::format("cannot open directory {}", path.string()));
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return Directory(fd, text);
}

Directory Directory::below(std::string_view relative, bool create) const {
  int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) fail_errno(fmt::format("cannot open directory {}", path_));
  Directory at(fd, path_);
  while (!relative.empty()) {
    const size_t slash = std::min(relative.find('/'), relative.size());
    const std::string name(relative.substr(0, slash));
    relative.remove_prefix(std::min(slash + 1, relative.size()));
    if (create && ::mkdirat(at.fd_, name.c_str(), 0777) == 0) {
      at.sync();
    } else if (create && errno != EEXIST) {
      fail_errno(fmt::format("cannot create directory {}", at.path_of(name)));
    }
    fd = openat_retrying(at.fd_, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0) {
      if (errno == ELOOP || (errno == ENOTDIR && at.kind(name) == EntryKind::kLink)) {
        fail(ErrorKind::kIo, "{} is a symbolic link; refusing to write through it", at.path_of(name));
      }
      fail_errno(fmt::format("cannot open directory {}", at.path_of(name)));
    }
    at = Directory(fd, at.path_of(name));
  }
  return at;
}

std::optional<Directory> Directory::find_below(std::string_view relative) const {
  std::string_view rest = relative;
  std::string done;
  while (!rest.empty()) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    done += (done.empty() ? "" : "/") + std::string(rest.substr(0, slash));
    rest.remove_prefix(std::min(slash + 1, rest.size()));
    struct stat info {};
    if (::fstatat(fd_, done.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) return std::nullopt;
  }
  return below(relative, false);
}

Directory::Directory(Directory&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Directory& Directory::operator=(Directory&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

Directory::~Directory() {
  if (fd_ >= 0) ::close(fd_);
}

bool Directory::is_open_to_strangers() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_errno(fmt::format("cannot stat {}", path_));
  return (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
}

EntryKind Directory::kind(const std::string& name) const {
  struct stat info {};
  if (::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return EntryKind::kAbsent;
    fail_errno(fmt::format("cannot stat {}", path_of(name)));
  }
  if (S_ISREG(info.st_mode)) return EntryKind::kRegular;
  if (S_ISDIR(info.st_mode)) return EntryKind::kDirectory;
  return S_ISLNK(info.st_mode) ? EntryKind::kLink : EntryKind::kOther;
}

std::optional<File> Directory::open_file(const std::string& name, bool writable) const {
  // O_NONBLOCK: a FIFO planted under the name must not hang us.
  const int flags = (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK;
  const int fd = openat_retrying(fd_, name.c_str(), flags, 0);
  if (fd < 0) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP) fail(ErrorKind::kIo, "{} is a symbolic link; refusing to use it", path_of(name));
    fail_errno(fmt::format("cannot open {}", path_of(name)));
  }
  File file = File::adopt(fd, path_of(name));
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno(fmt::format("cannot stat {}", path_of(name)));
  if (!S_ISREG(info.st_mode)) fail(ErrorKind::kIo, "{} is not a regular file", path_of(name));
  return file;
}

File Directory::create_file(const std::string& name, unsigned mode) const {
  const int fd = openat_retrying(fd_, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  if (fd < 0) fail_errno(fmt::format("cannot create {}", path_of(name)));
  return File::adopt(fd, path_of(name));
}

std::optional<std::string> Directory::read_small(const std::string& name, uint64_t limit) const {
  if (kind(name) != EntryKind::kRegular) return std::nullopt;
  const auto file = open_file(name, false);
  if (!file) return std::nullopt;
  const uint64_t size = file->size();
  if (size > limit) return std::nullopt;
  std::string out(size, '\0');
  file->read_at(0, {reinterpret_cast<std::byte*>(out.data()), out.size()});
  return out;
}

void Directory::write_atomically(const std::string& name, std::string_view content, unsigned mode) const {
  const std::string temporary = temporary_name(name);
  try {
    File file = create_file(temporary, mode);
    file.write_at(0, as_bytes(content));
    file.sync();
    file.close();
    if (::renameat(fd_, temporary.c_str(), fd_, name.c_str()) != 0) {
      fail_errno(fmt::format("cannot rename {} to {}", path_of(temporary), path_of(name)));
    }
    sync();
  } catch (...) {
    ::unlinkat(fd_, temporary.c_str(), 0);
    throw;
  }
}

std::vector<std::string> Directory::names() const {
  std::vector<std::string> out;
  const int fd = openat_retrying(fd_, ".", O_RDONLY | O_DIRECTORY, 0);
  DIR* const stream = fd >= 0 ? ::fdopendir(fd) : nullptr;
  if (stream == nullptr) {
    if (fd >= 0) ::close(fd);
    fail_errno(fmt::format("cannot list {}", path_));
  }
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
  }
  ::closedir(stream);
  return out;
}

void Directory::remove(const std::string& name) const {
  if (::unlinkat(fd_, name.c_str(), 0) != 0 && errno != ENOENT) {
    fail_errno(fmt::format("cannot remove {}", path_of(name)));
  }
}

void Directory::remove_directory(const std::string& name) const { ::unlinkat(fd_, name.c_str(), AT_REMOVEDIR); }

std::string Directory::temporary_name(const std::string& name) const {
  return fmt::format("{}.tmp-{}", name.substr(0, 200), random_suffix());
}

bool Directory::rename_into(const std::string& from, const Directory& to, const std::string& name, bool replace) const {
  if (const auto renamed = try_rename_into(from, to, name, replace)) return *renamed;
  errno = EXDEV;
  fail_errno(fmt::format("cannot rename {} to {}", path_of(from), to.path_of(name)));
}

std::optional<bool> Directory::try_rename_into(const std::string& from, const Directory& to, const std::string& name,
                                               bool replace) const {
  int status = 0;
  if (replace) {
    status = ::renameat(fd_, from.c_str(), to.fd_, name.c_str());
  } else {
    status = ::renameat2(fd_, from.c_str(), to.fd_, name.c_str(), RENAME_NOREPLACE);
    if (status != 0 && errno == EINVAL) {
      // A filesystem without RENAME_NOREPLACE: link() refuses a taken name just as well.
      status = ::linkat(fd_, from.c_str(), to.fd_, name.c_str(), 0);
      if (status == 0) ::unlinkat(fd_, from.c_str(), 0);
    }
  }
  if (status != 0) {
    if (!replace && errno == EEXIST) return false;
    if (errno == EXDEV) return std::nullopt;
    fail_errno(fmt::format("cannot rename {} to {}", path_of(from), to.path_of(name)));
  }
  to.sync();
  sync();
  return true;
}

void Directory::make_link(const std::string& name, const std::string& target) const {
  const std::string temporary = temporary_name(name);
  if (::symlinkat(target.c_str(), fd_, temporary.c_str()) != 0) {
    fail_errno(fmt::format("cannot create the link {}", path_of(name)));
  }
  if (::renameat(fd_, temporary.c_str(), fd_, name.c_str()) != 0) {
    const int code = errno;
    ::unlinkat(fd_, temporary.c_str(), 0);
    errno = code;
    fail_errno(fmt::format("cannot create the link {}", path_of(name)));
  }
  sync();
}

void Directory::sync() const {
  if (::fsync(fd_) != 0 && errno != EINVAL) fail_errno(fmt::format("cannot flush directory {}", path_));
}

std::pair<std::string, std::string> split_path(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {"", std::string(path)};
  return {std::string(path.substr(0, slash)), std::string(path.substr(slash + 1))};
}

}  // namespace tierpack::fetch
