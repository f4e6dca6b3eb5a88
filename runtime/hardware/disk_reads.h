// How fast one file can be read past the page cache, with the pattern of reads that the expert store has: io_uring with
// registered buffers, records cut into pieces of kPieceBytes, at most kInFlightBytes asked for at once. Without io_uring
// threads read the pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace tierpack::hardware {

inline constexpr uint64_t kPieceBytes = uint64_t{512} << 10;
inline constexpr uint64_t kInFlightBytes = uint64_t{8} << 20;
inline constexpr uint64_t kSectorBytes = 4096;  // reads begin and end at multiples of it
inline constexpr uint32_t kPagesInFlight = 64;

struct ReadOptions {
  bool io_uring = true;  // false: threads, whatever the system has
  bool direct = true;    // false: through the page cache
};

class DiskReader {
 public:
  // Reads within the first `bytes` of the file (rounded down to sectors, at least one). The file is put into direct mode
  // where its filesystem allows that. Throws kIo when it cannot be read at all.
  DiskReader(File& file, uint64_t bytes, const ReadOptions& options = {});
  ~DiskReader();

  bool direct() const;              // O_DIRECT was accepted and a read with it worked
  bool io_uring() const;
  bool registered_buffers() const;  // false where the limit of locked memory forbids them

  // A window of at least `seconds`; reads that were begun are finished. Throw kInterrupted after Ctrl-C, kIo.
  double sequential(double seconds);                          // bytes a second, from a random place on
  double random(uint64_t record_bytes, double seconds);       // records a second, many at a time; records of 4 KiB: kPagesInFlight
  // Microseconds of each record, one after the other; at least one.
  std::vector<double> latencies(uint64_t record_bytes, double seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A file without a name below `directory`, filled with `bytes` (rounded up to sectors) of data that does not compress, on the disk and not in the
// page cache. It is gone when closed, however the process ends. Throws kIo, kCapacity, kInterrupted.
File make_probe_file(const std::filesystem::path& directory, uint64_t bytes);

}  // namespace tierpack::hardware
