#include "fetch/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"

namespace tierpack::fetch {

namespace {

// What makes an open file the one that a journal speaks about.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t birth_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identify(const File& file) {
  struct statx info {};
  if (::statx(file.fd(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0) {
    fail_errno(fmt::format("cannot stat {}", file.name()));
  }
  FileIdentity out{.device = makedev(info.stx_dev_major, info.stx_dev_minor), .inode = info.stx_ino};
  if ((info.stx_mask & STATX_BTIME) != 0 && info.stx_btime.tv_sec > 0) {
    out.birth_ns = static_cast<uint64_t>(info.stx_btime.tv_sec) * 1'000'000'000 + info.stx_btime.tv_nsec;
  }
  return out;
}

// The file that another file system is given: written beside, hashed as it lies there, renamed.
bool copy_into(const File& from, const Directory& to, const std::string& name, unsigned mode, bool replace,
               const Sha256Digest& content) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  const std::string temporary = to.temporary_name(name);
  try {
    const uint64_t size = from.size();
    std::vector<std::byte> buffer(std::min(size, kPiece));
    {
      File copy = to.create_file(temporary, 0600);
      for (uint64_t at = 0; at < size; at += buffer.size()) {
        const MutableBytes piece{buffer.data(), std::min<uint64_t>(buffer.size(), size - at)};
        from.read_at(at, piece);
        copy.write_at(at, piece);
      }
      if (::fchmod(copy.fd(), mode) != 0) fail_errno(fmt::format("cannot set permissions of {}", copy.name()));
      copy.sync();
      if (const Sha256Digest found = sha256_of(copy); found != content) {
        fail(ErrorKind::kIo, "{} holds other bytes (SHA-256 {}) than were copied there ({})", copy.name(), found.hex(),
             content.hex());
      }
    }
    if (to.rename_into(temporary, to, name, replace)) return true;
    to.remove(temporary);
    return false;
  } catch (...) {
    to.remove(temporary);
    throw;
  }
}

}  // namespace

std::string state_name(const std::string& path) {
  constexpr size_t kMaxReadable = 120;
  return split_path(path).second.substr(0, kMaxReadable) + "-" + xxh3_128(as_bytes(path)).hex().substr(0, 16);
}

PartFile::PartFile(const Directory& state, std::string path, PartIdentity identity)
    : state_(state),
      path_(std::move(path)),
      part_name_(state_name(path_) + ".part"),
      journal_name_(state_name(path_) + ".journal"),
      identity_(std::move(identity)) {
  if (!try_resume()) {
    state_.remove(journal_name_);
    state_.remove(part_name_);
    create();
  }
}

bool PartFile::try_resume() {
  if (state_.kind(part_name_) != EntryKind::kRegular) return false;
  const auto text = state_.read_small(journal_name_, kMaxJournalBytes);
  if (!text) return false;
  const auto journal = parse_journal(*text);
  if (!journal || journal->extents.extents().empty()) return false;
  // The same content: proved by the same publisher's hash, or at least by the same strong validator and size.
  if (identity_.sha256 ? journal->sha256 != identity_.sha256
                       : journal->sha256.has_value() || identity_.validator.empty() ||
                             journal->validator != identity_.validator) {
    return false;
  }
  if (identity_.size && journal->size != identity_.size) return false;
  auto file = state_.open_file(part_name_, true);
  if (!file) return false;
  struct stat info {};
  if (::fstat(file->fd(), &info) != 0) return false;
  const FileIdentity claimed{.device = journal->device, .inode = journal->inode, .birth_ns = journal->birth_ns};
  if (!(identify(*file) == claimed) || info.st_nlink != 1 || info.st_uid != ::geteuid()) return false;
  file_ = std::make_shared<File>(std::move(*file));
  device_ = journal->device;
  inode_ = journal->inode;
  birth_ns_ = journal->birth_ns;
  extents_ = journal->extents;
  extents_.clip(static_cast<uint64_t>(info.st_size));
  identity_.size = journal->size;
  resumed_bytes_ = extents_.bytes();
  return true;
}

void PartFile::create() {
  auto file = std::make_shared<File>(state_.create_file(part_name_, 0600));
  const FileIdentity identity = identify(*file);
  file_ = std::move(file);
  device_ = identity.device;
  inode_ = identity.inode;
  birth_ns_ = identity.birth_ns;
  extents_.clear();
  resumed_bytes_ = 0;
}

void PartFile::write(uint64_t offset, Bytes data) {
  for (const Extent& gap : extents_.missing({offset, offset + data.size()})) {
    file_->write_at(gap.begin, data.subspan(gap.begin - offset, gap.size()));
    extents_.add(gap);
  }
}

void PartFile::forget(const ExtentSet& bytes) {
  for (const Extent& extent : bytes.extents()) extents_.remove(extent);
}

Journal PartFile::snapshot() const {
  return {.size = identity_.size,
          .sha256 = identity_.sha256,
          .validator = identity_.validator,
          .device = device_,
          .inode = inode_,
          .birth_ns = birth_ns_,
          .extents = extents_};
}

void PartFile::checkpoint(const Journal& snapshot) {
  const std::lock_guard lock(mutex_);
  if (!file_ || snapshot.device != device_ || snapshot.inode != inode_ || snapshot.birth_ns != birth_ns_) return;
  file_->sync_data();
  state_.write_atomically(journal_name_, encode_journal(snapshot), 0600);
}

void PartFile::flush_from_cache() {
  const std::lock_guard lock(mutex_);
  if (!file_) return;  // given up meanwhile
  file_->sync_data();
  ::posix_fadvise(file_->fd(), 0, 0, POSIX_FADV_DONTNEED);
}

void PartFile::begin_anew() {
  const std::lock_guard lock(mutex_);
  state_.remove(journal_name_);
  state_.remove(part_name_);
  create();
}

// The name must still lead to the file that was written and hashed: renaming goes by name.
void PartFile::require_own_name() const {
  struct statx info {};
  const bool there = ::statx(state_.fd(), part_name_.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO, &info) == 0;
  if (there && info.stx_ino == inode_ && makedev(info.stx_dev_major, info.stx_dev_minor) == device_) return;
  fail(ErrorKind::kIo, "{} was replaced or removed by somebody else while it was being written; nothing was published",
       state_.path_of(part_name_));
}

bool PartFile::publish(const Directory& to, const std::string& name, unsigned mode, bool replace, const Sha256Digest& content) {
  const std::lock_guard lock(mutex_);
  // A source that said no size may have sent more than the file turned out to have.
  if (identity_.size && file_->size() > *identity_.size) file_->truncate(*identity_.size);
  if (::fchmod(file_->fd(), mode) != 0) fail_errno(fmt::format("cannot set permissions of {}", file_->name()));
  file_->sync();
  require_own_name();
  const auto renamed = state_.try_rename_into(part_name_, to, name, replace);
  if (renamed ? !*renamed : !copy_into(*file_, to, name, mode, replace, content)) return false;
  file_.reset();
  if (!renamed) state_.remove(part_name_);
  state_.remove(journal_name_);
  return true;
}

void PartFile::quarantine() {
  const std::lock_guard lock(mutex_);
  file_.reset();
  state_.remove(journal_name_);
  state_.rename_into(part_name_, state_, state_name(path_) + ".corrupt", true);
}

void PartFile::discard() {
  const std::lock_guard lock(mutex_);
  file_.reset();
  state_.remove(journal_name_);
  state_.remove(part_name_);
}

}  // namespace tierpack::fetch
