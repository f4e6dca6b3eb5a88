#include "repack/gguf_export.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_set>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "formats/dequant.h"
#include "formats/expert_stacks.h"
#include "formats/gguf.h"
#include "formats/packed_shard.h"
#include "formats/quantize.h"
#include "repack/repack_plan.h"
#include "repack/shard_file.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// A tensor of the file, and where its rows come from.
struct Item {
  TensorInfo info;                 // offset in the data section
  std::vector<uint32_t> tensors;   // of the pack: one, or gate and up of a merged stack, whose rows alternate matrix by matrix
  bool converts = false;
  const ExpertPart* scales = nullptr;  // the item is the factors of this part, one an expert
  const ExpertLayer* layer = nullptr;
};

class GgufExport {
 public:
  explicit GgufExport(const GgufExportOptions& options) : options_(options), pack_(Pack::open(options.pack)), reader_(pack_, 0) {}

  GgufExportReport run() {
    if (fs::exists(options_.target) && !options_.force) {
      fail(ErrorKind::kUsage, "{}: exists; choose another name, or replace it with --force", options_.target.string());
    }
    std::error_code ignored;
    if (fs::equivalent(fs::absolute(options_.target).parent_path(), options_.pack, ignored)) {
      fail(ErrorKind::kUsage, "{}: lies in the pack itself; choose another place", options_.target.string());
    }
    list_items();
    const Metadata metadata = metadata_of_file();
    const uint64_t alignment = metadata.u64_or("general.alignment", 32);
    std::vector<TensorInfo> infos;
    uint64_t data_bytes = 0;
    for (Item& item : items_) {
      item.info.offset = data_bytes;
      data_bytes = align_up(data_bytes + item.info.bytes, alignment);
      infos.push_back(item.info);
    }
    const std::vector<std::byte> head = encode_gguf_header(metadata, infos, alignment);
    report_.bytes = head.size() + data_bytes;
    report_.tensors = items_.size();
    const uint64_t free = free_disk_bytes(options_.target);
    if (report_.bytes > free) {
      fail(ErrorKind::kCapacity, "{}: needs {}, but only {} are free there", options_.target.string(), format_size(report_.bytes), format_size(free));
    }
    uint64_t record_bytes = 0;
    for (const Record& record : pack_.manifest().records) record_bytes += record.bytes;
    Progress progress("writing " + options_.target.string(), report_.bytes + record_bytes, options_.progress);
    progress.set_phase("proving");
    prove_records(progress);
    progress.set_phase("writing");
    PartFile file(options_.target, report_.bytes);
    file.write_at(0, head);
    for (const Item& item : items_) write_item(item, head.size() + item.info.offset, file, progress);
    file.publish();
    return std::move(report_);
  }

 private:
  // The type of most tensors may no longer be what the source's writer said.
  Metadata metadata_of_file() const {
    const Metadata whole = without_split_keys(pack_.metadata());
    if (!options_.dequantize && pack_.manifest().reversible()) return whole;
    Metadata out(whole.source());
    for (const auto& [key, value] : whole.entries()) {
      if (key != "general.file_type" && !key.starts_with("quantize.")) out.add(key, value);
    }
    return out;
  }

