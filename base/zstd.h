// Whole buffers through zstd, as one frame that says how many bytes it holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tierpack {

inline constexpr int kZstdLevel = 12;

std::vector<std::byte> zstd_compress(Bytes data, int level = kZstdLevel);
// Upper bound of the bytes that zstd_compress gives for `bytes`.
uint64_t zstd_bound(uint64_t bytes);
// Throws kCorrupt, naming `source`, for anything but one whole frame of at most `limit` bytes.
std::vector<std::byte> zstd_decompress(Bytes frame, uint64_t limit, const std::string& source);
// Into `out`, which the frame must fill exactly.
void zstd_decompress_into(Bytes frame, MutableBytes out, const std::string& source);

}  // namespace tierpack
