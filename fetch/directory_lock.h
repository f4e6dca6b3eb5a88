// One fetch per directory: an advisory lock on a file in the state directory, released by the kernel if the process dies.
//
// Open-file-description locks, because they also work across the nodes of cluster file systems where flock does not.
// Where no lock can be had at all (some network file systems), work goes on with a warning: parts are created
// exclusively and nothing gets a final name without its hash.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "fetch/directory.h"

namespace tierpack::fetch {

class DirectoryLock {
 public:
  // nullopt when another process holds it; `holder` then says which. nullopt with an empty holder: the last holder has
  // just removed the directory; open it anew.
  static std::optional<DirectoryLock> try_acquire(const Directory& state, std::string& holder);
  // Removes the lock file while holding it; for the end of a successful run.
  void release_and_remove(const Directory& state);

 private:
  explicit DirectoryLock(std::optional<File> file) : file_(std::move(file)) {}
  std::optional<File> file_;
};

}  // namespace tierpack::fetch