  void list_items() {
    const PackManifest& manifest = pack_.manifest();
    const std::vector<TensorInfo> tensors = pack_tensors(manifest);
    uint32_t number = 0;
    for (const TensorInfo& tensor : tensors) {
      Item& item = items_.emplace_back();
      item.info = tensor;
      if (number < manifest.dense.size() + manifest.rows.size()) {
        item.tensors = {number++};
      } else {
        const auto at = number - static_cast<uint32_t>(manifest.dense.size() + manifest.rows.size());
        item.layer = &manifest.expert_layers[at / 3];
        const bool merged = at % 3 == 0 && item.layer->gate.tensor == item.layer->up.tensor;
        item.tensors = merged ? std::vector<uint32_t>{number, number + 1} : std::vector<uint32_t>{number};
        number += merged ? 2 : 1;
      }
      convert_if_needed(item);
    }
    add_expert_scales();
    // The order that a model is loaded in.
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return load_rank(a.info.name) < load_rank(b.info.name); });
    const std::unordered_set<std::string> converted(report_.converted.begin(), report_.converted.end());
    std::erase_if(items_, [&](const Item& item) {
      if (item.scales != nullptr) return converted.count(item.scales->tensor) > 0;
      const std::string& name = item.info.name;
      return name.ends_with(".scale") && converted.count(name.substr(0, name.size() - 6) + ".weight") > 0;
    });
  }

  void convert_if_needed(Item& item) {
    TensorInfo& info = item.info;
    const bool whole = info.shape.ne[0] % traits(info.dtype).block_elements == 0;
    if (static_cast<int32_t>(info.dtype) >= 0 && whole && !(options_.dequantize && traits(info.dtype).quantised)) return;
    if (!options_.others) {
      fail(ErrorKind::kUnsupported, "{}: {} is {}{}, which GGUF files cannot hold; write such tensors as numbers with --others-as BF16 (or F16, F32)",
           options_.pack.string(), info.name, dtype_name(info.dtype), whole ? "" : fmt::format(" with rows of {}", info.shape.ne[0]));
    }
    item.converts = true;
    info.dtype = *options_.others;
    info.bytes = row_bytes(info.dtype, info.shape.ne[0]) * info.shape.rows();
    report_.converted.push_back(info.name);
  }

  void add_expert_scales() {
    for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
      const bool merged = layer.gate.tensor == layer.up.tensor;
      for (const ExpertPart* part : layer.parts()) {
        if (part->scale_rows == 0 || (merged && part == &layer.gate)) continue;
        Item& item = items_.emplace_back();
        const std::string base = merged && part == &layer.up ? fmt::format("blk.{}.ffn_up_exps", layer.layer)
                                                            : part->tensor.substr(0, part->tensor.rfind('.'));
        item.info.name = base + ".scale";
        item.info.shape.ne = {layer.experts, 1, 1, 1};
        item.info.bytes = layer.experts * sizeof(float);
        item.scales = part;
        item.layer = &layer;
        if (part->scale_rows * uint64_t{part->scale_columns} > 1) items_.pop_back();  // of an FP8 stack, which is written as numbers
      }
    }
  }

  void prove_records(Progress& progress) const {
    std::vector<std::byte> buffer(kPieceBytes);
    for (uint32_t i = 0; i < pack_.manifest().records.size(); ++i) {
      const Record& record = pack_.manifest().records[i];
      Xxh3Stream sum;
      for (uint64_t at = 0; at < record.bytes;) {
        throw_if_interrupted();
        const MutableBytes piece = MutableBytes(buffer).first(std::min<uint64_t>(kPieceBytes, record.bytes - at));
        pack_.segment(record.segment).read_at(record.offset + at, piece);
        sum.update(piece);
        at += piece.size();
        progress.add(piece.size());
      }
      if (sum.digest() == record.checksum) continue;
      fail(ErrorKind::kCorrupt, "{}: record {} at byte {} does not match its checksum; run tierpack verify {}", pack_.segment(record.segment).name(), i,
           record.offset, options_.pack.string());
    }
  }

  void write_item(const Item& item, uint64_t at, PartFile& file, Progress& progress) {
    if (item.scales != nullptr) return write_scales(item, at, file);
    const Shape& shape = item.info.shape;
    // Matrices of a merged stack are gate's rows, then up's.
    const uint64_t matrix_rows = item.tensors.size() == 2 ? shape.ne[1] / 2 : shape.rows();
    const uint64_t matrices = item.tensors.size() == 2 ? shape.ne[2] : 1;
    for (uint64_t m = 0; m < matrices; ++m) {
      for (const uint32_t tensor : item.tensors) {
        const uint64_t stride = row_bytes(pack_.manifest().tensor_dtype(tensor), shape.ne[0]);
        const uint64_t step_max = std::max<uint64_t>(1, kPieceBytes / stride);
        for (uint64_t row = 0; row < matrix_rows;) {
          throw_if_interrupted();
          const uint64_t step = std::min(step_max, matrix_rows - row);
          buffer_.resize(step * stride);
          reader_.read_tensor(tensor, m * matrix_rows + row, step, buffer_);
          const Bytes out = item.converts ? converted(item, tensor, m * matrix_rows + row, step) : Bytes(buffer_);
          file.write_at(at, out);
          progress.add(out.size());
          at += out.size();
          row += step;
        }
      }
    }
  }

  // Rows in buffer_ as numbers, with their factors.
  Bytes converted(const Item& item, uint32_t tensor, uint64_t first_row, uint64_t rows) {
    const uint64_t columns = item.info.shape.ne[0];
    const DType from = pack_.manifest().tensor_dtype(tensor);
    const uint64_t stride = row_bytes(from, columns);
    values_.resize(rows * columns);
    for (uint64_t r = 0; r < rows; ++r) {
      float* const row = values_.data() + r * columns;
      dequantize_row(from, buffer_.data() + r * stride, row, columns);
      scale_row(item, tensor, first_row + r, std::span(row, columns));
    }
    out_.resize(rows * row_bytes(item.info.dtype, columns));
    quantize_rows(item.info.dtype, rows, columns, values_, {}, out_);
    return out_;
  }

  void scale_row(const Item& item, uint32_t tensor, uint64_t row, std::span<float> values) {
    uint64_t scale_rows = 0, scale_columns = 0, matrix_rows = item.info.shape.ne[1];
    const float* scales = nullptr;
    if (item.layer != nullptr) {
      const ExpertPart& part = *item.layer->parts()[(tensor - pack_.manifest().dense.size() - pack_.manifest().rows.size()) % 3];
      if (part.scale_rows == 0) return;
      matrix_rows = part.out;
      scale_rows = part.scale_rows;
      scale_columns = part.scale_columns;
      const auto record = static_cast<uint32_t>(item.layer->first_record + row / part.out);
      if (scales_of_ != std::pair(record, tensor)) {
        scales_.resize(part.scale_bytes() / sizeof(float));
        pack_.segment(Segment::kExperts).read_at(pack_.manifest().records[record].offset + part.scale_offset, std::as_writable_bytes(std::span(scales_)));
        scales_of_ = {record, tensor};
      }
      scales = scales_.data();
    } else {
      const DenseTensor* found = pack_.find_dense(item.info.name.substr(0, item.info.name.rfind('.')) + ".scale");
      if (found == nullptr) return;
      scale_columns = found->shape.dims >= 2 ? found->shape.ne[0] : 1;
      scale_rows = found->shape.dims >= 2 ? found->shape.ne[1] : 1;
      if (scales_of_ != std::pair(found->record, tensor)) {
        scales_.resize(found->shape.elements());
        pack_.read_record(found->record, std::as_writable_bytes(std::span(scales_)));
        scales_of_ = {found->record, tensor};
      }
      scales = scales_.data() + row / matrix_rows * scale_rows * scale_columns;
    }
    constexpr uint64_t kBlock = 128;
    const uint64_t in_matrix = row % matrix_rows;
    const uint64_t scale_row = scale_rows == 1 ? 0 : scale_rows == matrix_rows ? in_matrix : in_matrix / kBlock;
    for (uint64_t c = 0; c < values.size(); ++c) values[c] *= scales[scale_row * scale_columns + (scale_columns == 1 ? 0 : c / kBlock)];
  }

  void write_scales(const Item& item, uint64_t at, PartFile& file) {
    std::vector<float> values(item.layer->experts);
    for (uint32_t e = 0; e < item.layer->experts; ++e) {
      const Record& record = pack_.manifest().records[item.layer->first_record + e];
      pack_.segment(Segment::kExperts).read_at(record.offset + item.scales->scale_offset, std::as_writable_bytes(std::span(&values[e], 1)));
    }
    file.write_at(at, std::as_bytes(std::span(values)));
  }

  const GgufExportOptions& options_;
  const Pack pack_;
  const PackedShard reader_;
  std::vector<Item> items_;
  GgufExportReport report_;
  std::vector<std::byte> buffer_, out_;
  std::vector<float> values_, scales_;
  std::pair<uint32_t, uint32_t> scales_of_{UINT32_MAX, UINT32_MAX};  // record and tensor of scales_
};

