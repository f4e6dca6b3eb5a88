// Looking into the values of a model, for --deep: what no hash can say when nobody promised one.
#pragma once

#include <string>
#include <vector>

#include "formats/float_scan.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

namespace tierpack::verify {

// Zeros of at least this many bytes in a row are told: a download with a hole looks like this.
inline constexpr uint64_t kZeroRunBytes = uint64_t{1} << 20;

struct TensorOddity {
  std::string tensor;
  FloatScan floats;             // NaN and infinite values, or block scales of quantised types
  bool counts_blocks = false;   // of what `floats` counts
  uint64_t zero_run_bytes = 0;  // the longest run, 0 if below kZeroRunBytes
  uint64_t zero_run_at = 0;     // offset in the file
};

// Reads all tensors in the order of their bytes, through one buffer. Returns those with something odd. May be
// interrupted.
std::vector<TensorOddity> scan_contents(const File& file, const GgufHeader& header);
std::vector<TensorOddity> scan_contents(const SafetensorsSource& source);

}  // namespace tierpack::verify
