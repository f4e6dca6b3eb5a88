// Counting values that no healthy checkpoint holds: NaN and infinity, in the element type's own bits, without decoding.
// Integers, BOOL and the types without such codes (F4, F6) count none. Of quantised blocks it is the scales that are
// looked at: one bad scale spoils its whole block.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "formats/dtype.h"
#include "formats/safetensors.h"

namespace tierpack {

struct FloatScan {
  uint64_t nan = 0;
  uint64_t inf = 0;
  bool clean() const { return nan == 0 && inf == 0; }
  FloatScan& operator+=(const FloatScan& other) {
    nan += other.nan;
    inf += other.inf;
    return *this;
  }
};

// Whether the type can hold NaN or infinity at all.
bool has_nonfinite_codes(HfType type);

// `data`: whole elements, any alignment. C64 counts its two parts separately.
FloatScan scan_floats(HfType type, Bytes data);

// The same for GGUF's types: plain numbers are counted one by one, quantised types by block scales (d, dmin, m and the like;
// the NaN codes of MXFP4's and NVFP4's byte scales, which ggml reads as numbers, count as NaN). `data`: whole blocks, any
// alignment.
bool has_nonfinite_codes(DType type);
FloatScan scan_floats(DType type, Bytes data);

// A whole tensor, read through `buffer` (at least 8 bytes; 1 MiB is a good size). Thread-safe with a buffer a thread.
FloatScan scan_tensor(const SafetensorsSource& source, const SafetensorsTensor& tensor, MutableBytes buffer);

}  // namespace tierpack
