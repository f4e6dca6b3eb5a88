// A file that gets its final name only when it is whole.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/file.h"

namespace tierpack::repack {

// NAME.part, locked against another process; removed unless it was published.
class PartFile {
 public:
  explicit PartFile(const std::filesystem::path& target, uint64_t bytes) : target_(target), part_(target.string() + ".part") {
    std::optional<FileLock> lock = FileLock::try_acquire(part_);
    if (!lock) {
      fail(ErrorKind::kUsage, "{} is being written by another process; wait for it or choose another directory", part_.string());
    }
    lock_ = std::move(lock);
    file_ = File::open(part_, File::Mode::kOpenOrCreate);
    file_->truncate(0);
    file_->reserve(bytes);
    file_->truncate(bytes);
  }
  ~PartFile() {
    if (!file_) return;
    std::error_code ignored;
    std::filesystem::remove(part_, ignored);
  }

  // One write at a time: threads that wait for the kernel's lock on a file burn their processors.
  void write_at(uint64_t offset, Bytes data) {
    const std::lock_guard lock(writing_);
    file_->write_at(offset, data);
  }
  void publish() {
    file_->sync();
    file_->close();
    rename_durably(part_, target_);
    file_.reset();
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path part_;
  std::optional<FileLock> lock_;
  std::optional<File> file_;
  std::mutex writing_;
};

}  // namespace tierpack::repack
