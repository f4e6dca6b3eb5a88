#include "formats/pack.h"

#include <algorithm>

#include "base/error.h"
#include "base/zstd.h"
#include "formats/gguf.h"
#include "formats/pack_layout.h"

namespace tierpack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;
constexpr uint64_t kRecordsBytesMax = uint64_t{1} << 30;
constexpr uint64_t kMetadataBytesMax = GgufLimits::kHeaderBytes;

const PackFile* find_file(const PackManifest& manifest, std::string_view name) {
  for (const PackFile& file : manifest.files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

// Content of a small file of the pack, proved by its SHA-256.
void require_digest(const PackManifest& manifest, const char* name, Bytes content, const fs::path& path) {
  const Sha256Digest found = Sha256::of(content);
  const PackFile* file = find_file(manifest, name);
  TIERPACK_CHECK(file != nullptr);
  if (found != file->sha256) {
    fail(ErrorKind::kCorrupt, "{}: SHA-256 is {}, {} says {}", path.string(), found.hex(), kPackManifestName,
         file->sha256.hex());
  }
}

File open_sized(const fs::path& directory, const PackManifest& manifest, const char* name) {
  File file = File::open(directory / name, File::Mode::kRead);
  const uint64_t expected = find_file(manifest, name)->bytes;
  if (file.size() != expected) {
    fail(ErrorKind::kCorrupt, "{}: has {} bytes, {} says {}", file.name(), file.size(), kPackManifestName, expected);
  }
  return file;
}

}  // namespace

const char* segment_file_name(Segment segment) {
  switch (segment) {
    case Segment::kDense: return "dense.bin";
    case Segment::kExperts: return "experts.bin";
    case Segment::kRows: return "rows.bin";
  }
  TIERPACK_CHECK(false);
  return "";
}

const std::string& PackManifest::tensor_name(uint32_t tensor) const {
  TIERPACK_CHECK(tensor < tensor_count());
  if (tensor < dense.size()) return dense[tensor].name;
  tensor -= static_cast<uint32_t>(dense.size());
  if (tensor < rows.size()) return rows[tensor].name;
  tensor -= static_cast<uint32_t>(rows.size());
  return expert_layers[tensor / 3].parts()[tensor % 3]->tensor;
}

DType PackManifest::tensor_dtype(uint32_t tensor) const {
  TIERPACK_CHECK(tensor < tensor_count());
  if (tensor < dense.size()) return dense[tensor].dtype;
  tensor -= static_cast<uint32_t>(dense.size());
  if (tensor < rows.size()) return rows[tensor].dtype;
  tensor -= static_cast<uint32_t>(rows.size());
  return expert_layers[tensor / 3].parts()[tensor % 3]->dtype;
}

std::vector<TensorInfo> pack_tensors(const PackManifest& manifest) {
  std::vector<TensorInfo> out;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) {
    TensorInfo& tensor = out.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.bytes = checked_tensor_bytes(dtype, shape).value();
  };
  for (const DenseTensor& tensor : manifest.dense) add(tensor.name, tensor.dtype, tensor.shape);
  for (const RowTable& table : manifest.rows) add(table.name, table.dtype, table.shape);
  for (const ExpertLayer& layer : manifest.expert_layers) {
    const bool merged = layer.gate.tensor == layer.up.tensor;
    for (const ExpertPart* part : layer.parts()) {
      if (merged && part == &layer.up) continue;
      Shape shape;
      shape.ne = {part->in, part->out * (merged && part == &layer.gate ? 2 : 1), layer.experts, 1};
      shape.dims = 3;
      add(part->tensor, part->dtype, shape);
    }
  }
  return out;
}

std::optional<uint32_t> PackManifest::find_tensor(std::string_view name) const {
  for (uint32_t i = 0; i < tensor_count(); ++i) {
    if (tensor_name(i) == name) return i;
  }
  return std::nullopt;
}

