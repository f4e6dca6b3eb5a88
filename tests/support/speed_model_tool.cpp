// Writes a GGUF of random weights that runs, for measurements: architecture qwen3moe, all matrices Q4_K, routers and norms F32, no
// tokenizer. Usage: speed_model_tool FILE [key=value]... with the keys and values of kSizes.
//
// Matrices have mean 0 and deviation 1/sqrt(columns), so that activations keep their size from block to block. The rows of a router shrink with
// the expert's number: low numbers are chosen more often, which is the order in which a pack without a profile fills caches.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "formats/dequant.h"
#include "tests/support/gguf_builder.h"

namespace {

using namespace tierpack;
using testing_support::GgufBuilder;

const std::map<std::string, uint64_t> kSizes = {{"hidden", 2048}, {"heads", 32},  {"kv_heads", 4}, {"head_dim", 128}, {"vocab", 32768}, {"layers", 8},
                                                {"experts", 128}, {"used", 8},    {"ff", 768},     {"context", 4096}, {"seed", 1}};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Deviation 1, by the sum of 16-bit uniforms.
  float normal() {
    const uint64_t bits = next();
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(bits >> (16 * i) & 0xFFFF) / 65536.0;
    return static_cast<float>((sum - 2) * std::sqrt(3.0));
  }

 private:
  uint64_t state_;
};

constexpr uint64_t kBlockElements = 256;
constexpr uint64_t kBlockBytes = 144;  // d, dmin, 12 bytes of 6-bit scales and offsets, 128 of 4-bit codes
// Deviation and mean of d * scale * code - dmin * offset with everything random, d = 1 and dmin = 7.5.
constexpr double kBlockDeviation = 255.5;
constexpr double kMeanCode = 7.5;

class ModelFile {
 public:
  ModelFile(const char* path, uint64_t seed) : file_(std::fopen(path, "wb")), random_(seed) {}
  ~ModelFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  ModelFile(const ModelFile&) = delete;

  void matrix(const std::string& name, std::vector<uint64_t> shape) { add(name, DType::kQ4_K, std::move(shape), 0, false); }
  // Ones.
  void norm(const std::string& name, uint64_t elements) { add(name, DType::kF32, {elements}, 1, false); }
  void router(const std::string& name, uint64_t hidden, uint64_t experts) { add(name, DType::kF32, {hidden, experts}, 0, true); }

  bool write(GgufBuilder& keys) {
    if (file_ == nullptr) return false;
    uint64_t offset = 0;
    for (const Entry& entry : entries_) {
      keys.tensors.push_back({entry.name, static_cast<int32_t>(entry.type), entry.shape, {}, offset});
      offset += align_up(bytes_of(entry), keys.alignment);
    }
    const std::vector<std::byte> head = keys.build_head();
    put(head.data(), head.size());
    for (const Entry& entry : entries_) {
      entry.type == DType::kF32 ? numbers(entry) : blocks(entry);
      const std::vector<std::byte> padding(align_up(bytes_of(entry), keys.alignment) - bytes_of(entry));
      put(padding.data(), padding.size());
    }
    good_ = std::fflush(file_) == 0 && good_;
    return good_;
  }

 private:
  struct Entry {
    std::string name;
    DType type;
    std::vector<uint64_t> shape;
    float value;
    bool router;
  };

  void add(const std::string& name, DType type, std::vector<uint64_t> shape, float value, bool router) {
    entries_.push_back({name, type, std::move(shape), value, router});
  }
  static uint64_t rows_of(const Entry& entry) {
    uint64_t rows = 1;
    for (size_t d = 1; d < entry.shape.size(); ++d) rows *= entry.shape[d];
    return rows;
  }
  static uint64_t bytes_of(const Entry& entry) { return row_bytes(entry.type, entry.shape[0]) * rows_of(entry); }
  void put(const void* bytes, size_t count) { good_ = std::fwrite(bytes, 1, count, file_) == count && good_; }

  void numbers(const Entry& entry) {
    const uint64_t rows = rows_of(entry);
    std::vector<float> row(entry.shape[0], entry.value);
    for (uint64_t r = 0; r < rows; ++r) {
      const float scale = 2 * (1.5f - static_cast<float>(r) / static_cast<float>(rows)) / std::sqrt(static_cast<float>(row.size()));
      if (entry.router) {
        for (float& value : row) value = scale * random_.normal();
      }
      put(row.data(), row.size() * sizeof(float));
    }
  }

