// A pack: what repack writes and everything after it reads. A directory NAME.tierpack/ with
//
//   pack.json      this file's description as JSON (see docs/pack_format.md); the mark that the pack is whole
//   metadata.gguf  GGUF without tensors: hyper-parameters, tokenizer, chat template
//   records.bin    the record index: "TPRECORD", u32 version, u32 zero, u64 count, then 48 bytes a record
//                  {u64 offset, u64 bytes, u32 segment, u32 zero, u64 xxh3 low, u64 xxh3 high, u64 zero}
//   dense.bin      segment: one record per tensor, in load order
//   experts.bin    segment: one record per routed expert {gate, up, down}, hottest first
//   rows.bin       segment: lookup tables as 4 KiB pages; absent when the model has none
//   source.bin     the bytes of the source shards that are not tensor data
//   profile.json   the profile that ordered the experts; absent when there was none
//
// Every record begins at a multiple of 4096 and is followed by zeros up to the next one. Its checksum is the XXH3-128 of
// its bytes without that padding. A page of rows.bin holds floor((4096 - 16) / row_bytes) whole rows (a row longer than
// that takes ceil((row_bytes + 16) / 4096) pages of its own), zeros, and in its last 16 bytes the XXH3-128 (low, high) of
// everything before it, seeded with the page's index in the segment, so that one read of 4 KiB proves itself.
//
// Quantised matrices of dense.bin and experts.bin lie in row groups (formats/row_groups.h): each matrix {ne0, ne1} of a tensor and
// each part of an expert on its own. Plain numbers, the rows behind the last whole group, and tables lie row by row.
//
// docs/pack_format.md says the same exactly enough to write a second reader. Every number of a pack is bound: pack.json
// ends with the SHA-256 of its own text and holds the SHA-256 of every other file.
//
// Version 0 is not frozen: a reader accepts exactly the version it was built for.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "formats/metadata.h"
#include "formats/model_config.h"
#include "formats/profile.h"
#include "formats/tensor.h"

namespace tierpack {

inline constexpr uint32_t kPackVersion = 0;
inline constexpr uint64_t kRecordAlignment = 4096;
inline constexpr uint64_t kPartAlignment = 64;  // of gate, up and down inside an expert record
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kPageChecksumBytes = 16;
inline constexpr uint64_t kRecordsHeaderBytes = 24;  // of records.bin
inline constexpr uint64_t kRecordEntryBytes = 48;
inline constexpr const char* kPackManifestName = "pack.json";
inline constexpr const char* kPackMetadataName = "metadata.gguf";
inline constexpr const char* kPackRecordsName = "records.bin";
inline constexpr const char* kPackSourceName = "source.bin";
inline constexpr const char* kPackProfileName = "profile.json";

enum class Segment : uint32_t { kDense = 0, kExperts = 1, kRows = 2 };
const char* segment_file_name(Segment segment);

struct Record {
  uint64_t offset = 0;  // in the segment file
  uint64_t bytes = 0;   // without padding
  Segment segment = Segment::kDense;
  Xxh128 checksum;
};

struct DenseTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint32_t record = 0;  // index into Pack::records
};

// One of the three matrices of an expert, the same place in every record of its layer. Its scales, if it has any, are
// row-major F32 in the same record, at a multiple of kPartAlignment: one for the matrix (1 x 1, the only form of a
// quantised matrix), one a row (out x 1), or one for each 128 x 128 weights, with smaller blocks at the lower and right
// edge.
struct ExpertPart {
  std::string tensor;  // the source's stack, "blk.3.ffn_gate_exps.weight"; gate and up may share a merged stack
  DType dtype = DType::kF32;
  uint64_t in = 0;     // shape {in, out}
  uint64_t out = 0;
  uint64_t offset = 0;  // in the record
  uint64_t bytes = 0;
  uint64_t scale_offset = 0;                   // in the record; scale_rows * scale_columns f32
  uint32_t scale_rows = 0, scale_columns = 0;  // scales along out and in; 0 = no scales
};

