// A small pack put together by hand from docs/pack_format.md, independent of repack/: two dense tensors, one layer of three
// experts with a part of each kind, a table with many rows a page and one with several pages a row, two source shards; on
// request more dense tensors, in a third shard, and what only packs of checkpoints have: tensors whose rows a source has in an
// order of its own, in every field and kind of order, computed tensors and experts with scales.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/zstd.h"
#include "formats/gguf.h"
#include "formats/pack.h"
#include "formats/pack_layout.h"
#include "formats/row_groups.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/naive_rows.h"

namespace tierpack::testing_support {

struct ExtraTensor {
  std::string name;
  DType type;
  std::vector<uint64_t> dims;
  std::vector<std::byte> bytes = {};  // as published; empty = noise
};

class TinyPack {
 public:
  explicit TinyPack(bool with_profile = false, const std::vector<ExtraTensor>& extra = {}, bool checkpoint = false) {
    add_metadata(checkpoint ? 2 : 1);
    add_dense("token_embd.weight", DType::kF32, {64, 4});
    add_dense("blk.0.ffn_gate_inp.weight", DType::kF32, {64, 3});
    add_experts();
    for (const ExtraTensor& tensor : extra) add_dense(tensor.name, tensor.type, tensor.dims, tensor.bytes);
    add_rows("table_a", DType::kQ4_0, {160, 100});
    add_rows("table_b", DType::kF32, {2048, 5});
    if (checkpoint) add_checkpoint_tensors();
    if (with_profile) add_profile();
    add_sources(extra);
    if (checkpoint) add_checkpoint_source();
    finish_shards();
    seal();
  }
  static TinyPack of_checkpoint() { return TinyPack(false, {}, true); }

  PackManifest manifest;
  ModelConfig config;
  std::map<std::string, std::vector<std::byte>> files;                 // all but pack.json
  std::map<std::string, std::vector<std::byte>> tensors;               // as published
  std::vector<std::vector<std::byte>> shards;                          // as published
  std::string pack_json;

  void write(const std::filesystem::path& directory) const {
    std::filesystem::create_directories(directory);
    for (const auto& [name, bytes] : files) GgufBuilder::save(directory / name, bytes);
    const Bytes json = as_bytes(pack_json);
    GgufBuilder::save(directory / kPackManifestName, {json.begin(), json.end()});
  }

  // Encodes the manifest as it is now.
  void seal() {
    files[kPackRecordsName] = encode_records(manifest.records);
    files[kPackSourcesName] = encode_sources(manifest.sources);
    manifest.files.clear();
    for (const char* name : {kPackMetadataName, kPackRecordsName, kPackSourcesName, "dense.bin", "experts.bin", "rows.bin",
                             kPackSourceName, kPackProfileName}) {
      if (files.count(name) == 0) continue;
      manifest.files.push_back({name, files[name].size(), Sha256::of(files[name])});
    }
    pack_json = encode_pack_json(manifest, config);
  }

 private:
  std::vector<std::byte> noise(uint64_t bytes) {
    std::vector<std::byte> out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random_());
    return out;
  }

  // One matrix as it lies in the pack: every byte put where docs/pack_format.md says, one at a time.
  static std::vector<std::byte> grouped(DType type, uint64_t cols, uint64_t rows, Bytes matrix) {
    std::vector<std::byte> out(matrix.begin(), matrix.end());
    const uint64_t stride = row_bytes(type, cols);
    const uint64_t block = traits(type).block_bytes;
    for (uint64_t row = 0; row < rows / 16 * 16; ++row) {
      for (uint64_t c = 0; c < stride / block; ++c) {
        for (const GroupField& field : group_fields(type)) {
          for (uint64_t i = 0; i < field.bytes; ++i) {
            const uint64_t in_column = field.offset * 16u + i / field.unit * 16 * field.unit + row % 16 * field.unit + i % field.unit;
            out[row / 16 * 16 * stride + c * block * 16 + in_column] = matrix[row * stride + c * block + field.offset + i];
          }
        }
      }
    }
    return out;
  }

