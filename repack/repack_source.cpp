#include "repack/repack_source.h"

#include <algorithm>

#include "base/error.h"
#include "formats/dequant.h"
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

ShardLayout layout_of(const ByteSource& source, const std::string& name, const GgufHeader& header) {
  ShardLayout out;
  out.name = name;
  out.bytes = source.size();
  out.tensors = header.tensors;
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
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
  const fs::path directory = fs::absolute(source.gguf.paths.front()).lexically_normal().parent_path();
  const std::optional<verify::PlacedReference> found = verify::find_reference_above(directory, kFoldersBelowLock);
  if (!found) return;
  for (size_t i = 0; i < source.shards.size(); ++i) {
    RepackShard& shard = source.shards[i];
    const fs::path path = fs::absolute(source.gguf.paths[i]).lexically_normal();
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

void open_pack(const fs::path& path, RepackSource& source) {
  source.pack = Pack::open(path);
  source.profile = source.pack->profile();
  for (size_t i = 0; i < source.pack->manifest().sources.size(); ++i) {
    const SourceShard& shard = source.pack->manifest().sources[i];
    source.packed.push_back(std::make_unique<PackedShard>(*source.pack, i));
    source.shards.push_back({shard.path, source.packed.back().get(), shard.sha256, path.string()});
    GgufHeader header = read_gguf_header(*source.packed.back());
    if (i == 0) source.metadata = std::move(header.metadata);
    source.layouts.push_back(layout_of(*source.packed.back(), shard.path, header));
  }
}

void open_shards(const fs::path& path, RepackSource& source) {
  source.gguf = open_gguf(path);
  // Vocabularies are large: there is one copy.
  source.metadata = std::move(source.gguf.headers.front().metadata);
  for (size_t i = 0; i < source.gguf.files.size(); ++i) {
    const std::string name = source.gguf.paths[i].filename().string();
    source.shards.push_back({name, &source.gguf.files[i], std::nullopt, {}});
    source.layouts.push_back(layout_of(source.gguf.files[i], name, source.gguf.headers[i]));
  }
  take_promises(source);
}

}  // namespace

std::unique_ptr<RepackSource> open_repack_source(const fs::path& path) {
  auto source = std::make_unique<RepackSource>();
  source->name = path.string();
  if (fs::is_directory(path) && fs::exists(path / kPackManifestName)) {
    open_pack(path, *source);
  } else {
    open_shards(path, *source);
  }
  return source;
}

Sha256Digest routing_id(const RepackSource& source, uint32_t layers) {
  Sha256 hash;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const std::string name = fmt::format("blk.{}.ffn_gate_inp.weight", layer);
    for (size_t i = 0; i < source.layouts.size(); ++i) {
      for (const TensorInfo& tensor : source.layouts[i].tensors) {
        if (tensor.name != name) continue;
        const uint64_t columns = tensor.shape.ne[0];
        std::vector<std::byte> row(row_bytes(tensor.dtype, columns));
        std::vector<float> values(columns);
        for (uint64_t r = 0; r < tensor.shape.rows(); ++r) {
          source.shards[i].bytes->read_at(tensor.offset + r * row.size(), row);
          dequantize_row(tensor.dtype, row.data(), values.data(), columns);
          hash.update(std::as_bytes(std::span(values)));
        }
      }
    }
  }
  return hash.finish();
}

}  // namespace tierpack::repack
