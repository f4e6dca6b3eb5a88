// A directory that gets its final name only when it is whole: NAME.part beside NAME, locked against a second writer,
// emptied of what a killed one left, synced and renamed at the end.
#pragma once

#include <filesystem>
#include <string>

namespace tierpack::repack {

class PartDirectory {
 public:
  // Creates and locks `target`.part; throws kUsage when another process is writing it. Only plain files are ever removed
  // from what is found there.
  explicit PartDirectory(const std::filesystem::path& target);
  ~PartDirectory();  // removes the part unless it was published
  PartDirectory(const PartDirectory&) = delete;
  PartDirectory& operator=(const PartDirectory&) = delete;

  const std::filesystem::path& path() const { return part_; }

  // Syncs the directory and renames it to the target. A directory in the way is exchanged and then removed when
  // `replace` is set, else it is an error. Files must have been synced by whoever wrote them.
  void publish(bool replace);

 private:
  void clear();
  std::filesystem::path target_;
  std::filesystem::path part_;
  int fd_ = -1;  // of the part, holding its lock
  bool published_ = false;
};

}  // namespace tierpack::repack
