// What a fetch keeps in DIR/.tierpack while it is unfinished: the lock against a second fetch, the commit it is pinned
// to, parts and journals.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fetch/directory.h"
#include "fetch/directory_lock.h"
#include "fetch/download.h"
#include "fetch/source_reference.h"
#include "formats/lock.h"

namespace tierpack::fetch {

struct LockedState {
  Directory state;
  DirectoryLock lock;
};

// Makes the state directory and locks it; with `wait`, waits for another fetch, else throws kIo naming it.
LockedState acquire_state(const Directory& target, bool wait);

// An unfinished fetch of a moving revision is continued at the commit it began with.
std::optional<std::string> read_pin(const std::filesystem::path& target, const Reference& asked);
void write_pin(const Directory& state, const Reference& asked, const std::string& commit);

// After a complete fetch: removes the pin, what killed runs left of the files that are now there, and the state directory
// if nothing else is in it.
void clear_state(const Directory& target, LockedState& locked, const std::vector<DownloadTask>& tasks);

// Writes `name` into `target` by way of the state directory, so that a kill leaves nothing beside the files.
void write_by_state(const Directory& target, const Directory& state, const std::string& name, const std::string& content);

}  // namespace tierpack::fetch
