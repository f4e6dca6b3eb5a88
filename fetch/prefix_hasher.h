// Hashes files while they arrive: each task follows the growing prefix of one file, reading what was written back from
// the page cache, so that a finished download needs no second pass. A few threads serve all tasks in turns.
//
// What an earlier process left is part of the prefix like anything else, and is therefore hashed from the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/file.h"

namespace tierpack::fetch {

struct HashResult {
  Sha256Digest sha256;
  std::optional<std::string> git_sha1;  // when asked for
  std::string error;                    // not empty: the file could not be read
};

class PrefixHasher {
 public:
  class Task;
  // Called on a hashing thread when the whole file is hashed; not called for a cancelled task.
  using OnDone = std::function<void(HashResult)>;

  explicit PrefixHasher(int threads);
  ~PrefixHasher();  // running slices finish, queued ones are dropped
  PrefixHasher(const PrefixHasher&) = delete;
  PrefixHasher& operator=(const PrefixHasher&) = delete;

  // `git_blob_bytes`: also compute git's blob id, whose preimage begins with the size.
  std::shared_ptr<Task> start(std::shared_ptr<const File> file, std::optional<uint64_t> git_blob_bytes, OnDone on_done);
  // [0, end) may be read from now on.
  void extend(const std::shared_ptr<Task>& task, uint64_t end);
  // The file ends at `total`, all of which may be read.
  void close(const std::shared_ptr<Task>& task, uint64_t total);
  void cancel(const std::shared_ptr<Task>& task);
  // Bytes hashed so far.
  uint64_t hashed(const std::shared_ptr<Task>& task) const;

 private:
  void work();
  void queue_if_ready(const std::shared_ptr<Task>& task);  // with the mutex held
  void hash_slice(Task& task, uint64_t from, uint64_t to, std::vector<std::byte>& buffer);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Shared with the downloads that started them, which may drop them at any time.
  std::deque<std::shared_ptr<Task>> ready_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tierpack::fetch
