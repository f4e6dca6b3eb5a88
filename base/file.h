// Files as owned handles, and the few durable operations the product is built from.
//
// ByteSource is the read-only face of "bytes at offsets": a local File, or a remote object read by ranges. Parsers take
// a ByteSource, so that inspecting a URL and a file is the same code.
// AtomicFile and AtomicDirectory give a final name only to complete, fsynced content; what a killed process leaves is
// named NAME.part or NAME.tmp-*, never NAME.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tierpack {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset`; throws kCorrupt if the source ends before that, kIo or kNetwork on failure.
  virtual void read_at(uint64_t offset, MutableBytes out) const = 0;
  // For messages.
  virtual const std::string& name() const = 0;
};

// A whole small source in memory; throws kCorrupt if it is larger than `limit`.
std::vector<std::byte> read_all(const ByteSource& source, uint64_t limit);

class MemorySource final : public ByteSource {
 public:
  MemorySource(Bytes data, std::string name) : data_(data), name_(std::move(name)) {}
  uint64_t size() const override { return data_.size(); }
  void read_at(uint64_t offset, MutableBytes out) const override;
  const std::string& name() const override { return name_; }

 private:
  Bytes data_;
  std::string name_;
};

// An open regular file. Reads and writes are positional, complete (no short counts) and may run from several threads.
class File final : public ByteSource {
 public:
  enum class Mode {
    kRead,            // must exist
    kReadWrite,       // must exist
    kCreate,          // created, must not exist
    kCreateOrTruncate,
    kOpenOrCreate,
  };
  // Never follows a symbolic link in the last component when it may write.
  static File open(const std::filesystem::path& path, Mode mode);
  // Takes ownership of an open descriptor; `name` is for messages.
  static File adopt(int fd, std::string name) { return File(fd, std::move(name)); }

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() override;

  uint64_t size() const override;  // asked from the system each time
  void read_at(uint64_t offset, MutableBytes out) const override;
  const std::string& name() const override { return name_; }

  void write_at(uint64_t offset, Bytes data);
  void truncate(uint64_t size);
  // Reserves disk space for [0, size); throws kCapacity when the disk is full. Filesystems without it are left alone.
  void reserve(uint64_t size);
  void sync();
  void sync_data();  // content and size, not timestamps
  void close();  // throws on failure, unlike the destructor
  int fd() const { return fd_; }

 private:
  File(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  int fd_ = -1;
  std::string name_;
};

// Appends through a buffer to a file; used by writers of sequential files.
class BufferedWriter {
 public:
  explicit BufferedWriter(File& file, uint64_t offset = 0, size_t buffer_bytes = size_t{1} << 20);
  void write(Bytes data);
  void write_zeros(uint64_t count);
  void align_to(uint64_t alignment);  // zeros up to a multiple
  void flush();                       // must be called before the file is used or closed
  uint64_t position() const { return offset_ + buffer_.size(); }

 private:
  File& file_;
  uint64_t offset_;
  size_t capacity_;
  std::vector<std::byte> buffer_;
};

// Writes `path` as a whole: temporary beside it, fsync, rename, fsync of the directory. `mode` is the final permission.
void write_file_atomically(const std::filesystem::path& path, Bytes content, unsigned mode = 0644);

// Content of a small local file; throws kIo if it cannot be read, kCorrupt if larger than `limit`.
std::string read_text_file(const std::filesystem::path& path, uint64_t limit);

// rename + fsync of the parent directory. The target is replaced if it is a file.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
void sync_directory(const std::filesystem::path& directory);

// Bytes that an unprivileged user can still write on the filesystem holding `path` (which need not exist yet).
uint64_t free_disk_bytes(const std::filesystem::path& path);

// An advisory lock on a lock file, held until destruction (and released by the kernel if the process dies).
class FileLock {
 public:
  // nullopt when another process holds it. The file is created and left in place.
  static std::optional<FileLock> try_acquire(const std::filesystem::path& path);

 private:
  explicit FileLock(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace tierpack
