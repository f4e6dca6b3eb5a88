// An unfinished download: the part, its journal, and the steps that make it durable and final.
//
// Both live in a state directory beside the files (DIR/.tierpack), named after the file they become, so that no name a
// server sends can collide with them. Order of durability: bytes are written, flushed (fdatasync), and only then
// claimed by the journal; the finished part is flushed, renamed to its final name, and the directory flushed.
//
// write() and the extents belong to one thread; the steps that flush, rename or remove may run on another: they
// exclude each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/digest.h"
#include "base/file.h"
#include "fetch/directory.h"
#include "fetch/journal.h"

namespace tierpack::fetch {

// What the finished file must be; a part is continued only if it was begun for the same.
struct PartIdentity {
  std::optional<uint64_t> size = {};
  std::optional<Sha256Digest> sha256 = {};
  std::string validator = {};  // strong ETag, "" if none
};

class PartFile {
 public:
  // Continues what an earlier process left for `path` if that can be proved to belong to `identity`, otherwise begins
  // anew. `state` must outlive the part.
  PartFile(const Directory& state, std::string path, PartIdentity identity);

  const ExtentSet& extents() const { return extents_; }
  uint64_t resumed_bytes() const { return resumed_bytes_; }
  // The identity's size, or what the journal knew.
  std::optional<uint64_t> size() const { return identity_.size; }
  const std::string& name() const { return part_name_; }

  // Writes what is not there yet and adds it to the extents. Bytes that are there are never written again: the hash may
  // have passed over them.
  void write(uint64_t offset, Bytes data);
  // These bytes are to be fetched again; the hash must begin anew.
  void forget(const ExtentSet& bytes);
  // For the hasher, which may still be reading an old part when a new one has been begun.
  std::shared_ptr<const File> reader() const { return file_; }
  // Declares [0, end) present without writing it through this object (a copy from a cache).
  void adopt_bytes(uint64_t end) { extents_.add({0, end}); }
  File& file() { return *file_; }

  void set_size(uint64_t size) { identity_.size = size; }
  void set_validator(std::string validator) { identity_.validator = std::move(validator); }

  // What a checkpoint would claim now.
  Journal snapshot() const;
  // Flushes the part, then writes the journal. A snapshot of an earlier part is ignored.
  void checkpoint(const Journal& snapshot);
  // Flushes the part and lets the system forget what it holds of it, so that the next read comes from the device.
  void flush_from_cache();
  // Discards everything and starts an empty part.
  void begin_anew();
  // Drops what lies beyond the size, flushes and renames to `to`/`name` with permissions `mode`, then removes the journal.
  // False if the name is taken and `replace` is not set. Throws kIo if something else has the part's name by now. Into another file system the
  // content is copied and must then hash to `content`.
  bool publish(const Directory& to, const std::string& name, unsigned mode, bool replace, const Sha256Digest& content);
  // Keeps the bytes as NAME.corrupt for inspection; they are never continued.
  void quarantine();
  void discard();

 private:
  bool try_resume();
  void create();
  void require_own_name() const;

  const Directory& state_;
  std::string path_;
  std::string part_name_;
  std::string journal_name_;
  PartIdentity identity_;
  // Shared with the hasher, see reader().
  std::shared_ptr<File> file_;
  ExtentSet extents_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t birth_ns_ = 0;
  uint64_t resumed_bytes_ = 0;
  std::mutex mutex_;
};

// "dir/model.gguf" -> "model.gguf-0123456789abcdef": short enough for any file system, different for different paths.
std::string state_name(const std::string& path);

}  // namespace tierpack::fetch
