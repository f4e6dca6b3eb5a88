// Random Mixture-of-Experts GGUFs (architecture qwen3moe) for tests of everything that moves their bytes: types differ by
// layer and matrix (every type a GGUF may hold occurs), tensors come in any order, in any number of shards, with any alignment. Weights are noise; only the
// routers hold real numbers.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "tests/support/gguf_builder.h"

namespace tierpack::testing_support {

struct MoeGguf {
  struct Extra {
    std::string name;
    DType type;
    std::vector<uint64_t> shape;
  };
  uint64_t seed = 1;
  uint32_t layers = 2;
  uint32_t experts = 6;
  uint32_t hidden = 256;
  uint32_t ff = 96;            // any number: where no type of blocks fits, plain numbers are taken
  uint32_t key_rows = 0;       // rows of attn_k.weight, 0 = no such tensor
  uint32_t alignment = 32;
  uint16_t shards = 1;
  bool merged = false;         // gate and up in one stack
  bool shuffled = false;       // tensors in random order
  bool dirty_padding = false;  // bytes between tensors are not zeros
  uint32_t table_row = 160;    // elements a row of per_layer_token_embd, 0 = no table
  uint32_t table_rows = 1000;
  DType table_type = DType::kQ4_0;
  uint64_t trailing = 0;       // bytes after the last tensor of each shard
  std::vector<Extra> extra = {};  // more dense tensors
};

class MoeGgufWriter {
 public:
  explicit MoeGgufWriter(const MoeGguf& model) : model_(model), random_(model.seed) {}

  // The shards' bytes, in order.
  std::vector<std::vector<std::byte>> build() {
    add_keys();
    add_tensors();
    if (model_.shuffled) std::shuffle(builder_.tensors.begin(), builder_.tensors.end(), random_);
    std::vector<std::vector<std::byte>> files =
        model_.shards == 1 ? std::vector<std::vector<std::byte>>{builder_.build()} : builder_.build_split(model_.shards);
    for (std::vector<std::byte>& file : files) {
      if (model_.dirty_padding) fill_padding(file);
      const std::vector<std::byte> tail = noise(model_.trailing);
      file.insert(file.end(), tail.begin(), tail.end());
    }
    return files;
  }

  // Writes NAME.gguf or NAME-00001-of-0000N.gguf ... and returns the first path.
  std::filesystem::path write(const std::filesystem::path& directory, const std::string& name) {
    std::filesystem::create_directories(directory);
    const auto files = build();
    const auto path = [&](size_t i) {
      return directory / (model_.shards == 1 ? name + ".gguf"
                                             : GgufBuilder::shard_file_name(name, static_cast<uint16_t>(i + 1), model_.shards));
    };
    for (size_t i = 0; i < files.size(); ++i) GgufBuilder::save(path(i), files[i]);
    return path(0);
  }

 private:
  std::vector<std::byte> noise(uint64_t bytes) {
    std::vector<std::byte> out(align_up(bytes, 8));
    for (uint64_t i = 0; i < out.size(); i += 8) store(&out[i], random_());
    out.resize(bytes);
    return out;
  }

  // A type whose blocks divide rows of `elements`; one in six holds plain numbers.
  DType pick(uint32_t elements) {
    static constexpr DType kPlain[] = {DType::kF32, DType::kF16, DType::kBF16};
    std::vector<DType> fitting;
    for (const DTypeTraits& t : ggml_dtypes()) {
      if (t.quantised && elements % t.block_elements == 0) fitting.push_back(t.type);
    }
    const uint64_t choice = random_();
    return fitting.empty() || choice % 6 == 0 ? kPlain[choice / 6 % 3] : fitting[choice / 6 % fitting.size()];
  }

  void add(const std::string& name, DType type, const std::vector<uint64_t>& shape) {
    uint64_t rows = 1;
    for (size_t d = 1; d < shape.size(); ++d) rows *= shape[d];
    builder_.add_tensor(name, type, shape, noise(row_bytes(type, shape[0]) * rows));
  }

  void add_keys() {
    if (model_.alignment != 32) builder_.set_alignment(model_.alignment);
    builder_.string("general.architecture", "qwen3moe").string("general.name", "noise");
    builder_.u32("qwen3moe.block_count", model_.layers).u32("qwen3moe.context_length", 512);
    builder_.u32("qwen3moe.embedding_length", model_.hidden).u32("qwen3moe.attention.head_count", 4);
    builder_.u32("qwen3moe.attention.head_count_kv", 2).u32("qwen3moe.attention.key_length", 64);
    builder_.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen3moe.rope.freq_base", 1e6f);
    builder_.u32("qwen3moe.expert_count", model_.experts).u32("qwen3moe.expert_used_count", 2);
    builder_.u32("qwen3moe.expert_feed_forward_length", model_.ff);
    builder_.strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
  }

  void add_tensors() {
    const uint64_t hidden = model_.hidden;
    const uint64_t ff = model_.ff;
    const uint64_t experts = model_.experts;
    add("output.weight", pick(model_.hidden), {hidden, 4});
    add("token_embd.weight", pick(model_.hidden), {hidden, 4});
    add("output_norm.weight", DType::kF32, {hidden});
    for (uint32_t layer = 0; layer < model_.layers; ++layer) {
      const std::string block = fmt::format("blk.{}.", layer);
      add(block + "attn_norm.weight", DType::kF32, {hidden});
      add(block + "attn_q.weight", pick(model_.hidden), {hidden, 256});
      if (model_.key_rows > 0) add(block + "attn_k.weight", pick(model_.hidden), {hidden, model_.key_rows});
      std::vector<float> router(hidden * experts);
      for (float& value : router) value = static_cast<float>(random_() % 2001) / 1000.0f - 1.0f;
      builder_.add_f32(block + "ffn_gate_inp.weight", {hidden, experts}, router);
      add(block + "ffn_down_exps.weight", pick(model_.ff), {ff, hidden, experts});
      if (model_.merged) {
        add(block + "ffn_gate_up_exps.weight", pick(model_.hidden), {hidden, 2 * ff, experts});
      } else {
        add(block + "ffn_gate_exps.weight", pick(model_.hidden), {hidden, ff, experts});
        add(block + "ffn_up_exps.weight", pick(model_.hidden), {hidden, ff, experts});
      }
    }
    if (model_.table_row > 0) {
      add("per_layer_token_embd.weight", model_.table_type, {model_.table_row, model_.table_rows});
    }
    for (const MoeGguf::Extra& tensor : model_.extra) add(tensor.name, tensor.type, tensor.shape);
  }

  void fill_padding(std::vector<std::byte>& file) {
    std::vector<TensorInfo> tensors = read_gguf_header(MemorySource(file, "built")).tensors;
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
    for (size_t i = 0; i < tensors.size(); ++i) {
      const uint64_t begin = tensors[i].offset + tensors[i].bytes;
      const uint64_t end = i + 1 < tensors.size() ? tensors[i + 1].offset : file.size();
      const std::vector<std::byte> filling = noise(end - begin);
      std::copy(filling.begin(), filling.end(), file.begin() + static_cast<ptrdiff_t>(begin));
    }
  }

  MoeGguf model_;
  std::mt19937_64 random_;
  GgufBuilder builder_;
};

}  // namespace tierpack::testing_support
