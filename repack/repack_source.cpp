#include "repack/repack_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/expert_stacks.h"
#include "repack/checkpoint_source.h"
#include "verify/promises.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

bool is_zeros(const ByteSource& source, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> buffer(std::min(bytes, kPieceBytes));
  while (bytes > 0) {
    const MutableBytes piece = MutableBytes(buffer).first(std::min(bytes, kPieceBytes));
    source.read_at(offset, piece);
    if (std::any_of(piece.begin(), piece.end(), [](std::byte b) { return b != std::byte{0}; })) return false;
    offset += piece.size();
    bytes -= piece.size();
  }
  return true;
}

// Factors of expert stacks are taken out of the tensors: they are kept as bytes of the shard, and their values go into the experts' records.
ShardLayout layout_of(const RepackShard& shard, const GgufHeader& header, std::vector<TensorInfo>& scales) {
  const ByteSource& source = *shard.bytes;
  ShardLayout out;
  out.name = shard.name;
  out.bytes = source.size();
  for (const TensorInfo& tensor : header.tensors) (is_expert_scale(tensor.name) ? scales : out.tensors).push_back(tensor);
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
  if (shard.gaps) {
    out.gaps = *shard.gaps;
    return out;
  }
  out.gaps.push_back({0, std::min(header.data_offset, out.bytes), false});
  uint64_t at = out.gaps[0].bytes;
  const auto add_gap = [&](uint64_t end) {
    if (end > at) out.gaps.push_back({at, end - at, is_zeros(source, at, end - at)});
  };
  for (const TensorInfo& tensor : out.tensors) {
    add_gap(tensor.offset);
    at = tensor.offset + tensor.bytes;
  }
  add_gap(out.bytes);
  return out;
}

// A lock lies in the directory it was fetched into, the shards there or in folders below it.
constexpr int kFoldersBelowLock = 3;

void take_promises(RepackSource& source) {
  if (source.shards.front().path.empty()) return;  // elsewhere
  const fs::path directory = fs::absolute(source.shards.front().path).lexically_normal().parent_path();
  const std::optional<verify::PlacedReference> found = verify::find_reference_above(directory, kFoldersBelowLock);
  if (!found) return;
  for (size_t i = 0; i < source.shards.size(); ++i) {
    RepackShard& shard = source.shards[i];
    const fs::path path = fs::absolute(shard.path).lexically_normal();
    const verify::PromisedFile* promised = found->reference.find(path.lexically_relative(found->directory).generic_string());
    if (promised == nullptr) {
      // A reference further up may be about other things altogether.
      if (found->directory == directory) source.unproved.push_back(shard.name);
      continue;
    }
    if (promised->bytes && *promised->bytes != shard.bytes->size()) {
      fail(ErrorKind::kCorrupt, "{}: has {} bytes, {} promises {}; fetch it again", shard.bytes->name(),
           shard.bytes->size(), promised->origin, *promised->bytes);
    }
    shard.promised = promised->sha256;
    shard.promised_by = promised->origin;
  }
}

int64_t time_of(const fs::path& path) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(fs::last_write_time(path).time_since_epoch()).count();
}

void add_file(RepackSource& source, const fs::path& path, const File& file, bool weights) {
  RepackShard& shard = source.shards.emplace_back();
  shard.name = path.filename().string();
  shard.bytes = &file;
  shard.path = path;
  shard.time = time_of(path);
  shard.removable = weights;
}

// Takes what the head of a GGUF shard says; the metadata are the first one's.
void add_gguf(RepackSource& source, size_t shard, GgufHeader header) {
  std::vector<TensorInfo> scales;
  source.layouts.push_back(layout_of(source.shards[shard], header, scales));
  for (TensorInfo& scale : scales) {
    if (scale.dtype != DType::kF32) {
      fail(ErrorKind::kUnsupported, "{}: {} is {}, factors of experts are F32", source.name, scale.name, dtype_name(scale.dtype));
    }
    scale.shard = static_cast<uint32_t>(shard);
    source.derived.push_back(scale);
  }
  // Vocabularies are large: there is one copy.
  if (shard == 0 && source.metadata.entries().empty()) source.metadata = std::move(header.metadata);
  if (source.derive) return;
  source.derive = [&source](uint32_t i, uint64_t matrix) {
    const TensorInfo& scale = source.derived[i];
    const uint64_t count = scale.shape.ne[2] > 1 ? scale.shape.ne[0] * scale.shape.ne[1] : 1;  // {experts}, or {columns, rows, experts}
    std::vector<float> out(count);
    source.shards[scale.shard].bytes->read_at(scale.offset + matrix * count * sizeof(float), std::as_writable_bytes(std::span(out)));
    return out;
  };
}

void open_pack(const fs::path& path, RepackSource& source) {
  source.pack = Pack::open(path);
  if (!source.pack->manifest().reversible()) {
    fail(ErrorKind::kUnsupported, "{}: its tensors were transcoded, so it cannot be the source of another pack; repack its own source", path.string());
  }
  source.profile = source.pack->profile();
  for (size_t i = 0; i < source.pack->manifest().sources.size(); ++i) {
    const SourceShard& shard = source.pack->manifest().sources[i];
    source.packed.push_back(std::make_unique<PackedShard>(*source.pack, i));
    RepackShard& item = source.shards.emplace_back();
    item.name = shard.path;
    item.bytes = source.packed.back().get();
    item.promised = shard.sha256;
    item.promised_by = path.string();
  }
  source.metadata = source.pack->metadata();
}

