// GGUF v2 / v3: reading of untrusted files, split sets, and writing of headers.
//
// Layout: "GGUF", u32 version, i64 tensor count, i64 kv count, kv pairs, tensor infos, zeros up to the alignment, data.
// String = u64 length + bytes. Every count is checked against the bytes that remain before anything is allocated, and
// what a header may hold at all is bounded by GgufLimits, so that reading costs a bounded amount of memory whatever the
// bytes. Accepted beyond what ggml's own reader takes: tensors in any order of offsets, and gaps between them. Refused:
// ranges that overlap, leave the file or are not aligned, names that repeat, dimensions of 0. See docs/gguf.md.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "formats/metadata.h"
#include "formats/tensor.h"

namespace tierpack {

// Largest header accepted, several times what real models have. Together they keep a hostile file below about 400 MiB.
struct GgufLimits {
  static constexpr uint64_t kHeaderBytes = uint64_t{128} << 20;
  static constexpr uint64_t kStringBytes = uint64_t{64} << 20;
  static constexpr uint64_t kKeyBytes = 65535;
  static constexpr uint64_t kNameBytes = 255;
  static constexpr uint64_t kKeys = 65536;
  static constexpr uint64_t kArrayElements = uint64_t{1} << 22;  // of all arrays of a file together
  static constexpr uint64_t kTensors = uint64_t{1} << 18;        // of all shards together
  static constexpr uint64_t kAlignmentMax = uint64_t{1} << 20;
  static constexpr uint64_t kShards = 1000;
};

// The head of one GGUF file.
struct GgufHeader {
  uint32_t version = 3;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; offsets are absolute
  uint64_t alignment = 32;
  uint64_t data_offset = 0;  // where tensor data begins: bytes [0, data_offset) are the header with its padding
  uint64_t file_bytes = 0;
};

// Parses and checks the head of `source`, reading little more than the head itself. The second form is for when only a
// prefix is at hand, as when a download has begun: the head must lie in the prefix, and data ranges are checked against
// `promised_bytes`. Throws kCorrupt; kUnsupported for versions, byte orders and tensor types this program does not
// read.
GgufHeader read_gguf_header(const ByteSource& source);
GgufHeader read_gguf_header(const ByteSource& prefix, uint64_t promised_bytes);

// A set of shards opened together. A file that is not split is a set of one.
struct GgufSource {
  std::vector<std::filesystem::path> paths;
  std::vector<File> files;
  std::vector<GgufHeader> headers;
  std::vector<TensorInfo> tensors;                  // of all shards, shard by shard
  std::unordered_map<std::string, size_t> by_name;  // index into `tensors`
  const Metadata& metadata() const { return headers.front().metadata; }
  const TensorInfo* find(std::string_view name) const;
};

// Opens the file and, for "...-00001-of-0000N.gguf", its N-1 siblings. `path` may also be a directory that holds
// exactly one GGUF model, split or not, at most three folders down; mmproj-*, mtp-* and hidden files are ignored there.
// Missing shards, duplicate names over shards or a tensor total other than split.tensors.count are kCorrupt; a shard
// other than the first, and a directory with no or several models, are kUsage.
GgufSource open_gguf(const std::filesystem::path& path);

// Writes a GGUF v3 head: metadata in order, then tensor infos, whose `offset` is here relative to the data section.
// The result ends at the aligned start of the data section. `alignment` must be what the metadata says
// (general.alignment, or 32 without it).
std::vector<std::byte> encode_gguf_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors,
                                          uint64_t alignment = 32);

}  // namespace tierpack
