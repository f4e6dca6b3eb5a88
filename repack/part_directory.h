// A directory that gets its final name only when it is whole: NAME.part beside NAME, locked against other writers, synced and renamed at the end.
// What a killed one left is found in it.
#pragma once

#include <filesystem>
#include <string>

namespace tierpack::repack {

class PartDirectory {
 public:
  enum class Lock { kAlone, kShared /* with others that write their shares */ };
  // Creates and locks `target`.part; throws kUsage when another process is writing it.
  explicit PartDirectory(const std::filesystem::path& target, Lock lock = Lock::kAlone);
  ~PartDirectory();  // removes the part, unless it was published or is to be kept
  PartDirectory(const PartDirectory&) = delete;
  PartDirectory& operator=(const PartDirectory&) = delete;

  // Removes what is found in it. Only plain files are ever removed; kUsage when there is something else.
  void clear();
  // Leaves the part where it is when it is not published: a later run goes on with it.
  void keep(bool kept = true) { kept_ = kept; }

  const std::filesystem::path& path() const { return part_; }

  // Syncs the directory and renames it to the target. A directory in the way is exchanged and then removed when
  // `replace` is set, else it is an error. Files must have been synced by whoever wrote them.
  void publish(bool replace);

 private:
  std::filesystem::path target_;
  std::filesystem::path part_;
  int fd_ = -1;  // of the part, holding its lock
  bool published_ = false;
  bool kept_ = false;
};

}  // namespace tierpack::repack