Pack Pack::open(const fs::path& directory) {
  if (!fs::is_directory(directory)) fail(ErrorKind::kUsage, "{}: is not a pack (a directory was expected)", directory.string());
  if (!fs::exists(directory / kPackManifestName)) {
    fail(ErrorKind::kUsage, "{}: is not a pack: it has no {}. Write one with: tierpack repack SOURCE --to NAME.tierpack",
         directory.string(), kPackManifestName);
  }
  Pack pack;
  pack.directory_ = directory;
  const std::string source = directory.string();
  const std::string json = read_text_file(directory / kPackManifestName, kManifestBytesMax);
  const File records_file = File::open(directory / kPackRecordsName, File::Mode::kRead);
  const std::vector<std::byte> records = read_all(records_file, kRecordsBytesMax);
  // Packs of other versions may have none; parse_pack says what they are.
  std::vector<std::byte> sources;
  if (fs::exists(directory / kPackSourcesName)) {
    sources = read_all(File::open(directory / kPackSourcesName, File::Mode::kRead), kRecordsBytesMax);
  }
  pack.manifest_ = parse_pack(json, records, sources, source);

  const File metadata_file = open_sized(directory, pack.manifest_, kPackMetadataName);
  const std::vector<std::byte> metadata = read_all(metadata_file, kMetadataBytesMax);
  require_digest(pack.manifest_, kPackMetadataName, metadata, directory / kPackMetadataName);
  const std::vector<std::byte> head = zstd_decompress(metadata, kMetadataBytesMax, metadata_file.name());
  GgufHeader header = read_gguf_header(MemorySource(head, metadata_file.name()));
  pack.metadata_ = std::move(header.metadata);
  pack.config_ = read_model_config(pack.metadata_);
  require_manifest_fits(pack.manifest_, pack.config_, source);

  for (const Segment segment : {Segment::kDense, Segment::kExperts, Segment::kRows}) {
    if (find_file(pack.manifest_, segment_file_name(segment)) == nullptr) continue;
    pack.segments_[static_cast<size_t>(segment)] = open_sized(directory, pack.manifest_, segment_file_name(segment));
  }
  pack.source_bin_ = open_sized(directory, pack.manifest_, kPackSourceName);
  for (uint32_t i = 0; i < pack.manifest_.dense.size(); ++i) pack.dense_index_.emplace(pack.manifest_.dense[i].name, i);
  return pack;
}

std::optional<Profile> Pack::profile() const {
  if (!manifest_.profile_id) return std::nullopt;
  const fs::path path = directory_ / kPackProfileName;
  const std::string text = read_text_file(path, kManifestBytesMax);
  require_digest(manifest_, kPackProfileName, as_bytes(text), path);
  Profile profile = parse_profile(text, path.string());
  if (profile.id() != *manifest_.profile_id) {
    fail(ErrorKind::kCorrupt, "{}: is profile {}, {} says {}", path.string(), profile.id().hex(), kPackManifestName,
         manifest_.profile_id->hex());
  }
  return profile;
}

const DenseTensor* Pack::find_dense(std::string_view name) const {
  const auto found = dense_index_.find(std::string(name));
  return found == dense_index_.end() ? nullptr : &manifest_.dense[found->second];
}

const ExpertLayer* Pack::find_expert_layer(uint32_t layer) const {
  const auto& layers = manifest_.expert_layers;
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer,
                                      [](const ExpertLayer& item, uint32_t value) { return item.layer < value; });
  return found != layers.end() && found->layer == layer ? &*found : nullptr;
}

const RowTable* Pack::find_rows(std::string_view name) const {
  for (const RowTable& table : manifest_.rows) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

const File& Pack::segment(Segment segment) const {
  const std::optional<File>& file = segments_[static_cast<size_t>(segment)];
  if (!file) fail(ErrorKind::kUsage, "{}: has no {}", directory_.string(), segment_file_name(segment));
  return *file;
}

void Pack::read_record(uint32_t index, MutableBytes out) const {
  TIERPACK_CHECK(index < manifest_.records.size());
  const Record& record = manifest_.records[index];
  TIERPACK_CHECK(out.size() >= record.bytes);
  const MutableBytes bytes = out.first(record.bytes);
  const File& file = segment(record.segment);
  file.read_at(record.offset, bytes);
  const Xxh128 found = xxh3_128(bytes);
  if (found != record.checksum) {
    fail(ErrorKind::kCorrupt, "{}: record {} at byte {} ({} bytes) has checksum {}, the pack says {}; run tierpack verify {}",
         file.name(), index, record.offset, record.bytes, found.hex(), record.checksum.hex(), directory_.string());
  }
}

void Pack::read_row(const RowTable& table, uint64_t row, MutableBytes out) const {
  TIERPACK_CHECK(row < table.shape.rows() && out.size() >= table.row_bytes);
  const uint64_t page = table.first_page + row / table.unit_rows() * table.pages_per_row;
  std::array<std::byte, kPageBytes> one;
  std::vector<std::byte> several;
  MutableBytes unit = one;
  if (table.pages_per_row > 1) {
    several.resize(table.unit_bytes());
    unit = several;
  }
  const File& file = segment(Segment::kRows);
  file.read_at(page * kPageBytes, unit);
  if (!unit_is_intact(unit, page)) {
    fail(ErrorKind::kCorrupt, "{}: page {} (row {} of {}) does not match its checksum; run tierpack verify {}", file.name(),
         page, row, table.name, directory_.string());
  }
  std::copy_n(unit.begin() + static_cast<ptrdiff_t>(row % table.unit_rows() * table.row_bytes), table.row_bytes, out.begin());
}

}  // namespace tierpack
