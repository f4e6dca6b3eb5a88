#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace tierpack {

namespace fs = std::filesystem;

namespace {

int open_retrying(const fs::path& path, int flags, mode_t mode) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

std::vector<std::byte> read_all(const ByteSource& source, uint64_t limit) {
  const uint64_t size = source.size();
  if (size > limit) {
    fail(ErrorKind::kCorrupt, "{}: {} is larger than the {} expected at most", source.name(), format_size(size),
         format_size(limit));
  }
  std::vector<std::byte> out(size);
  source.read_at(0, out);
  return out;
}

void MemorySource::read_at(uint64_t offset, MutableBytes out) const {
  if (offset > data_.size() || out.size() > data_.size() - offset) {
    fail(ErrorKind::kCorrupt, "{}: ends at byte {}, wanted {} bytes from {}", name_, data_.size(), out.size(), offset);
  }
  std::copy_n(data_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
}

File File::open(const fs::path& path, Mode mode) {
  int flags = 0;
  switch (mode) {
    case Mode::kRead: flags = O_RDONLY; break;
    case Mode::kReadWrite: flags = O_RDWR | O_NOFOLLOW; break;
    case Mode::kCreate: flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW; break;
    case Mode::kCreateOrTruncate: flags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW; break;
    case Mode::kOpenOrCreate: flags = O_RDWR | O_CREAT | O_NOFOLLOW; break;
  }
  const int fd = open_retrying(path, flags, 0644);
  if (fd < 0) {
    if (errno == ELOOP) fail(ErrorKind::kIo, "{}: is a symbolic link; refusing to write through it", path.string());
    fail_errno(fmt::format("cannot open {}", path.string()));
  }
  File file(fd, path.string());
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_errno(fmt::format("cannot stat {}", path.string()));
  if (S_ISDIR(info.st_mode)) fail(ErrorKind::kIo, "{}: is a directory, a file was expected", path.string());
  return file;
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    name_ = std::move(other.name_);
  }
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

uint64_t File::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_errno(fmt::format("cannot stat {}", name_));
  return static_cast<uint64_t>(info.st_size);
}

void File::read_at(uint64_t offset, MutableBytes out) const {
  uint64_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail_errno(fmt::format("cannot read {} at byte {}", name_, offset + done));
    }
    if (got == 0) {
      fail(ErrorKind::kCorrupt, "{}: ends at byte {}, wanted {} bytes from {}", name_, offset + done, out.size(),
           offset);
    }
    done += static_cast<uint64_t>(got);
  }
}

void File::write_at(uint64_t offset, Bytes data) {
  uint64_t done = 0;
  while (done < data.size()) {
    const ssize_t put = ::pwrite(fd_, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (put < 0) {
      if (errno == EINTR) continue;
      fail_errno(fmt::format("cannot write {} at byte {}", name_, offset + done));
    }
    done += static_cast<uint64_t>(put);
  }
}

void File::truncate(uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail_errno(fmt::format("cannot resize {}", name_));
}

void File::reserve(uint64_t size) {
  if (size == 0) return;
  // FALLOC_FL_KEEP_SIZE: space without a visible size, so that an unfinished file does not look complete.
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return;
    fail_errno(fmt::format("cannot reserve {} for {}", format_size(size), name_));
  }
}

void File::sync() {
  if (::fsync(fd_) != 0) fail_errno(fmt::format("cannot flush {} to disk", name_));
}

void File::sync_data() {
  if (::fdatasync(fd_) != 0) fail_errno(fmt::format("cannot flush {} to disk", name_));
}

void File::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) fail_errno(fmt::format("cannot close {}", name_));
}

BufferedWriter::BufferedWriter(File& file, uint64_t offset, size_t buffer_bytes)
    : file_(file), offset_(offset), capacity_(buffer_bytes) {
  buffer_.reserve(capacity_);
}

void BufferedWriter::write(Bytes data) {
  if (buffer_.size() + data.size() > capacity_) flush();
  if (data.size() >= capacity_) {
    file_.write_at(offset_, data);
    offset_ += data.size();
    return;
  }
  buffer_.insert(buffer_.end(), data.begin(), data.end());
}

void BufferedWriter::write_zeros(uint64_t count) {
  static constexpr std::byte kZeros[4096] = {};
  while (count > 0) {
    const uint64_t step = std::min<uint64_t>(count, sizeof kZeros);
    write({kZeros, step});
    count -= step;
  }
}

void BufferedWriter::align_to(uint64_t alignment) { write_zeros(align_up(position(), alignment) - position()); }

void BufferedWriter::flush() {
  if (buffer_.empty()) return;
  file_.write_at(offset_, buffer_);
  offset_ += buffer_.size();
  buffer_.clear();
}

void sync_directory(const fs::path& directory) {
  const int fd = open_retrying(directory, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) fail_errno(fmt::format("cannot open directory {}", directory.string()));
  const int status = ::fsync(fd);
  const int code = errno;
  ::close(fd);
  errno = code;
  if (status != 0 && code != EINVAL) fail_errno(fmt::format("cannot flush directory {}", directory.string()));
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_errno(fmt::format("cannot rename {} to {}", from.string(), to.string()));
  }
  sync_directory(parent_of(to));
}

void write_file_atomically(const fs::path& path, Bytes content, unsigned mode) {
  const fs::path temporary = path.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    // What a killed process left, or somebody planted, is unlinked, never written into.
    ::unlink(temporary.c_str());
    File file = File::open(temporary, File::Mode::kCreate);
    if (::fchmod(file.fd(), mode) != 0) fail_errno(fmt::format("cannot set permissions of {}", temporary.string()));
    file.write_at(0, content);
    file.sync();
    file.close();
    rename_durably(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::string read_text_file(const fs::path& path, uint64_t limit) {
  const File file = File::open(path, File::Mode::kRead);
  const uint64_t size = file.size();
  if (size > limit) {
    fail(ErrorKind::kCorrupt, "{}: {} is larger than the {} expected at most", path.string(), format_size(size),
         format_size(limit));
  }
  std::string out(size, '\0');
  file.read_at(0, {reinterpret_cast<std::byte*>(out.data()), out.size()});
  return out;
}

uint64_t free_disk_bytes(const fs::path& path) {
  fs::path at = fs::absolute(path);
  std::error_code ignored;
  while (!fs::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  struct statvfs info {};
  if (::statvfs(at.c_str(), &info) != 0) fail_errno(fmt::format("cannot read the free space of {}", at.string()));
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

std::optional<FileLock> FileLock::try_acquire(const fs::path& path) {
  File file = File::open(path, File::Mode::kOpenOrCreate);
  while (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) fail_errno(fmt::format("cannot lock {}", path.string()));
  }
  return FileLock(std::move(file));
}

}  // namespace tierpack
