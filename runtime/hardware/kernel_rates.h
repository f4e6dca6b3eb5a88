// How fast this machine's kernels consume weights, by type, with all usable cores: like the experts of a layer, each a
// matrix of its own at a random place of a memory larger than the caches.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"
#include "formats/dtype.h"
#include "formats/hardware.h"
#include "formats/pack.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::hardware {

struct KernelQuestion {
  std::vector<DType> dtypes;
  uint32_t rows = 1024, cols = 2048;  // of a matrix; cols fit every type's blocks
  uint64_t memory_bytes = uint64_t{512} << 20;
  double window_seconds = 0.15;
  uint32_t windows = 3;               // the median counts
};

// One rate for each type, in the order given. Throws kCapacity, kInterrupted.
std::vector<KernelRate> measure_kernels(const kernels::KernelTable& table, ThreadTeam& team, const KernelQuestion& question);

// The types of a pack's experts and of its large dense matrices, most bytes first.
std::vector<DType> weight_types(const PackManifest& manifest);

}  // namespace tierpack::hardware
