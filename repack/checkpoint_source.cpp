#include "repack/checkpoint_source.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/hf_metadata.h"
#include "formats/quant_decode.h"
#include "formats/safetensors.h"
#include "repack/hf_mapping.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr uint64_t kSmallFileBytes = uint64_t{256} << 20;

// Reads of another source, so that it can be owned twice.
class Forward final : public ByteSource {
 public:
  explicit Forward(const ByteSource& to) : to_(to) {}
  uint64_t size() const override { return to_.size(); }
  void read_at(uint64_t offset, MutableBytes out) const override { to_.read_at(offset, out); }
  const std::string& name() const override { return to_.name(); }

 private:
  const ByteSource& to_;
};

// Everything that the derived values are computed from.
struct Checkpoint {
  SafetensorsSource tensors;
  QuantCatalog catalog;
  HfMapping mapping;
};

std::optional<size_t> shard_named(const RepackSource& source, std::string_view name) {
  for (size_t i = 0; i < source.shards.size(); ++i) {
    if (source.shards[i].name == name) return i;
  }
  return std::nullopt;
}

std::string text_of(const RepackSource& source, std::string_view name) {
  const std::optional<size_t> shard = shard_named(source, name);
  if (!shard) return {};
  const std::vector<std::byte> bytes = read_all(*source.shards[*shard].bytes, kSmallFileBytes);
  return std::string(as_text(bytes));
}

SafetensorsSource open_tensors(const RepackSource& source) {
  const auto open = [&](const std::string& name) -> std::unique_ptr<ByteSource> {
    const std::optional<size_t> shard = shard_named(source, name);
    if (!shard) fail(ErrorKind::kCorrupt, "{}: the index lists the shard {}, which is not there; fetch the missing file", source.name, name);
    return std::make_unique<Forward>(*source.shards[*shard].bytes);
  };
  for (const RepackShard& shard : source.shards) {
    if (!shard.name.ends_with(kIndexSuffix)) continue;
    return SafetensorsSource::open_index(text_of(source, shard.name), shard.bytes->name(), open);
  }
  for (const RepackShard& shard : source.shards) {
    if (shard.name.ends_with(kFileSuffix)) return SafetensorsSource::open_single(open(shard.name), shard.name);
  }
  fail(ErrorKind::kUsage, "{}: holds no .safetensors file", source.name);
}

Metadata metadata_of(const RepackSource& source, const SafetensorsSource& tensors) {
  HfCheckpointTexts texts;
  texts.config = text_of(source, "config.json");
  texts.generation_config = text_of(source, "generation_config.json");
  texts.tokenizer = text_of(source, "tokenizer.json");
  texts.tokenizer_config = text_of(source, "tokenizer_config.json");
  texts.chat_template_jinja = text_of(source, "chat_template.jinja");
  texts.merges = text_of(source, "merges.txt");
  texts.vocab = text_of(source, "vocab.json");
  texts.source = source.name;
  // The directory's name, however it was typed.
  const fs::path& file = source.shards.front().path;
  const fs::path place = source.pack ? fs::path() : file.empty() ? fs::path(source.name) : fs::absolute(file).lexically_normal().parent_path();
  texts.name = place.filename().string();
  if (texts.config.empty()) fail(ErrorKind::kCorrupt, "{}: has no config.json; fetch the whole checkpoint", source.name);
  const auto integers = [&](std::string_view name) -> std::optional<std::vector<int64_t>> {
    const SafetensorsTensor* tensor = tensors.find(name);
    constexpr uint64_t kMany = 1 << 16;
    if (tensor == nullptr || tensor->dtype != HfType::kI64 || tensor->elements() > kMany) return std::nullopt;
    std::vector<int64_t> out(tensor->elements());
    tensors.read(*tensor, 0, std::as_writable_bytes(std::span(out)));
    return out;
  };
  // Draft blocks are apart, or blocks behind the others that join two inputs.
  const bool has_mtp = std::any_of(tensors.tensors().begin(), tensors.tensors().end(), [](const SafetensorsTensor& tensor) {
    return tensor.listed && (tensor.name.starts_with("mtp.") || tensor.name.ends_with(".eh_proj.weight"));
  });
  return metadata_from_hf(texts, integers, has_mtp);
}

