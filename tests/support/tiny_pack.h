// A small pack put together by hand from docs/pack_format.md, independent of repack/: two dense tensors, one layer of three
// experts with a part of each kind, a table with many rows a page and one with several pages a row, two source shards; and
// on request more dense tensors, in a third shard.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/pack.h"
#include "formats/pack_layout.h"
#include "formats/row_groups.h"
#include "tests/support/gguf_builder.h"

namespace tierpack::testing_support {

struct ExtraTensor {
  std::string name;
  DType type;
  std::vector<uint64_t> dims;
  std::vector<std::byte> bytes = {};  // as published; empty = noise
};

class TinyPack {
 public:
  explicit TinyPack(bool with_profile = false, const std::vector<ExtraTensor>& extra = {}) {
    add_metadata();
    add_dense("token_embd.weight", DType::kF32, {64, 4});
    add_dense("blk.0.ffn_gate_inp.weight", DType::kF32, {64, 3});
    add_experts();
    for (const ExtraTensor& tensor : extra) add_dense(tensor.name, tensor.type, tensor.dims, tensor.bytes);
    add_rows("table_a", DType::kQ4_0, {160, 100});
    add_rows("table_b", DType::kF32, {2048, 5});
    if (with_profile) add_profile();
    add_sources(extra);
    seal();
  }

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
    manifest.files.clear();
    for (const char* name : {kPackMetadataName, kPackRecordsName, "dense.bin", "experts.bin", "rows.bin", kPackSourceName,
                             kPackProfileName}) {
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

  void add_metadata() {
    GgufBuilder builder;
    builder.string("general.architecture", "qwen3moe").string("general.name", "tiny");
    builder.u32("qwen3moe.block_count", 1).u32("qwen3moe.context_length", 128).u32("qwen3moe.embedding_length", 64);
    builder.u32("qwen3moe.attention.head_count", 2).u32("qwen3moe.attention.key_length", 32);
    builder.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen3moe.rope.freq_base", 1e6f);
    builder.u32("qwen3moe.expert_count", 3).u32("qwen3moe.expert_used_count", 2);
    builder.u32("qwen3moe.expert_feed_forward_length", 32);
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
    files[kPackMetadataName] = builder.build_head();
    config = read_model_config(read_gguf_header(MemorySource(files[kPackMetadataName], "metadata")).metadata);
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
    layer.gate = {"blk.0.ffn_gate_exps.weight", DType::kQ8_0, 64, 32, 0, 64 / 32 * 34 * 32};
    layer.up = {"blk.0.ffn_up_exps.weight", DType::kQ4_0, 64, 32, 2176, 64 / 32 * 18 * 32};
    layer.down = {"blk.0.ffn_down_exps.weight", DType::kF16, 32, 64, 3328, 32 * 2 * 64};
    layer.record_bytes = 3328 + 4096;
    layer.first_record = static_cast<uint32_t>(manifest.records.size());
    std::vector<std::vector<std::byte>> records(3, std::vector<std::byte>(layer.record_bytes));
    for (const ExpertPart* part : layer.parts()) {
      tensors[part->tensor] = noise(part->bytes * 3);
      for (size_t e = 0; e < 3; ++e) {
        const Bytes matrix = Bytes(tensors[part->tensor]).subspan(e * part->bytes, part->bytes);
        const std::vector<std::byte> stored = grouped(part->dtype, part->in, part->out, matrix);
        std::copy(stored.begin(), stored.end(), records[e].begin() + static_cast<ptrdiff_t>(part->offset));
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
    manifest.sources.back().pieces.push_back({SourcePiece::From::kSource, count, out.size(), ""});
    out.insert(out.end(), bytes.begin(), bytes.end());
    append_shard(bytes);
  }
  void add_zeros(uint64_t count) {
    manifest.sources.back().pieces.push_back({SourcePiece::From::kZeros, count, 0, ""});
    append_shard(std::vector<std::byte>(count));
  }
  void add_tensor_piece(const std::string& name) {
    manifest.sources.back().pieces.push_back({SourcePiece::From::kTensor, tensors.at(name).size(), 0, name});
    append_shard(tensors.at(name));
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
