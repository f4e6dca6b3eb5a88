// safetensors: reading of untrusted files, and of checkpoints that are split over several of them.
//
// Layout of a file: u64 N (little-endian), N bytes of UTF-8 JSON, tensor data up to the end of the file. The JSON is an
// object {name: {"dtype", "shape", "data_offsets": [begin, end)}}, offsets relative to the data, plus an optional
// "__metadata__" of strings. Data are row-major and may be misaligned. Sorted by offset, tensors follow each other
// without gap or overlap from the first byte of the data to the last byte of the file.
// A split checkpoint has NAME.safetensors.index.json: {"weight_map": {tensor: file}}.
// docs/safetensors.md states every rule; source: github.com/huggingface/safetensors.
//
// Memory: about 100 bytes a tensor and its name are kept; the header text (at most 100 MB) is released after parsing.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "formats/tensor_names.h"

namespace tierpack {

// Element types of safetensors; not the ids of any file format.
enum class HfType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

struct HfTypeTraits {
  HfType type;
  const char* name;  // as in the header, "BF16"
  uint32_t bits;     // of one element
};

std::span<const HfTypeTraits> all_hf_types();
const HfTypeTraits& hf_traits(HfType type);
inline const char* hf_type_name(HfType type) { return hf_traits(type).name; }
std::optional<HfType> hf_type_from_name(std::string_view name);  // case-sensitive, as the format is

// One tensor of a file. Views stay valid as long as the header or source that they came from, also when it is moved.
struct SafetensorsTensor {
  std::string_view name;
  std::span<const uint64_t> shape;  // as written: the last dimension is contiguous; empty for a scalar
  uint64_t offset = 0;              // from the start of the file
  uint64_t bytes = 0;
  uint32_t shard = 0;  // index into SafetensorsSource::shards
  HfType dtype = HfType::kF32;
  bool listed = true;  // the index names this tensor in this shard (always, without an index)

  uint64_t elements() const;
};

// "[768, 2048]"
std::string hf_shape_text(std::span<const uint64_t> shape);

// Limits beyond which a file is refused before memory is spent on it.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;    // the reference's own limit
inline constexpr uint64_t kMaxSafetensorsTensors = uint64_t{1} << 20;  // in one file, and in one index
inline constexpr size_t kMaxSafetensorsDims = 16;
inline constexpr size_t kMaxSafetensorsShards = 10'000;

// The head of one file.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // by offset
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_offset = 0;  // 8 + N
  uint64_t file_bytes = 0;

  NameArena arena;  // owns the names and shapes
  NameIndex index;  // ids are positions in `tensors`

  const SafetensorsTensor* find(std::string_view name) const;
};

// Parses and checks the head of `source`: kCorrupt for anything that is not a whole, well-formed file, kUnsupported for
// an unknown dtype. In the second form only a prefix is at hand (a download has begun, a URL is inspected) and the
// tensors are checked against the `promised_bytes` of the whole file; `prefix` must reach to the end of the header.
SafetensorsHeader read_safetensors_header(const ByteSource& source);
SafetensorsHeader read_safetensors_header(const ByteSource& prefix, uint64_t promised_bytes);

// Bytes [0, n) of a file that its header takes, known from the first 8; nullopt when `first` is shorter than that.
// kCorrupt for a length that no safetensors file has, such as one larger than `file_bytes`.
std::optional<uint64_t> safetensors_header_bytes(Bytes first, uint64_t file_bytes, const std::string& source);

// The index of a split checkpoint: calls on_tensor(tensor, file) for each entry of weight_map in the order of the text;
// both views last until it returns. File names are plain: no directory, no "..". metadata.total_size is not read:
// published values are often wrong. A tensor that is listed twice is not noticed here, but by SafetensorsSource.
void walk_safetensors_index(std::string_view text, const std::string& source,
                            const std::function<void(std::string_view tensor, std::string_view file)>& on_tensor);

// The files that the index names, sorted, each once.
std::vector<std::string> safetensors_index_files(std::string_view text, const std::string& source);

struct SafetensorsShard {
  std::string file_name;
  std::unique_ptr<ByteSource> file;
  uint64_t data_offset = 0;
  uint64_t file_bytes = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  size_t first_tensor = 0;  // its tensors are tensors[first_tensor .. + tensor_count)
  size_t tensor_count = 0;
};

// A checkpoint: one or several files opened together. Reading is thread-safe.
class SafetensorsSource {
 public:
  // Opens the file `name` of the checkpoint's directory or URL.
  using Opener = std::function<std::unique_ptr<ByteSource>(const std::string& name)>;

  // `path`: a .safetensors file (alone, whatever lies beside it), a .safetensors.index.json, or a directory with one of
  // them: an index if there is one, otherwise the only .safetensors file. A missing shard or a tensor that its shard
  // does not hold is kCorrupt; a directory without or with several candidates is kUsage.
  static SafetensorsSource open(const std::filesystem::path& path);
  static SafetensorsSource open_index(std::string_view index_text, const std::string& index_name, const Opener& opener);
  static SafetensorsSource open_single(std::unique_ptr<ByteSource> file, std::string file_name);

  std::span<const SafetensorsShard> shards() const { return shards_; }
  // Of all shards, shard by shard, by offset; tensors that the index does not list have listed == false.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  // Among listed tensors.
  const SafetensorsTensor* find(std::string_view name) const;
  // Bytes [offset, offset + out.size()) of a tensor's data.
  void read(const SafetensorsTensor& tensor, uint64_t offset, MutableBytes out) const;
  // For messages: the path, file or index that was opened.
  const std::string& name() const { return name_; }

 private:
  void add_shard(std::unique_ptr<ByteSource> file, std::string file_name);
  std::string_view tensor_name(uint32_t id) const { return tensors_[id].name; }
  std::string name_;
  std::vector<SafetensorsShard> shards_;
  std::vector<NameArena> arenas_;  // of the shards' headers
  std::vector<SafetensorsTensor> tensors_;
  NameIndex index_;  // listed tensors; ids are positions in tensors_
};

}  // namespace tierpack