// The ranges of one move: its codes or values, and the block scales that belong into the same rows.
void add_move(const RowMove& move, const Checkpoint& checkpoint, const std::vector<size_t>& shard_of, std::vector<ShardLayout>& layouts) {
  const QuantWeight& weight = checkpoint.catalog.weights[move.weight];
  const DType dtype = checkpoint.mapping.tensors[move.target[0]].dtype;
  if (move.transposed && move.ways == 2) {
    fail(ErrorKind::kUnsupported, "{}: '{}' holds gate and up in alternate columns (gpt-oss in BF16); repack the MXFP4 checkpoint instead", checkpoint.tensors.name(),
         weight.name);
  }
  const auto add = [&](const SafetensorsTensor& tensor, RowField field) {
    MovedRows out;
    const uint64_t row = field_row_bytes(field, dtype, weight.columns());
    out.offset = tensor.offset + move.source_row * row;
    out.bytes = move.rows * row;
    if (move.source_row > tensor.bytes / row || move.rows > tensor.bytes / row - move.source_row) {
      fail(ErrorKind::kCorrupt, "{}: {} does not hold the rows that its shape promises", checkpoint.tensors.name(), tensor.name);
    }
    out.tensor = move.target[0];
    RowPiece& rows = out.rows;
    rows.field = field;
    rows.ways = move.ways;
    rows.transposed = move.transposed;
    rows.other = move.ways == 2 ? move.target[1] : 0;
    rows.first_row = move.target_row[0];
    rows.other_first_row = move.ways == 2 ? move.target_row[1] : 0;
    rows.rows = move.rows;
    rows.first_column = move.target_column;
    rows.columns = weight.columns();
    rows.tiles = move.tiles;
    layouts[shard_of[tensor.shard]].moved.push_back(out);
  };
  switch (dtype) {
    case DType::kNVFP4:
      add(*weight.data, RowField::kNvfp4Codes);
      add(*weight.scale, RowField::kNvfp4Scales);
      break;
    case DType::kMXFP4:
      add(*weight.data, RowField::kMxfp4Codes);
      add(*weight.scale, RowField::kMxfp4Scales);
      break;
    default: add(*weight.data, RowField::kValues);
  }
}

bool is_small_file(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  for (const std::string_view suffix : {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".part", ".journal", ".lock"}) {
    if (name.ends_with(suffix)) return false;
  }
  return entry.is_regular_file() && !name.starts_with('.') && name != "tierpack.lock.json" && !name.starts_with("SHA256SUMS") &&
         entry.file_size() > 0 && entry.file_size() <= kSmallFileBytes;
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(kFileSuffix) || name.ends_with(kIndexSuffix)) return true;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  bool safetensors = false, gguf = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    gguf |= entry.path().extension() == ".gguf";
    safetensors |= entry.path().extension() == kFileSuffix;
  }
  if (safetensors && gguf) {
    fail(ErrorKind::kUsage, "{}: holds GGUF and .safetensors files; name the .gguf file, or the checkpoint's index or .safetensors file", path.string());
  }
  return safetensors;
}

std::vector<fs::path> checkpoint_files(const fs::path& path) {
  const bool is_directory = fs::is_directory(path);
  const fs::path directory = is_directory ? path : path.parent_path().empty() ? fs::path(".") : path.parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool needed = name.ends_with(kFileSuffix) || name.ends_with(".json");
    if (needed && fs::exists(entry) && !entry.is_regular_file()) {
      fail(ErrorKind::kUsage, "{}: is no regular file", entry.path().string());
    }
  }
  // The same rules as everywhere, and the same complaints; opened for its list of shards.
  const SafetensorsSource tensors = SafetensorsSource::open(path);
  std::vector<fs::path> out;
  for (const SafetensorsShard& shard : tensors.shards()) out.push_back(directory / shard.file_name);
  std::sort(out.begin(), out.end());
  std::vector<fs::path> small;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_small_file(entry)) small.push_back(entry.path());
  }
  // Of several indexes only the one that was opened is part of this checkpoint.
  const std::string opened = fs::path(tensors.name()).filename().string();
  std::erase_if(small, [&](const fs::path& file) {
    const std::string name = file.filename().string();
    return name.ends_with(kIndexSuffix) && name != opened;
  });
  std::sort(small.begin(), small.end());
  out.insert(out.end(), small.begin(), small.end());
  return out;
}

void read_checkpoint(RepackSource& source) {
  auto checkpoint = std::make_shared<Checkpoint>(Checkpoint{open_tensors(source), {}, {}});
  const QuantConfig config =
      parse_quant_config(text_of(source, "config.json"), text_of(source, "hf_quant_config.json"), source.name);
  checkpoint->catalog = recognise_weights(checkpoint->tensors, config);
  checkpoint->catalog.require_readable(source.name);
  if (source.metadata.entries().empty()) source.metadata = metadata_of(source, checkpoint->tensors);
  checkpoint->mapping = map_checkpoint(checkpoint->tensors, checkpoint->catalog, read_model_config(source.metadata));

  for (const RepackShard& shard : source.shards) {
    ShardLayout& layout = source.layouts.emplace_back();
    layout.name = shard.name;
    layout.bytes = shard.bytes->size();
    layout.of_checkpoint = true;
  }
  std::vector<size_t> shard_of;
  for (const SafetensorsShard& shard : checkpoint->tensors.shards()) shard_of.push_back(*shard_named(source, shard.file_name));
  for (const RowMove& move : checkpoint->mapping.moves) add_move(move, *checkpoint, shard_of, source.layouts);
  source.tensors = checkpoint->mapping.tensors;
  for (const DerivedTensor& derived : checkpoint->mapping.derived) source.derived.push_back(derived.target);
  source.derive = [checkpoint](uint32_t i, uint64_t matrix) {
    return derived_values(checkpoint->tensors, checkpoint->catalog, checkpoint->mapping.derived[i], matrix);
  };
  source.kept_only = checkpoint->mapping.kept_only;
}

}  // namespace tierpack::repack