struct ExpertLayer {
  uint32_t layer = 0;         // block number
  uint32_t experts = 0;
  uint32_t first_record = 0;  // expert e is record first_record + e
  uint64_t record_bytes = 0;  // of one expert, without padding: a property of the layer
  ExpertPart gate, up, down;
  std::array<const ExpertPart*, 3> parts() const { return {&gate, &up, &down}; }
};

struct RowTable {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;               // {row elements, rows}
  uint64_t row_bytes = 0;
  uint64_t rows_per_page = 0;  // 0 when a row takes several pages
  uint64_t pages_per_row = 1;
  uint64_t first_page = 0;     // in the segment
  uint64_t pages = 0;
  // What one checksum covers: a page of whole rows, or all pages of one long row.
  uint64_t unit_rows() const { return rows_per_page > 0 ? rows_per_page : 1; }
  uint64_t unit_bytes() const { return pages_per_row * kPageBytes; }
};

// How a source shard is put together again: pieces in order.
struct SourcePiece {
  enum class From { kSource, kZeros, kTensor };
  From from = From::kZeros;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // kSource: in source.bin
  std::string tensor;   // kTensor
};

struct SourceShard {
  std::string path;  // file name
  uint64_t bytes = 0;
  Sha256Digest sha256;
  std::vector<SourcePiece> pieces;
};

struct PackFile {
  std::string name;
  uint64_t bytes = 0;
  Sha256Digest sha256;
};

// Everything pack.json and records.bin say.
struct PackManifest {
  std::string tool_version;
  Sha256Digest routing_id;  // see formats/profile.h
  std::vector<DenseTensor> dense;
  std::vector<ExpertLayer> expert_layers;
  std::vector<RowTable> rows;
  std::vector<SourceShard> sources;
  std::vector<PackFile> files;  // all files of the pack except pack.json
  std::optional<Sha256Digest> profile_id;
  std::vector<Record> records;
};

std::string encode_pack_json(const PackManifest& manifest, const ModelConfig& config);
std::vector<std::byte> encode_records(const std::vector<Record>& records);
// Proves the SHA-256 of both texts and checks every index, range, overlap and name in them; throws kCorrupt, or
// kUnsupported for another version. The SHA-256 of the other files is the caller's to prove.
PackManifest parse_pack(std::string_view pack_json, Bytes records_bin, const std::string& source);
// Throws kCorrupt unless the experts and tables of the manifest have the shapes that the model's metadata promises.
void require_manifest_fits(const PackManifest& manifest, const ModelConfig& config, const std::string& source);

// An open pack. Reading is thread-safe.
class Pack {
 public:
  // Reads and checks pack.json, records.bin and metadata.gguf (with their SHA-256); segments are opened, not read, and
  // their sizes compared.
  static Pack open(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const PackManifest& manifest() const { return manifest_; }
  const Metadata& metadata() const { return metadata_; }
  const ModelConfig& config() const { return config_; }
  std::optional<Profile> profile() const;  // parsed from profile.json, if there is one

  const DenseTensor* find_dense(std::string_view name) const;
  const ExpertLayer* find_expert_layer(uint32_t layer) const;
  const RowTable* find_rows(std::string_view name) const;

  // Throws kUsage when the model has no such segment.
  const File& segment(Segment segment) const;
  const File& source_bin() const { return *source_bin_; }
  // Reads one record into `out` (at least record.bytes) and proves it; kCorrupt names record, segment and offset.
  void read_record(uint32_t record, MutableBytes out) const;
  // Reads one row of a table into `out` (row_bytes) and proves the page that held it.
  void read_row(const RowTable& table, uint64_t row, MutableBytes out) const;

 private:
  Pack() = default;
  std::filesystem::path directory_;
  PackManifest manifest_;
  Metadata metadata_;
  ModelConfig config_;
  std::array<std::optional<File>, 3> segments_;
  std::optional<File> source_bin_;
  std::unordered_map<std::string, uint32_t> dense_index_;
};

}  // namespace tierpack