  static Shape shape_of(std::vector<uint64_t> dims) {
    Shape shape;
    shape.dims = static_cast<uint32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), shape.ne.begin());
    return shape;
  }

  uint32_t add_record(const char* file, Segment segment, const std::vector<std::byte>& bytes) {
    std::vector<std::byte>& out = files[file];
    manifest.records.push_back({out.size(), bytes.size(), segment, xxh3_128(bytes)});
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.resize(align_up(out.size(), kRecordAlignment));
    return static_cast<uint32_t>(manifest.records.size() - 1);
  }

  void add_metadata(uint32_t blocks) {
    GgufBuilder builder;
    builder.string("general.architecture", "qwen3moe").string("general.name", "tiny");
    builder.u32("qwen3moe.block_count", blocks).u32("qwen3moe.context_length", 128).u32("qwen3moe.embedding_length", 64);
    builder.u32("qwen3moe.attention.head_count", 2).u32("qwen3moe.attention.key_length", 32);
    builder.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen3moe.rope.freq_base", 1e6f);
    builder.u32("qwen3moe.expert_count", 3).u32("qwen3moe.expert_used_count", 2);
    builder.u32("qwen3moe.expert_feed_forward_length", 32);
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
    const std::vector<std::byte> head = builder.build_head();
    files[kPackMetadataName] = zstd_compress(head);
    config = read_model_config(read_gguf_header(MemorySource(head, "metadata")).metadata);
    manifest.tool_version = "test";
    manifest.routing_id = Sha256::of(as_bytes("routers"));
  }

  void add_dense(const std::string& name, DType type, std::vector<uint64_t> dims,
                 const std::vector<std::byte>& bytes = {}) {
    const Shape shape = shape_of(std::move(dims));
    tensors[name] = bytes.empty() ? noise(*checked_tensor_bytes(type, shape)) : bytes;
    const uint64_t matrix = row_bytes(type, shape.ne[0]) * shape.ne[1];
    std::vector<std::byte> record;
    for (uint64_t at = 0; at < tensors[name].size(); at += matrix) {
      const std::vector<std::byte> part = grouped(type, shape.ne[0], shape.ne[1], Bytes(tensors[name]).subspan(at, matrix));
      record.insert(record.end(), part.begin(), part.end());
    }
    manifest.dense.push_back({name, type, shape, add_record("dense.bin", Segment::kDense, record)});
  }

  void add_experts() {
    ExpertLayer layer;
    layer.layer = 0;
    layer.experts = 3;
    layer.gate = {.tensor = "blk.0.ffn_gate_exps.weight", .dtype = DType::kQ8_0, .in = 64, .out = 32, .bytes = 64 / 32 * 34 * 32};
    layer.up = {.tensor = "blk.0.ffn_up_exps.weight", .dtype = DType::kQ4_0, .in = 64, .out = 32, .offset = 2176, .bytes = 64 / 32 * 18 * 32};
    layer.down = {.tensor = "blk.0.ffn_down_exps.weight", .dtype = DType::kF16, .in = 32, .out = 64, .offset = 3328, .bytes = 32 * 2 * 64};
    layer.record_bytes = 3328 + 4096;
    add_layer(layer);
  }

  // Parts of types that checkpoints have, with one factor, one a row, and none beside them: 64 x 32 NVFP4 of 36 bytes a block, F8 and MXFP4.
  void add_scaled_experts() {
    ExpertLayer layer;
    layer.layer = 1;
    layer.experts = 3;
    layer.gate = {.tensor = "blk.1.ffn_gate_exps.weight", .dtype = DType::kNVFP4, .in = 64, .out = 32, .bytes = 36 * 32};
    layer.up = {.tensor = "blk.1.ffn_up_exps.weight", .dtype = DType::kNVFP4, .in = 64, .out = 32, .offset = 1152, .bytes = 36 * 32};
    layer.down = {.tensor = "blk.1.ffn_down_exps.weight", .dtype = DType::kF8_E4M3, .in = 32, .out = 64, .offset = 2304, .bytes = 32 * 64};
    layer.gate.scale_offset = 4352;
    layer.gate.scale_rows = layer.gate.scale_columns = 1;
    layer.up.scale_offset = 4416;
    layer.up.scale_rows = layer.up.scale_columns = 1;
    layer.down.scale_offset = 4480;
    layer.down.scale_rows = 64;
    layer.down.scale_columns = 1;
    layer.record_bytes = 4480 + 64 * 4;
    add_layer(layer);
  }

  void add_layer(ExpertLayer layer) {
    layer.first_record = static_cast<uint32_t>(manifest.records.size());
    std::vector<std::vector<std::byte>> records(3, std::vector<std::byte>(layer.record_bytes));
    for (const ExpertPart* part : layer.parts()) {
      tensors[part->tensor] = noise(part->bytes * 3);
      for (size_t e = 0; e < 3; ++e) {
        const Bytes matrix = Bytes(tensors[part->tensor]).subspan(e * part->bytes, part->bytes);
        const std::vector<std::byte> stored = grouped(part->dtype, part->in, part->out, matrix);
        std::copy(stored.begin(), stored.end(), records[e].begin() + static_cast<ptrdiff_t>(part->offset));
        const std::vector<std::byte> scales = noise(part->scale_bytes());
        std::copy(scales.begin(), scales.end(), records[e].begin() + static_cast<ptrdiff_t>(part->scale_offset));
      }
    }
    // In the file expert 2 comes first, then 0, then 1.
    manifest.records.resize(manifest.records.size() + 3);
    for (const size_t e : {2, 0, 1}) {
      const uint32_t at = add_record("experts.bin", Segment::kExperts, records[e]);
      manifest.records[layer.first_record + e] = manifest.records[at];
    }
    manifest.records.resize(layer.first_record + 3);
    manifest.expert_layers.push_back(layer);
  }

  void add_rows(const std::string& name, DType type, std::vector<uint64_t> dims) {
    RowTable table;
    table.name = name;
    table.dtype = type;
    table.shape = shape_of(std::move(dims));
    table.row_bytes = row_bytes(type, table.shape.ne[0]);
    const uint64_t payload = kPageBytes - kPageChecksumBytes;
    table.rows_per_page = payload / table.row_bytes;
    table.pages_per_row = table.rows_per_page > 0 ? 1 : (table.row_bytes + kPageChecksumBytes + kPageBytes - 1) / kPageBytes;
    std::vector<std::byte>& out = files["rows.bin"];
    table.first_page = out.size() / kPageBytes;
    const uint64_t rows = table.shape.ne[1];
    tensors[name] = noise(rows * table.row_bytes);
    for (uint64_t row = 0; row < rows; row += table.unit_rows()) {
      const uint64_t count = std::min(table.unit_rows(), rows - row);
      std::vector<std::byte> unit(table.unit_bytes() - kPageChecksumBytes);
      std::copy_n(tensors[name].begin() + static_cast<ptrdiff_t>(row * table.row_bytes), count * table.row_bytes, unit.begin());
      const Xxh128 sum = xxh3_128(unit, out.size() / kPageBytes);
      const auto* low = reinterpret_cast<const std::byte*>(&sum.low);
      const auto* high = reinterpret_cast<const std::byte*>(&sum.high);
      unit.insert(unit.end(), low, low + 8);
      unit.insert(unit.end(), high, high + 8);
      out.insert(out.end(), unit.begin(), unit.end());
    }
    table.pages = out.size() / kPageBytes - table.first_page;
    manifest.rows.push_back(table);
  }

  void add_profile() {
    Profile profile;
    profile.architecture = "qwen3moe";
    profile.routing_id = manifest.routing_id;
    profile.layers = 1;
    profile.experts = 3;
    profile.used = 2;
    profile.tool_version = "test";
    profile.corpora.push_back({"noise", {}, 30});
    profile.counts = {20, 10, 30};
    profile.weights = {1, 0.5, 1.5};
    const std::string text = encode_profile(profile);
    const Bytes bytes = as_bytes(text);
    files[kPackProfileName] = {bytes.begin(), bytes.end()};
    manifest.profile_id = profile.id();
  }

  // Shard one: a head, tensors with padding that is and is not zeros. Shard two: a head, the tables, a tail. Shard three, if
  // there is anything for it: a head and tensors.
  void add_sources(const std::vector<ExtraTensor>& extra) {
    begin_shard("tiny-00001-of-00002.gguf");
    add_source_bytes(100);
    add_tensor_piece("token_embd.weight");
    add_zeros(28);
    add_tensor_piece("blk.0.ffn_gate_exps.weight");
    add_source_bytes(3);
    add_tensor_piece("blk.0.ffn_down_exps.weight");
    add_tensor_piece("blk.0.ffn_up_exps.weight");
    add_tensor_piece("blk.0.ffn_gate_inp.weight");
    begin_shard("tiny-00002-of-00002.gguf");
    add_source_bytes(50);
    add_tensor_piece("table_b");
    add_tensor_piece("table_a");
    add_zeros(10);
    if (!extra.empty()) {
      begin_shard("extra.gguf");
      add_source_bytes(17);
      for (const ExtraTensor& tensor : extra) add_tensor_piece(tensor.name);
    }
  }
  void finish_shards() {
    for (size_t i = 0; i < shards.size(); ++i) {
      manifest.sources[i].bytes = shards[i].size();
      manifest.sources[i].sha256 = Sha256::of(shards[i]);
    }
  }
  void begin_shard(const std::string& name) {
    shards.emplace_back();
    manifest.sources.push_back({name, 0, {}, {}});
  }
  void append_shard(const std::vector<std::byte>& bytes) { shards.back().insert(shards.back().end(), bytes.begin(), bytes.end()); }
  void add_source_bytes(uint64_t count) {
    const std::vector<std::byte> bytes = noise(count);
    std::vector<std::byte>& out = files[kPackSourceName];
    manifest.sources.back().pieces.push_back({SourcePiece::From::kSource, count, out.size(), 0, {}});
    out.insert(out.end(), bytes.begin(), bytes.end());
    append_shard(bytes);
  }
  void add_zeros(uint64_t count) {
    manifest.sources.back().pieces.push_back({SourcePiece::From::kZeros, count, 0, 0, {}});
    append_shard(std::vector<std::byte>(count));
  }
  void add_tensor_piece(const std::string& name) {
    manifest.sources.back().pieces.push_back({SourcePiece::From::kTensor, tensors.at(name).size(), 0, manifest.find_tensor(name).value(), {}});
    append_shard(tensors.at(name));
  }

  void add_checkpoint_tensors() {
    add_dense("blk.1.norm", DType::kF32, {64});  // computed: in no shard
    add_dense("blk.1.mx", DType::kMXFP4, {192, 20});
    add_dense("blk.1.nv", DType::kNVFP4, {256, 18});
    add_dense("blk.1.bf", DType::kBF16, {40, 12});
    add_dense("blk.1.bg", DType::kBF16, {40, 6});
    add_dense("blk.1.nw", DType::kNVFP4, {96, 17}, filled_up_rows());
    add_scaled_experts();
    add_rows("table_c", DType::kF32, {16, 300});
  }

  // Rows of 96 elements, in two blocks of 64: what the source does not have is zeros.
  std::vector<std::byte> filled_up_rows() {
    std::vector<std::byte> out = noise(17 * 72);
    for (size_t row = 0; row < 17; ++row) {
      const auto block = out.begin() + static_cast<ptrdiff_t>(row * 72 + 36);
      std::fill(block + 2, block + 4, std::byte{0});
      std::fill(block + 20, block + 36, std::byte{0});
    }
    return out;
  }

  // A shard with rows in every order that a piece can say.
  void add_checkpoint_source() {
    begin_shard("model.safetensors");
    add_source_bytes(77);
    const auto mx = [&](RowField field, uint64_t first, uint64_t columns, ColumnTiles tiles) {
      add_rows_piece("blk.1.mx", {.field = field, .rows = 20, .first_column = first, .columns = columns, .tiles = tiles});
    };
    mx(RowField::kMxfp4Codes, 0, 64, {});
    mx(RowField::kMxfp4Codes, 64, 128, {2, 2, 32});
    add_zeros(5);
    mx(RowField::kMxfp4Scales, 0, 192, {3, 2, 32});
    add_rows_piece("blk.1.nv", {.field = RowField::kNvfp4Codes, .rows = 18, .columns = 256, .tiles = {2, 4, 32}});
    add_rows_piece("blk.1.nv", {.field = RowField::kNvfp4Scales, .rows = 18, .first_column = 48, .columns = 208, .tiles = {}});
    add_rows_piece("blk.1.nv", {.field = RowField::kNvfp4Scales, .rows = 18, .columns = 48, .tiles = {}});
    add_rows_piece("blk.1.bf", {.rows = 6, .columns = 40, .tiles = {2, 4, 5}});
    add_rows_piece("blk.1.bf", {.ways = 2, .other = number("blk.1.bg"), .first_row = 6, .rows = 12, .columns = 40, .tiles = {}});
    for (uint64_t e = 0; e < 3; ++e) {
      for (const RowField field : {RowField::kNvfp4Codes, RowField::kNvfp4Scales}) {
        if (e == 1) {  // gate's and up's rows take turns
          add_rows_piece("blk.1.ffn_gate_exps.weight", {.field = field, .ways = 2, .other = number("blk.1.ffn_up_exps.weight"), .first_row = 32,
                                                        .other_first_row = 32, .rows = 64, .columns = 64, .tiles = {}});
        } else {
          add_rows_piece("blk.1.ffn_gate_exps.weight", {.field = field, .first_row = 32 * e, .rows = 32, .columns = 64, .tiles = {}});
          add_rows_piece("blk.1.ffn_up_exps.weight", {.field = field, .first_row = 32 * e, .rows = 32, .columns = 64, .tiles = {}});
        }
      }
    }
    // Of expert 0 the columns lie one after the other, in two windows.
    for (const uint64_t first : {20, 0}) {
      add_rows_piece("blk.1.ffn_down_exps.weight",
                     {.transposed = true, .rows = first == 0 ? 20ull : 12ull, .first_column = first, .columns = 64, .tiles = {}});
    }
    add_rows_piece("blk.1.ffn_down_exps.weight", {.first_row = 64, .rows = 128, .columns = 32, .tiles = {}});
    add_rows_piece("table_c", {.first_row = 100, .rows = 200, .columns = 16, .tiles = {}});
    add_rows_piece("table_c", {.rows = 100, .first_column = 8, .columns = 8, .tiles = {}});
    add_rows_piece("table_c", {.rows = 100, .columns = 8, .tiles = {}});
    add_rows_piece("blk.1.nw", {.field = RowField::kNvfp4Scales, .rows = 17, .columns = 96, .tiles = {}});
    add_rows_piece("blk.1.nw", {.field = RowField::kNvfp4Codes, .rows = 17, .columns = 96, .tiles = {3, 2, 16}});
    add_source_bytes(9);
  }

  uint32_t number(const std::string& name) const { return manifest.find_tensor(name).value(); }

  // Elements of a row of a tensor.
  uint64_t columns_of(const std::string& name) const {
    for (const TensorInfo& tensor : pack_tensors(manifest)) {
      if (tensor.name == name) return tensor.shape.ne[0];
    }
    return 0;
  }

  void add_rows_piece(const std::string& name, const RowPiece& rows) {
    const uint32_t tensor = number(name);
    const std::vector<std::byte>& way0 = tensors.at(name);
    const std::vector<std::byte>& way1 = rows.ways == 2 ? tensors.at(manifest.tensor_name(rows.other)) : way0;
    const RowLayout layout{manifest.tensor_dtype(tensor), columns_of(name), rows.field, rows.first_column, rows.columns, rows.tiles};
    const uint64_t stride = row_bytes(layout.dtype, layout.target_columns);
    std::vector<std::byte> out;
    for (uint64_t i = 0; i < rows.rows; ++i) {
      if (rows.transposed) {
        const uint64_t element = traits(layout.dtype).block_bytes;
        for (uint64_t j = 0; j < rows.columns; ++j) {
          const std::byte* const at = &way0[(rows.first_row + j) * stride + (rows.first_column + i) * element];
          out.insert(out.end(), at, at + element);
        }
        continue;
      }
      const bool odd = rows.ways == 2 && i % 2 == 1;
      const uint64_t row = (odd ? rows.other_first_row : rows.first_row) + i / rows.ways;
      const std::vector<std::byte> bytes = naive_source_row(layout, &(odd ? way1 : way0)[row * stride]);
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
    manifest.sources.back().pieces.push_back({SourcePiece::From::kRows, out.size(), 0, tensor, rows});
    append_shard(out);
  }

  std::mt19937 random_{7};
};

// pack.json text of any JSON document without its seal: `body` ends before the closing brace.
inline std::string seal_json_body(std::string body) {
  body += ",\n \"sha256\": \"";
  const std::string hash = Sha256::of(as_bytes(body)).hex();
  return body + hash + "\"\n}\n";
}

}  // namespace tierpack::testing_support
