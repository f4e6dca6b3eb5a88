// The disk that holds a path: what the system says of it, and what reads of it reach.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/hardware.h"

namespace tierpack::hardware {

struct DiskQuestion {
  std::filesystem::path directory;  // on the filesystem in question
  std::filesystem::path file;       // read this one instead of a temporary one in `directory`; empty: none
  uint64_t record_bytes = uint64_t{2} << 20;
  uint64_t temporary_bytes = uint64_t{1} << 30;  // at most; less where little is free
  bool measure = true;              // false: only what can be said without reading much
  double window_seconds = 0.2;
  uint32_t windows = 5;             // of each pattern; the median counts
};

struct DiskAnswer {
  DiskInfo info;  // `path` is the mount point
  std::optional<bool> registered_buffers;  // whether buffers could be registered with io_uring; none: not tried
  std::string not_measured;  // why rates are missing; empty when they are there
  std::string measured_on;   // the file
};

// Throws kIo when the directory does not exist, kInterrupted after Ctrl-C. That nothing can be read or written there is an
// answer.
DiskAnswer probe_disk(const DiskQuestion& question);

}  // namespace tierpack::hardware
