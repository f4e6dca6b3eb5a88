// A pack: what repack writes and everything after it reads. A directory NAME.tierpack/ with
//
//   pack.json      this file's description as JSON (see docs/pack_format.md); the mark that the pack is whole
//   metadata.gguf.zst  GGUF without tensors, one zstd frame: hyper-parameters, tokenizer, chat template
//   records.bin    the record index: "TPRECORD", u32 version, u32 zero, u64 count, then 48 bytes a record
//                  {u64 offset, u64 bytes, u32 segment, u32 zero, u64 xxh3 low, u64 xxh3 high, u64 zero}
//   sources.bin    how the source's files are put together again: "TPSOURCE", u32 version, u32 zero, u64 count, 96 bytes a piece
//   dense.bin      segment: one record per tensor, in load order
//   experts.bin    segment: one record per routed expert {gate, up, down}, hottest first
//   rows.bin       segment: lookup tables as 4 KiB pages; absent when the model has none
//   source.bin     the bytes of the source's files that are not in the segments
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
// Version 1 is frozen: docs/pack_format.md says what a later version may change and what readers do about it.
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
#include "formats/source_rows.h"
#include "formats/tensor.h"

namespace tierpack {

inline constexpr uint32_t kPackVersion = 1;
inline constexpr uint64_t kRecordAlignment = 4096;
inline constexpr uint64_t kPartAlignment = 64;  // of gate, up and down inside an expert record
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kPageChecksumBytes = 16;
inline constexpr uint64_t kRecordsHeaderBytes = 24;  // of records.bin
inline constexpr uint64_t kRecordEntryBytes = 48;
inline constexpr uint64_t kSourcesHeaderBytes = 24;  // of sources.bin
inline constexpr uint64_t kSourceEntryBytes = 96;
inline constexpr const char* kPackManifestName = "pack.json";
inline constexpr const char* kPackMetadataName = "metadata.gguf.zst";
inline constexpr const char* kPackRecordsName = "records.bin";
inline constexpr const char* kPackSourcesName = "sources.bin";
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
  // f32 factors beside the part, (scale_rows, scale_columns) row-major at scale_offset in the record, a multiple of 64; none when
  // scale_rows is 0. (1, 1) multiplies every product of the part; of an F8_E4M3 part (out, 1) belongs to rows, anything else to blocks of 128 x 128.
  uint64_t scale_offset = 0;
  uint32_t scale_rows = 0, scale_columns = 0;
  uint64_t scale_bytes() const { return uint64_t{scale_rows} * scale_columns * sizeof(float); }
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

// Rows of a tensor that a source holds in an order of its own: `rows` rows of the source, of `layout.columns` columns, are rows first_row and on of the tensor,
// counted over all its matrices (an expert stack's gate rows over all experts). With ways = 2 the rows with odd numbers are those of `other`, from other_first_row on.
// Transposed, a row of the source is a column of the tensor: source element [i][j] is tensor element [first_row + j][i].
struct RowPiece {
  RowField field = RowField::kValues;
  uint32_t ways = 1;
  bool transposed = false;
  uint32_t other = 0;  // a tensor, see PackManifest::tensor_name
  uint64_t first_row = 0;
  uint64_t other_first_row = 0;
  uint64_t rows = 0;
  uint64_t first_column = 0;
  uint64_t columns = 0;
  ColumnTiles tiles;
};

// How a file of the source is put together again: pieces in order.
struct SourcePiece {
  enum class From : uint32_t { kZeros = 0, kSource = 1, kTensor = 2, kRows = 3 };
  From from = From::kZeros;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // kSource: in source.bin
  uint32_t tensor = 0;  // kTensor, kRows: see PackManifest::tensor_name
  RowPiece rows;        // kRows
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

// A tensor whose values were changed on the way, and how much (relative mean squared error over the tensor).
struct Transcoded {
  std::string tensor;
  DType from = DType::kF32, to = DType::kF32;
  double error = 0;  // sum (x - y)^2 / sum x^2
};

// Everything pack.json, records.bin and sources.bin say.
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
  bool nonfinite_allowed = false;  // the writer was told to take block scales that are NaN or infinite
  std::optional<Sha256Digest> imatrix_id;  // SHA-256 of the file that weighed the columns of transcoded tensors
  std::vector<Transcoded> transcoded;  // empty: the pack gives its source back

  bool reversible() const { return transcoded.empty(); }
  // Tensors are numbered: dense ones in their order, then tables, then gate, up and down of each expert layer. Of a merged stack gate's number stands for both.
  uint32_t tensor_count() const { return static_cast<uint32_t>(dense.size() + rows.size() + 3 * expert_layers.size()); }
  const std::string& tensor_name(uint32_t tensor) const;
  DType tensor_dtype(uint32_t tensor) const;
  std::optional<uint32_t> find_tensor(std::string_view name) const;  // linear
};

std::string encode_pack_json(const PackManifest& manifest, const ModelConfig& config);
std::vector<std::byte> encode_records(const std::vector<Record>& records);
std::vector<std::byte> encode_sources(const std::vector<SourceShard>& shards);
// Proves the SHA-256 of the three and checks every index, range, overlap and name in them; throws kCorrupt, or
// kUnsupported for another version. The SHA-256 of the other files is the caller's to prove.
PackManifest parse_pack(std::string_view pack_json, Bytes records_bin, Bytes sources_bin, const std::string& source);
// Throws kCorrupt unless the experts and tables of the manifest have the shapes that the model's metadata promises.
void require_manifest_fits(const PackManifest& manifest, const ModelConfig& config, const std::string& source);

// The tensors of a pack as a GGUF would have them: dense ones, tables, stacks of experts by layer. Offsets are 0.
std::vector<TensorInfo> pack_tensors(const PackManifest& manifest);

// An open pack. Reading is thread-safe.
class Pack {
 public:
  // Reads and checks pack.json, records.bin, sources.bin and metadata.gguf.zst (with their SHA-256); segments are opened, not read, and
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
