// A directory held open, and names below it. Every path component that a server or a shared directory can influence is
// opened relative to a descriptor and never through a symbolic link, so that nothing planted in the target leads a
// write elsewhere.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tierpack::fetch {

enum class EntryKind { kAbsent, kRegular, kDirectory, kLink, kOther };

class Directory {
 public:
  // The user's own path: links in it are followed. With `create`, missing directories are made (0777 & ~umask).
  static Directory open(const std::filesystem::path& path, bool create);
  // `relative` is '/'-separated and safe (is_safe_relative_path) or empty. Throws kIo naming the component that is a
  // link or not a directory.
  Directory below(std::string_view relative, bool create) const;
  // As below(); nullopt when a component does not exist.
  std::optional<Directory> find_below(std::string_view relative) const;

  Directory(Directory&&) noexcept;
  Directory& operator=(Directory&&) noexcept;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  std::string path_of(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Anybody may replace what is in it (writable by all, without the sticky bit).
  bool is_open_to_strangers() const;

  // Names below are single components.
  EntryKind kind(const std::string& name) const;
  // An existing regular file; nullopt if absent; kIo if it is a link, a device or a directory.
  std::optional<File> open_file(const std::string& name, bool writable) const;
  // A new file; throws kIo if anything has that name.
  File create_file(const std::string& name, unsigned mode) const;
  // Content of a small file; nullopt if absent or larger than `limit`.
  std::optional<std::string> read_small(const std::string& name, uint64_t limit) const;
  // Temporary, fsync, rename, fsync of the directory. A link with that name is replaced, not followed.
  void write_atomically(const std::string& name, std::string_view content, unsigned mode) const;
  // All entries but "." and "..".
  std::vector<std::string> names() const;
  // Does nothing if absent.
  void remove(const std::string& name) const;
  void remove_directory(const std::string& name) const;  // only if empty; does nothing otherwise
  // Renames into `to`; without `replace`, false when the name is taken. Both directories are flushed.
  bool rename_into(const std::string& from, const Directory& to, const std::string& name, bool replace) const;
  // As rename_into; nullopt if `to` is on another file system.
  std::optional<bool> try_rename_into(const std::string& from, const Directory& to, const std::string& name, bool replace) const;
  // A name that nothing has, for what will become `name`.
  std::string temporary_name(const std::string& name) const;
  // A symbolic link `name` -> `target`, replacing an existing link.
  void make_link(const std::string& name, const std::string& target) const;
  void sync() const;

 private:
  Directory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// {"a/b/c"} -> {"a/b", "c"}.
std::pair<std::string, std::string> split_path(std::string_view path);

}  // namespace tierpack::fetch
