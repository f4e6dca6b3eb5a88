#include "formats/pack_check.h"

#include <algorithm>
#include <numeric>
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
  ManifestCheck(const PackManifest& manifest, uint64_t records_bytes, uint64_t sources_bytes, const std::string& source)
      : pack_(manifest), records_bytes_(records_bytes), sources_bytes_(sources_bytes), source_(source) {}

  void run() {
    files();
    record_tiling(Segment::kDense);
    record_tiling(Segment::kExperts);
    used_.assign(pack_.records.size(), false);
    dense();
    rows();
    experts();
    for (size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) complain("record {} belongs to no tensor and no expert", i);
    }
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
    std::vector<std::string> required{kPackMetadataName, kPackRecordsName, kPackSourcesName, segment_file_name(Segment::kDense),
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
    if (file_bytes(kPackSourcesName) != sources_bytes_) {
      complain("says that {} has {} bytes; it has {}", kPackSourcesName, file_bytes(kPackSourcesName), sources_bytes_);
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

  // Tensors come in the order of their numbers.
  void add_tensor(const std::string& name, DType dtype, uint64_t columns, uint64_t rows, uint64_t bytes) {
    check_name(name);
    if (bytes > kFileBytesMax) complain("{}: impossible size", name);
    if (!names_.insert(name).second) complain("tensor '{}' appears twice", name);
    // What fills up rows comes from no source.
    const bool filled_up = dtype == DType::kNVFP4 && columns % traits(dtype).block_elements != 0;
    tensors_.push_back({&name, dtype, columns, rows, filled_up ? columns / kNvfp4ScaleElements * 9 * rows : bytes, 0});
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
      add_tensor(tensor.name, tensor.dtype, tensor.shape.ne[0], tensor.shape.rows(), *bytes);
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
        if (want.offset != have.offset || want.bytes != have.bytes || want.scale_offset != have.scale_offset) {
          complain("{}: {} is said to be at {} with {} bytes, its place is {} with {}", name, have.tensor, have.offset,
                   have.bytes, want.offset, want.bytes);
        }
        check_groups(have.tensor, have.dtype, have.in, have.out);
        check_scales(have);
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

  // One factor of the part, one of each of its rows, or one of each of its blocks of 128 x 128.
  void check_scales(const ExpertPart& part) const {
    constexpr uint64_t kBlock = 128;
    const uint64_t rows = part.scale_rows, columns = part.scale_columns;
    if (rows == 0 || (rows == 1 && columns == 1)) return;
    const bool of_rows = rows == part.out && columns == 1;
    const bool of_blocks = rows == ceil_div(part.out, kBlock) && columns == ceil_div(part.in, kBlock);
    if (part.dtype == DType::kF8_E4M3 && (of_rows || of_blocks)) return;
    complain("{}: {} x {} scales do not belong to a part of {} x {} ({})", part.tensor, rows, columns, part.in, part.out,
             dtype_name(part.dtype));
  }

  // The source's stacks that the parts of a layer came from; a merged gate_up stack gives two parts.
  void add_stacks(const ExpertLayer& layer) {
    const bool merged = layer.gate.tensor == layer.up.tensor;
    if (merged && layer.gate.dtype != layer.up.dtype) complain("{}: one stack of two types", layer.gate.tensor);
    const auto add = [&](const ExpertPart& part, uint64_t factor) {
      const std::optional<uint64_t> bytes = checked_mul(part.bytes, uint64_t{layer.experts} * factor);
      const std::optional<uint64_t> rows = checked_mul(part.out, uint64_t{layer.experts} * factor);
      if (!bytes || !rows) complain("experts of layer {}: sizes overflow", layer.layer);
      add_tensor(part.tensor, part.dtype, part.in, *rows, *bytes);
    };
    add(layer.gate, merged ? 2 : 1);
    if (merged) {
      tensors_.back().merged = true;
      tensors_.push_back({&layer.up.tensor, layer.up.dtype, 0, 0, 0, 0});  // its bytes are gate's
    } else {
      add(layer.up, 1);
    }
    add(layer.down, 1);
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
      add_tensor(table.name, table.dtype, table.shape.ne[0], table.shape.rows(), *checked_tensor_bytes(table.dtype, table.shape));
    }
    const std::optional<uint64_t> bytes = checked_mul(page, kPageBytes);
    if (!bytes || *bytes != file_bytes(segment_file_name(Segment::kRows))) {
      complain("tables take {} pages, but {} has {} bytes", page, segment_file_name(Segment::kRows),
               file_bytes(segment_file_name(Segment::kRows)));
    }
  }

  void sources() {
    for (const Transcoded& item : pack_.transcoded) {
      if (names_.count(item.tensor) == 0) complain("tensor '{}' was transcoded, but is not there", item.tensor);
      if (!(item.error >= 0) || item.error > 1e30) complain("tensor '{}': impossible error", item.tensor);
    }
    std::unordered_set<std::string> paths;
    uint64_t source_at = 0;
    if (pack_.sources.empty()) complain("names no source shard");
    for (const SourceShard& shard : pack_.sources) {
      if (!is_safe_relative_path(shard.path) || shard.path.find('/') != std::string::npos) {
        complain("source shard '{}' is not a plain file name", shard.path);
      }
      if (!paths.insert(shard.path).second) complain("source shard {} appears twice", shard.path);
      if (!pack_.reversible()) {
        if (!shard.pieces.empty()) complain("{}: a transcoded pack has no pieces of its source", shard.path);
        continue;
      }
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
          whole_tensor(shard, piece);
        } else if (piece.from == SourcePiece::From::kRows) {
          rows_of_tensor(shard, piece);
        }
      }
      if (bytes != shard.bytes) complain("{}: has {} bytes, its pieces {}", shard.path, shard.bytes, bytes);
      if (source_at > kFileBytesMax) complain("{}: {} would be impossibly large", shard.path, kPackSourceName);
    }
    for (const Tensor& tensor : tensors_) {
      const bool computed = tensor.found == 0 && (tensor.dtype == DType::kF32 || !pack_.reversible());
      if (tensor.found != tensor.bytes && !computed) {
        complain("tensor '{}' has {} bytes, of which the source's files hold {}", *tensor.name, tensor.bytes, tensor.found);
      }
    }
    if (source_at != file_bytes(kPackSourceName)) {
      complain("pieces use {} bytes of {}, which has {}", source_at, kPackSourceName, file_bytes(kPackSourceName));
    }
  }

  struct Tensor {
    const std::string* name;
    DType dtype;
    uint64_t columns, rows, bytes;
    uint64_t found;  // bytes that are in pieces
    bool merged = false;  // a stack with gate's and up's rows
  };

  Tensor& tensor_of(const SourceShard& shard, uint32_t tensor) {
    if (tensor >= tensors_.size() || tensors_[tensor].bytes == 0) complain("{}: a piece of tensor {} of {}", shard.path, tensor, tensors_.size());
    return tensors_[tensor];
  }

  // No byte of a tensor is in two pieces: their sum is held against the tensor's size at the end, and this keeps it from overflowing.
  void use(const SourceShard& shard, Tensor& tensor, uint64_t bytes) {
    if (bytes > tensor.bytes - tensor.found) complain("{}: tensor '{}' is used twice", shard.path, *tensor.name);
    tensor.found += bytes;
  }

  void whole_tensor(const SourceShard& shard, const SourcePiece& piece) {
    Tensor& tensor = tensor_of(shard, piece.tensor);
    if (tensor.dtype == DType::kNVFP4 && tensor.columns % traits(tensor.dtype).block_elements != 0) {
      complain("{}: tensor '{}' has rows that are filled up; they are only used as rows", shard.path, *tensor.name);
    }
    if (tensor.bytes != piece.bytes) {
      complain("{}: tensor '{}' has {} bytes, the shard says {}", shard.path, *tensor.name, tensor.bytes, piece.bytes);
    }
    use(shard, tensor, piece.bytes);
  }

  void rows_of_tensor(const SourceShard& shard, const SourcePiece& piece) {
    const RowPiece& rows = piece.rows;
    Tensor& tensor = tensor_of(shard, piece.tensor);
    const auto wrong = [&](const char* what) { complain("{}: rows of tensor '{}': {}", shard.path, *tensor.name, what); };
    if (tensor.merged) wrong("a merged stack is only used whole");
    const RowLayout layout{tensor.dtype, rows.transposed ? rows.columns : tensor.columns, rows.field, rows.transposed ? 0 : rows.first_column, rows.columns,
                           rows.tiles};
    if (const auto problem = layout_problem(layout)) wrong(*problem);
    const std::optional<uint64_t> bytes = checked_mul(rows.rows, field_row_bytes(rows.field, tensor.dtype, rows.columns));
    if (!bytes || *bytes != piece.bytes) wrong("another number of bytes than its rows have");
    if (rows.transposed) {
      if (rows.ways != 1 || rows.field != RowField::kValues || rows.tiles.groups != 0) wrong("cannot be transposed");
      if (rows.first_column > tensor.columns || rows.rows > tensor.columns - rows.first_column) wrong("columns leave the tensor");
      require_rows(tensor, rows.first_row, rows.columns, shard);
      return use(shard, tensor, piece.bytes);
    }
    if (rows.rows % rows.ways != 0) wrong("rows do not alternate evenly");
    require_rows(tensor, rows.first_row, rows.rows / rows.ways, shard);
    use(shard, tensor, piece.bytes / rows.ways);
    if (rows.ways == 1) return;
    Tensor& other = tensor_of(shard, rows.other);
    if (other.merged) wrong("alternate with those of a merged stack");
    if (other.columns != tensor.columns || other.dtype != tensor.dtype) wrong("alternate with those of an unlike tensor");
    require_rows(other, rows.other_first_row, rows.rows / 2, shard);
    use(shard, other, piece.bytes / 2);
  }

  void require_rows(const Tensor& tensor, uint64_t first, uint64_t count, const SourceShard& shard) const {
    if (count == 0 || first > tensor.rows || count > tensor.rows - first) complain("{}: rows leave tensor '{}'", shard.path, *tensor.name);
  }

  const PackManifest& pack_;
  const uint64_t records_bytes_;
  const uint64_t sources_bytes_;
  const std::string& source_;
  std::vector<bool> used_;                              // records with an owner
  std::vector<Tensor> tensors_;                         // by number
  std::unordered_set<std::string_view> names_;
};

}  // namespace

void check_manifest(const PackManifest& manifest, uint64_t records_bytes, uint64_t sources_bytes, const std::string& source) {
  ManifestCheck(manifest, records_bytes, sources_bytes, source).run();
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