  void blocks(const Entry& entry) {
    const double d = 1 / (kBlockDeviation * std::sqrt(static_cast<double>(entry.shape[0])));
    const uint16_t scales[2] = {f32_to_f16(static_cast<float>(d)), f32_to_f16(static_cast<float>(d * kMeanCode))};
    const uint64_t row = entry.shape[0] / kBlockElements * kBlockBytes;
    std::vector<std::byte> bytes(row);
    for (uint64_t r = 0; r < rows_of(entry); ++r) {
      for (uint64_t at = 0; at < row; at += 8) store(&bytes[at], random_.next());
      for (uint64_t at = 0; at < row; at += kBlockBytes) {
        store(&bytes[at], scales[0]);
        store(&bytes[at + 2], scales[1]);
      }
      put(bytes.data(), bytes.size());
    }
  }

  std::FILE* file_;
  Random random_;
  std::vector<Entry> entries_;
  bool good_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, uint64_t> sizes = kSizes;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const auto found = sizes.find(word.substr(0, equals));
    if (equals == std::string::npos || found == sizes.end()) {
      std::fprintf(stderr, "speed_model_tool: %s is no KEY=VALUE that is known\n", word.c_str());
      return 2;
    }
    found->second = std::strtoull(word.c_str() + equals + 1, nullptr, 10);
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: speed_model_tool FILE [key=value]...\n");
    return 2;
  }
  const auto size = [&](const char* key) { return sizes.at(key); };
  const uint64_t hidden = size("hidden"), head_dim = size("head_dim"), ff = size("ff"), experts = size("experts");
  const uint64_t queries = size("heads") * head_dim, keys = size("kv_heads") * head_dim;
  if (hidden % kBlockElements != 0 || ff % kBlockElements != 0 || queries % kBlockElements != 0) {
    std::fprintf(stderr, "speed_model_tool: hidden, ff and heads * head_dim are multiples of 256\n");
    return 2;
  }

  testing_support::GgufBuilder head;
  const auto number = [&](const char* key, uint64_t value) { head.u32(std::string("qwen3moe.") + key, static_cast<uint32_t>(value)); };
  head.string("general.architecture", "qwen3moe").string("general.name", "random").string("tokenizer.ggml.model", "no_vocab");
  number("block_count", size("layers"));
  number("context_length", size("context"));
  number("embedding_length", hidden);
  number("vocab_size", size("vocab"));
  number("attention.head_count", size("heads"));
  number("attention.head_count_kv", size("kv_heads"));
  number("attention.key_length", head_dim);
  number("attention.value_length", head_dim);
  number("expert_count", experts);
  number("expert_used_count", size("used"));
  number("expert_feed_forward_length", ff);
  head.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen3moe.rope.freq_base", 1e6f);

  ModelFile file(argv[1], size("seed"));
  file.matrix("token_embd.weight", {hidden, size("vocab")});
  file.matrix("output.weight", {hidden, size("vocab")});
  file.norm("output_norm.weight", hidden);
  for (uint64_t layer = 0; layer < size("layers"); ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    file.norm(block + "attn_norm.weight", hidden);
    file.norm(block + "ffn_norm.weight", hidden);
    file.norm(block + "attn_q_norm.weight", head_dim);
    file.norm(block + "attn_k_norm.weight", head_dim);
    file.matrix(block + "attn_q.weight", {hidden, queries});
    file.matrix(block + "attn_k.weight", {hidden, keys});
    file.matrix(block + "attn_v.weight", {hidden, keys});
    file.matrix(block + "attn_output.weight", {queries, hidden});
    file.router(block + "ffn_gate_inp.weight", hidden, experts);
    file.matrix(block + "ffn_gate_exps.weight", {hidden, ff, experts});
    file.matrix(block + "ffn_up_exps.weight", {hidden, ff, experts});
    file.matrix(block + "ffn_down_exps.weight", {ff, hidden, experts});
  }
  if (!file.write(head)) {
    std::fprintf(stderr, "speed_model_tool: %s cannot be written\n", argv[1]);
    return 1;
  }
  return 0;
}