void open_shards(const fs::path& path, RepackSource& source) {
  source.gguf = open_gguf(path);
  for (size_t i = 0; i < source.gguf.files.size(); ++i) {
    const fs::path& file = source.gguf.paths[i];
    add_file(source, file, source.gguf.files[i], true);
  }
}

void open_checkpoint(const fs::path& path, RepackSource& source) {
  for (const fs::path& file : checkpoint_files(path)) {
    source.files.push_back(std::make_unique<File>(File::open(file, File::Mode::kRead)));
    add_file(source, file, *source.files.back(), file.extension() == ".safetensors");
  }
}

}  // namespace

std::unique_ptr<RepackSource> open_repack_source(const fs::path& path) {
  auto source = std::make_unique<RepackSource>();
  source->name = path.string();
  if (fs::is_directory(path) && fs::exists(path / kPackManifestName)) {
    open_pack(path, *source);
  } else if (is_checkpoint(path)) {
    open_checkpoint(path, *source);
  } else {
    open_shards(path, *source);
  }
  read_repack_source(*source);
  return source;
}

void read_repack_source(RepackSource& source) {
  if (!source.pack) take_promises(source);
  const bool checkpoint = std::any_of(source.shards.begin(), source.shards.end(),
                                      [](const RepackShard& shard) { return shard.name.ends_with(".safetensors"); });
  if (checkpoint) return read_checkpoint(source);
  for (size_t i = 0; i < source.shards.size(); ++i) {
    add_gguf(source, i, source.gguf.headers.empty() ? read_gguf_header(*source.shards[i].bytes) : std::move(source.gguf.headers[i]));
  }
}

void RepackSource::remove(uint32_t shard) const {
  const RepackShard& item = shards[shard];
  if (item.removed) return;
  TIERPACK_CHECK(item.removable && !item.path.empty());
  // Only the very file that was read is deleted.
  struct stat by_path {};
  struct stat by_fd {};
  const auto* file = dynamic_cast<const File*>(item.bytes);
  if (file == nullptr && !fs::exists(item.path)) return;  // an earlier run did
  if (file == nullptr || ::lstat(item.path.c_str(), &by_path) != 0 || ::fstat(file->fd(), &by_fd) != 0 || by_path.st_dev != by_fd.st_dev ||
      by_path.st_ino != by_fd.st_ino || by_path.st_nlink != 1 || (item.time != 0 && time_of(item.path) != item.time)) {
    fail(ErrorKind::kCorrupt, "{}: changed while it was read; it was not deleted. Run the same command again", item.path.string());
  }
  std::error_code failed;
  fs::remove(item.path, failed);
  if (failed) fail(ErrorKind::kIo, "cannot delete {}: {}", item.path.string(), failed.message());
  // An open file keeps its bytes on the disk.
  const_cast<File*>(file)->close();
  const fs::path parent = item.path.parent_path();
  sync_directory(parent.empty() ? fs::path(".") : parent);
}

namespace {

// The rows of a tensor as f32, from wherever the source has them.
void hash_rows(const RepackSource& source, const std::string& name, Sha256& hash) {
  std::vector<std::byte> row;
  std::vector<float> values;
  const auto add = [&](const RepackShard& shard, uint64_t offset, DType dtype, uint64_t columns, uint64_t rows) {
    row.resize(row_bytes(dtype, columns));
    values.resize(columns);
    for (uint64_t r = 0; r < rows; ++r) {
      shard.bytes->read_at(offset + r * row.size(), row);
      dequantize_row(dtype, row.data(), values.data(), columns);
      hash.update(std::as_bytes(std::span(values)));
    }
  };
  for (size_t i = 0; i < source.layouts.size(); ++i) {
    for (const TensorInfo& tensor : source.layouts[i].tensors) {
      if (tensor.name == name) add(source.shards[i], tensor.offset, tensor.dtype, tensor.shape.ne[0], tensor.shape.rows());
    }
    for (const MovedRows& moved : source.layouts[i].moved) {
      const TensorInfo& tensor = source.tensors[moved.tensor];
      if (tensor.name != name) continue;
      if (moved.rows.field != RowField::kValues) fail(ErrorKind::kUnsupported, "{}: the router {} is quantised", source.name, name);
      add(source.shards[i], moved.offset, tensor.dtype, moved.rows.columns, moved.rows.rows);
    }
  }
  for (uint32_t i = 0; i < source.derived.size(); ++i) {
    if (source.derived[i].name != name) continue;
    values = source.derive(i, 0);
    hash.update(std::as_bytes(std::span(values)));
  }
}

}  // namespace

Sha256Digest routing_id(const RepackSource& source, uint32_t layers) {
  Sha256 hash;
  for (uint32_t layer = 0; layer < layers; ++layer) hash_rows(source, fmt::format("blk.{}.ffn_gate_inp.weight", layer), hash);
  return hash.finish();
}

}  // namespace tierpack::repack