struct Options {
  GgufExportOptions job;
  std::string others, dequantize;
  bool json = false;
};

}  // namespace

GgufExportReport export_gguf(const GgufExportOptions& options) { return GgufExport(options).run(); }

CommandRun setup_gguf(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("PACK", options->job.pack, "The pack")->required();
  app.add_option("--to", options->job.target, "The file to write (NAME.gguf)")->required();
  CLI::Option* others = app.add_option("--others-as", options->others, "Write tensors that GGUF cannot hold (FP8, odd NVFP4) as BF16, F16 or F32");
  app.add_option("--dequantize", options->dequantize, "Write all quantised tensors as BF16, F16 or F32")->excludes(others);
  app.add_flag("--force", options->job.force, "Replace a file of that name");
  app.add_flag("--json", options->json, "Print the result as one JSON object");
  app.footer(
      "Writes the pack's tensors as they are into one GGUF file, with the pack's metadata and tokenizer. To get back the\n"
      "files the pack was made from, use tierpack unpack.\n"
      "Examples:\n"
      "  tierpack gguf pebble.tierpack --to pebble.gguf\n"
      "  tierpack gguf deepseek-fp8.tierpack --to deepseek.gguf --others-as BF16\n"
      "  tierpack gguf qwen3-nvfp4.tierpack --to qwen3-bf16.gguf --dequantize BF16");
  return [options] {
    options->job.dequantize = !options->dequantize.empty();
    if (options->job.dequantize) options->others = options->dequantize;
    if (!options->others.empty()) {
      const std::optional<DType> type = dtype_from_name(options->others);
      if (!type || (*type != DType::kBF16 && *type != DType::kF16 && *type != DType::kF32)) {
        fail(ErrorKind::kUsage, "'{}' is no type of numbers: expected BF16, F16 or F32", options->others);
      }
      options->job.others = type;
    }
    options->job.progress = options->json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
    const GgufExportReport report = export_gguf(options->job);
    if (options->json) {
      std::fputs(dump_json({{"path", options->job.target.string()}, {"bytes", report.bytes}, {"tensors", report.tensors}, {"converted", report.converted}}).c_str(),
                 stdout);
    } else {
      fmt::print("wrote {}: {}, {} tensors{}\n", options->job.target.string(), format_size(report.bytes), report.tensors,
                 report.converted.empty() ? "" : fmt::format(", {} of them written as {}", report.converted.size(), options->others));
    }
    return 0;
  };
}

}  // namespace tierpack::repack
