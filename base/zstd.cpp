#include "base/zstd.h"

#include <zstd.h>

#include "base/error.h"

namespace tierpack {

namespace {

uint64_t content_bytes(Bytes frame, uint64_t limit, const std::string& source) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    fail(ErrorKind::kCorrupt, "{}: is not a zstd frame that says its size", source);
  }
  if (size > limit) fail(ErrorKind::kCorrupt, "{}: holds {} bytes, more than {}", source, size, limit);
  return size;
}

}  // namespace

std::vector<std::byte> zstd_compress(Bytes data, int level) {
  std::vector<std::byte> out(ZSTD_compressBound(data.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), level);
  TIERPACK_CHECK(ZSTD_isError(size) == 0);
  out.resize(size);
  return out;
}

uint64_t zstd_bound(uint64_t bytes) { return ZSTD_compressBound(bytes); }

void zstd_decompress_into(Bytes frame, MutableBytes out, const std::string& source) {
  if (content_bytes(frame, out.size(), source) != out.size()) {
    fail(ErrorKind::kCorrupt, "{}: does not hold the {} bytes it should", source, out.size());
  }
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    fail(ErrorKind::kCorrupt, "{}: is more or less than one zstd frame", source);
  }
  const size_t size = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) fail(ErrorKind::kCorrupt, "{}: damaged zstd frame: {}", source, ZSTD_getErrorName(size));
  if (size != out.size()) fail(ErrorKind::kCorrupt, "{}: gives {} bytes where {} were promised", source, size, out.size());
}

std::vector<std::byte> zstd_decompress(Bytes frame, uint64_t limit, const std::string& source) {
  std::vector<std::byte> out(content_bytes(frame, limit, source));
  zstd_decompress_into(frame, out, source);
  return out;
}

}  // namespace tierpack
