#include "formats/pack_check.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "formats/lock.h"
#include "formats/pack_layout.h"

namespace tierpack {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 60;
constexpr uint64_t kNameBytesMax = 1024;

class ManifestCheck {
 public:
  ManifestCheck(const PackManifest& manifest, uint64_t records_bytes, const std::string& source)
      : pack_(manifest), records_bytes_(records_bytes), source_(source) {}

  void run() {
    files();
    record_tiling(Segment::kDense);
    record_tiling(Segment::kExperts);
    used_.assign(pack_.records.size(), false);
    dense();
    experts();
    for (size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) complain("record {} belongs to no tensor and no expert", i);
    }
    rows();
    sources();
  }

 private:
  template <typename... Args>
  [[noreturn]] void complain(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kCorrupt, source_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  // Bytes of a file of the pack; 0 when it has none of that name.
  uint64_t file_bytes(std::string_view name) const {
    for (const PackFile& file : pack_.files) {
      if (file.name == name) return file.bytes;
    }
    return 0;
  }

  void files() const {
    std::vector<std::string> required{kPackMetadataName, kPackRecordsName, segment_file_name(Segment::kDense),
                                      segment_file_name(Segment::kExperts)};
    if (!pack_.rows.empty()) required.push_back(segment_file_name(Segment::kRows));
    required.push_back(kPackSourceName);
    if (pack_.profile_id) required.push_back(kPackProfileName);
    if (pack_.files.size() != required.size()) {
      complain("lists {} files where this pack has {}", pack_.files.size(), required.size());
    }
    for (size_t i = 0; i < required.size(); ++i) {
      if (pack_.files[i].name != required[i]) {
        complain("file {} is '{}', expected '{}'", i, pack_.files[i].name, required[i]);
      }
      if (pack_.files[i].bytes > kFileBytesMax) complain("{}: impossible size {}", required[i], pack_.files[i].bytes);
    }
    if (file_bytes(kPackRecordsName) != records_bytes_) {
      complain("says that {} has {} bytes; it has {}", kPackRecordsName, file_bytes(kPackRecordsName), records_bytes_);
    }
  }

  void record_tiling(Segment segment) const {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < pack_.records.size(); ++i) {
      if (pack_.records[i].segment == segment) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return pack_.records[a].offset < pack_.records[b].offset; });
    uint64_t end = 0;
    for (const uint32_t i : order) {
      const Record& record = pack_.records[i];
      if (record.bytes == 0 || record.bytes > kFileBytesMax) complain("record {} has an impossible size {}", i, record.bytes);
      if (record.offset != end) {
        complain("record {} of {} begins at {} where {} was expected: records overlap or leave a gap", i,
                 segment_file_name(segment), record.offset, end);
      }
      end = align_up(record.offset + record.bytes, kRecordAlignment);
      if (end > kFileBytesMax) complain("record {} ends beyond any file", i);
    }
    if (end != file_bytes(segment_file_name(segment))) {
      complain("the records of {} end at {}, but the file has {} bytes", segment_file_name(segment), end,
               file_bytes(segment_file_name(segment)));
    }
  }

  const Record& claim(uint64_t index, Segment segment, const std::string& owner) {
    if (index >= pack_.records.size()) complain("{}: record {} of {}", owner, index, pack_.records.size());
    const Record& record = pack_.records[index];
    if (record.segment != segment) complain("{}: record {} is not in {}", owner, index, segment_file_name(segment));
    if (used_[index]) complain("{}: record {} already belongs to another", owner, index);
    used_[index] = true;
    return record;
  }

  void check_name(const std::string& name) const {
    const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
    if (name.empty() || name.size() > kNameBytesMax || !printable) complain("impossible tensor name '{}'", name);
  }

  void add_tensor(const std::string& name, uint64_t bytes) {
    check_name(name);
    if (bytes > kFileBytesMax) complain("{}: impossible size", name);
    if (!tensors_.emplace(name, bytes).second) complain("tensor '{}' appears twice", name);
  }

  void check_groups(const std::string& name, DType dtype, uint64_t in, uint64_t out) const {
    if (!groups_fit(dtype, in, out)) {
      complain("{}: a row group of {} columns would be larger than {}", name, in, format_size(kGroupBytesMax));
    }
  }

  void dense() {
    for (const DenseTensor& tensor : pack_.dense) {
      const Record& record = claim(tensor.record, Segment::kDense, tensor.name);
      const std::optional<uint64_t> bytes = checked_tensor_bytes(tensor.dtype, tensor.shape);
      if (!bytes || *bytes != record.bytes) {
        complain("{}: {} {} does not fill its record of {} bytes", tensor.name, dtype_name(tensor.dtype),
                 tensor.shape.text(), record.bytes);
      }
      check_groups(tensor.name, tensor.dtype, tensor.shape.ne[0], tensor.shape.ne[1]);
      add_tensor(tensor.name, *bytes);
    }
  }

  void experts() {
    for (size_t i = 0; i < pack_.expert_layers.size(); ++i) {
      const ExpertLayer& layer = pack_.expert_layers[i];
      if (i > 0 && layer.layer <= pack_.expert_layers[i - 1].layer) complain("expert layers are not in ascending order");
      const std::string name = fmt::format("experts of layer {}", layer.layer);
      if (layer.experts == 0) complain("{}: none", name);
      ExpertLayer placed = layer;
      if (!place_parts(placed) || placed.record_bytes != layer.record_bytes) {
        complain("{}: record of {} bytes does not hold its three parts", name, layer.record_bytes);
      }
      for (int k = 0; k < 3; ++k) {
        const ExpertPart& want = *placed.parts()[k];
        const ExpertPart& have = *layer.parts()[k];
        if (want.offset != have.offset || want.bytes != have.bytes) {
          complain("{}: {} is said to be at {} with {} bytes, its place is {} with {}", name, have.tensor, have.offset,
                   have.bytes, want.offset, want.bytes);
        }
        check_groups(have.tensor, have.dtype, have.in, have.out);
      }
      if (layer.gate.in != layer.up.in || layer.gate.out != layer.up.out || layer.down.in != layer.gate.out ||
          layer.down.out != layer.gate.in) {
        complain("{}: the shapes of gate, up and down do not fit together", name);
      }
      if (layer.experts > pack_.records.size()) complain("{}: {} experts, more than records", name, layer.experts);
      for (uint64_t e = 0; e < layer.experts; ++e) {
        if (claim(layer.first_record + e, Segment::kExperts, name).bytes != layer.record_bytes) {
          complain("{}: expert {} has a record of another size", name, e);
        }
      }
      add_stacks(layer);
    }
  }

  // The source's stacks that the parts of a layer came from; a merged gate_up stack gives two parts.
  void add_stacks(const ExpertLayer& layer) {
    const bool merged = layer.gate.tensor == layer.up.tensor;
    if (merged && layer.gate.dtype != layer.up.dtype) complain("{}: one stack of two types", layer.gate.tensor);
    const auto stack_bytes = [&](uint64_t part_bytes) {
      const std::optional<uint64_t> bytes = checked_mul(part_bytes, layer.experts);
      if (!bytes) complain("experts of layer {}: sizes overflow", layer.layer);
      return *bytes;
    };
    if (merged) {
      add_tensor(layer.gate.tensor, stack_bytes(layer.gate.bytes + layer.up.bytes));
    } else {
      add_tensor(layer.gate.tensor, stack_bytes(layer.gate.bytes));
      add_tensor(layer.up.tensor, stack_bytes(layer.up.bytes));
    }
    add_tensor(layer.down.tensor, stack_bytes(layer.down.bytes));
  }

  void rows() {
    uint64_t page = 0;
    for (const RowTable& table : pack_.rows) {
      const std::optional<RowTable> placed = place_rows(table.name, table.dtype, table.shape, page);
      if (!placed || placed->row_bytes != table.row_bytes || placed->rows_per_page != table.rows_per_page ||
          placed->pages_per_row != table.pages_per_row || placed->first_page != table.first_page ||
          placed->pages != table.pages) {
        complain("table {}: its pages are not where the layout puts them", table.name);
      }
      page += table.pages;
      add_tensor(table.name, *checked_tensor_bytes(table.dtype, table.shape));
    }
    const std::optional<uint64_t> bytes = checked_mul(page, kPageBytes);
    if (!bytes || *bytes != file_bytes(segment_file_name(Segment::kRows))) {
      complain("tables take {} pages, but {} has {} bytes", page, segment_file_name(Segment::kRows),
               file_bytes(segment_file_name(Segment::kRows)));
    }
  }

  void sources() {
    std::unordered_set<std::string> paths;
    uint64_t source_at = 0;
    if (pack_.sources.empty()) complain("names no source shard");
    for (const SourceShard& shard : pack_.sources) {
      if (!is_safe_relative_path(shard.path) || shard.path.find('/') != std::string::npos) {
        complain("source shard '{}' is not a plain file name", shard.path);
      }
      if (!paths.insert(shard.path).second) complain("source shard {} appears twice", shard.path);
      uint64_t bytes = 0;
      for (const SourcePiece& piece : shard.pieces) {
        if (piece.bytes == 0 || piece.bytes > kFileBytesMax) complain("{}: a piece of {} bytes", shard.path, piece.bytes);
        bytes += piece.bytes;
        if (bytes > kFileBytesMax) complain("{}: its pieces overflow", shard.path);
        if (piece.from == SourcePiece::From::kSource) {
          if (piece.offset != source_at) {
            complain("{}: a piece is at {} of {}, expected {}", shard.path, piece.offset, kPackSourceName, source_at);
          }
          source_at += piece.bytes;
        } else if (piece.from == SourcePiece::From::kTensor) {
          const auto found = tensors_.find(piece.tensor);
          if (found == tensors_.end()) complain("{}: tensor '{}' is unknown or used twice", shard.path, piece.tensor);
          if (found->second != piece.bytes) {
            complain("{}: tensor '{}' has {} bytes, the shard says {}", shard.path, piece.tensor, found->second, piece.bytes);
          }
          tensors_.erase(found);
        }
      }
      if (bytes != shard.bytes) complain("{}: has {} bytes, its pieces {}", shard.path, shard.bytes, bytes);
      if (source_at > kFileBytesMax) complain("{}: {} would be impossibly large", shard.path, kPackSourceName);
    }
    if (!tensors_.empty()) complain("tensor '{}' is in no source shard", tensors_.begin()->first);
    if (source_at != file_bytes(kPackSourceName)) {
      complain("pieces use {} bytes of {}, which has {}", source_at, kPackSourceName, file_bytes(kPackSourceName));
    }
  }

  const PackManifest& pack_;
  const uint64_t records_bytes_;
  const std::string& source_;
  std::vector<bool> used_;                              // records with an owner
  std::unordered_map<std::string, uint64_t> tensors_;  // bytes, by name; those not yet found in a shard
};

}  // namespace

