// GGUF v2 / v3: reading of untrusted files, split sets, and writing of headers.
//
// Layout: "GGUF", u32 version, i64 tensor count, i64 kv count, kv pairs, tensor infos, zeros up to the alignment, data.
// String = u64 length + bytes. Every count is checked against the bytes that remain before anything is allocated.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/metadata.h"
#include "formats/tensor.h"

namespace tierpack {

// The head of one GGUF file.
struct GgufHeader {
  uint32_t version = 3;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; offsets are absolute
  uint64_t alignment = 32;
  uint64_t data_offset = 0;  // where tensor data begins: bytes [0, data_offset) are the header with its padding
  uint64_t file_bytes = 0;
};

// Parses and checks the head of `source`. With `whole` false (only a prefix is at hand, as when a download has begun or
// a URL is inspected) data ranges are checked against `promised_bytes` instead of the source's own size.
GgufHeader read_gguf_header(const ByteSource& source);
GgufHeader read_gguf_header(const ByteSource& prefix, uint64_t promised_bytes);

// A set of shards opened together. A file that is not split is a set of one.
struct GgufSource {
  std::vector<std::filesystem::path> paths;
  std::vector<File> files;
  std::vector<GgufHeader> headers;
  std::vector<TensorInfo> tensors;  // of all shards, shard by shard
  const Metadata& metadata() const { return headers.front().metadata; }
  const TensorInfo* find(std::string_view name) const;
};

// Opens the file and, for "...-00001-of-0000N.gguf", its N-1 siblings. `path` may also be a directory that holds
// exactly one GGUF model (split or not; mmproj files are ignored). Missing shards, duplicate names over shards or a
// tensor total other than split.tensors.count are kCorrupt; a shard other than the first is kUsage.
GgufSource open_gguf(const std::filesystem::path& path);

// Writes a GGUF v3 head: metadata in order, then tensor infos whose offsets are taken relative to the data section.
// The result ends at the aligned start of the data section.
std::vector<std::byte> encode_gguf_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors,
                                          uint64_t alignment = 32);

}  // namespace tierpack