void check_manifest(const PackManifest& manifest, uint64_t records_bytes, const std::string& source) {
  ManifestCheck(manifest, records_bytes, source).run();
}

// A model without experts has no layers of them, and what an unknown architecture does not say cannot be contradicted.
void require_manifest_fits(const PackManifest& manifest, const ModelConfig& config, const std::string& source) {
  const bool known = config.architecture != Architecture::kOther;
  const auto differs = [&](uint64_t found, uint64_t said, bool exact) {
    if (!known && said == 0) return false;
    return exact ? found != said : found > said;
  };
  for (const ExpertLayer& layer : manifest.expert_layers) {
    if (differs(uint64_t{layer.layer} + 1, config.blocks(), false)) {
      fail(ErrorKind::kCorrupt, "{}: holds experts of layer {}, the model has {}", source, layer.layer, config.blocks());
    }
    const bool widths = known && (layer.gate.in != config.hidden || differs(layer.gate.out, config.expert_ff, !config.expert_ff_differs));
    if (widths || differs(layer.experts, config.experts, true)) {
      fail(ErrorKind::kCorrupt, "{}: layer {} has {} experts of {} x {}, the model's metadata says {} of {} x {}", source,
           layer.layer, layer.experts, layer.gate.in, layer.gate.out, config.experts, config.hidden, config.expert_ff);
    }
  }
}

}  // namespace tierpack
