// Builds GGUF files in memory for tests, by the format's own rules and independent of formats/gguf_write.cpp, so that a
// test can also build what a writer must never produce.
//
//   GgufBuilder b;
//   b.u32("qwen3moe.block_count", 2).f32("qwen3moe.rope.freq_base", 1e6f).strings("tokenizer.ggml.tokens", {"a", "b"});
//   b.add_tensor("token_embd.weight", DType::kF32, {64, 2}, bytes);   // or add_tensor(name, type, shape) for zeros
//   std::vector<std::byte> file = b.build();
//   b.write(path);                         // one file
//   b.write_split(directory, "model", 3);  // model-00001-of-00003.gguf ...: tensors in equal runs, first shard has
//   keys
//
// Raw values for hostile files: `version`, `alignment`, `tensor_count`, `key_count` override what is written, and each
// tensor's `offset` override replaces the computed one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/bytes.h"
#include "formats/dtype.h"

namespace tierpack::testing_support {

class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    int32_t type = 0;             // ggml id
    std::vector<uint64_t> shape;  // contiguous dimension first
    std::vector<std::byte> bytes;
    std::optional<uint64_t> offset;  // relative to the data section; set = written as it is
  };

  uint32_t version = 3;
  uint64_t alignment = 32;  // of the layout; set_alignment also writes the key
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> key_count;
  std::vector<Tensor> tensors;

  // --- Keys, in the order of calls
  GgufBuilder& u8(std::string_view key, uint8_t v) { return scalar(key, 0, v); }
  GgufBuilder& i8(std::string_view key, int8_t v) { return scalar(key, 1, v); }
  GgufBuilder& u16(std::string_view key, uint16_t v) { return scalar(key, 2, v); }
  GgufBuilder& i16(std::string_view key, int16_t v) { return scalar(key, 3, v); }
  GgufBuilder& u32(std::string_view key, uint32_t v) { return scalar(key, 4, v); }
  GgufBuilder& i32(std::string_view key, int32_t v) { return scalar(key, 5, v); }
  GgufBuilder& f32(std::string_view key, float v) { return scalar(key, 6, v); }
  GgufBuilder& boolean(std::string_view key, bool v) { return scalar(key, 7, static_cast<uint8_t>(v)); }
  GgufBuilder& u64(std::string_view key, uint64_t v) { return scalar(key, 10, v); }
  GgufBuilder& i64(std::string_view key, int64_t v) { return scalar(key, 11, v); }
  GgufBuilder& f64(std::string_view key, double v) { return scalar(key, 12, v); }
  GgufBuilder& string(std::string_view key, std::string_view v) {
    begin_key(key, 8);
    put_string(keys_, v);
    return *this;
  }
  GgufBuilder& u8s(std::string_view key, const std::vector<uint8_t>& v) { return array(key, 0, v); }
  GgufBuilder& u32s(std::string_view key, const std::vector<uint32_t>& v) { return array(key, 4, v); }
  GgufBuilder& i32s(std::string_view key, const std::vector<int32_t>& v) { return array(key, 5, v); }
  GgufBuilder& f32s(std::string_view key, const std::vector<float>& v) { return array(key, 6, v); }
  GgufBuilder& bools(std::string_view key, const std::vector<uint8_t>& v) { return array(key, 7, v); }
  GgufBuilder& u64s(std::string_view key, const std::vector<uint64_t>& v) { return array(key, 10, v); }
  GgufBuilder& i64s(std::string_view key, const std::vector<int64_t>& v) { return array(key, 11, v); }
  GgufBuilder& f64s(std::string_view key, const std::vector<double>& v) { return array(key, 12, v); }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& v) {
    begin_array(key, 8, v.size());
    for (const std::string& text : v) put_string(keys_, text);
    return *this;
  }
  // A key whose value is written by the caller: value type id, then raw bytes.
  GgufBuilder& raw(std::string_view key, int32_t type, Bytes value) {
    begin_key(key, type);
    keys_.insert(keys_.end(), value.begin(), value.end());
    return *this;
  }
  GgufBuilder& set_alignment(uint32_t bytes) {
    alignment = bytes;
    return u32("general.alignment", bytes);
  }

  // --- Tensors, in the order of calls
  GgufBuilder& add_tensor(std::string name, DType type, std::vector<uint64_t> shape, std::vector<std::byte> bytes) {
    tensors.push_back({std::move(name), static_cast<int32_t>(type), std::move(shape), std::move(bytes), {}});
    return *this;
  }
  // Zeros of the right size.
  GgufBuilder& add_tensor(std::string name, DType type, std::vector<uint64_t> shape) {
    uint64_t rows = 1;
    for (size_t d = 1; d < shape.size(); ++d) rows *= shape[d];
    const uint64_t bytes = row_bytes(type, shape.empty() ? 1 : shape[0]) * rows;
    return add_tensor(std::move(name), type, std::move(shape), std::vector<std::byte>(bytes));
  }
  GgufBuilder& add_f32(std::string name, std::vector<uint64_t> shape, const std::vector<float>& values) {
    const auto* first = reinterpret_cast<const std::byte*>(values.data());
    return add_tensor(std::move(name), DType::kF32, std::move(shape), {first, first + values.size() * sizeof(float)});
  }

  // --- Output
  // The head alone, padded to the data section.
  std::vector<std::byte> build_head() const {
    std::vector<std::byte> out;
    for (const char c : {'G', 'G', 'U', 'F'}) put(out, c);
    put(out, version);
    put(out, tensor_count.value_or(tensors.size()));
    put(out, key_count.value_or(keys_written_));
    out.insert(out.end(), keys_.begin(), keys_.end());
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      put_string(out, tensor.name);
      put(out, static_cast<uint32_t>(tensor.shape.size()));
      for (const uint64_t n : tensor.shape) put(out, n);
      put(out, tensor.type);
      put(out, tensor.offset.value_or(offset));
      offset += align_up(tensor.bytes.size(), alignment);
    }
    if (!tensors.empty()) out.resize(align_up(out.size(), alignment));
    return out;
  }
  std::vector<std::byte> build() const {
    std::vector<std::byte> out = build_head();
    for (const Tensor& tensor : tensors) {
      out.insert(out.end(), tensor.bytes.begin(), tensor.bytes.end());
      out.resize(align_up(out.size(), alignment));
    }
    return out;
  }
  void write(const std::filesystem::path& path) const { save(path, build()); }

  // The files of a split set in order; the keys of this builder go to the first one.
  std::vector<std::vector<std::byte>> build_split(uint16_t shards) const {
    std::vector<std::vector<std::byte>> files;
    for (uint16_t shard = 0; shard < shards; ++shard) {
      GgufBuilder part;
      part.version = version;
      part.alignment = alignment;
      if (shard == 0) {
        part.keys_ = keys_;
        part.keys_written_ = keys_written_;
      } else if (alignment != 32) {
        part.set_alignment(static_cast<uint32_t>(alignment));
      }
      part.u16("split.no", shard).u16("split.count", shards);
      part.i32("split.tensors.count", static_cast<int32_t>(tensors.size()));
      const size_t begin = tensors.size() * shard / shards;
      const size_t end = tensors.size() * (size_t{shard} + 1) / shards;
      part.tensors.assign(tensors.begin() + static_cast<ptrdiff_t>(begin),
                          tensors.begin() + static_cast<ptrdiff_t>(end));
      files.push_back(part.build());
    }
    return files;
  }
  static std::string shard_file_name(std::string_view name, uint16_t number, uint16_t shards) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", name, number, shards);
  }
  // Returns the path of the first shard.
  std::filesystem::path write_split(const std::filesystem::path& directory, std::string_view name,
                                    uint16_t shards) const {
    const auto files = build_split(shards);
    for (uint16_t i = 0; i < shards; ++i) {
      save(directory / shard_file_name(name, static_cast<uint16_t>(i + 1), shards), files[i]);
    }
    return directory / shard_file_name(name, 1, shards);
  }

  static void save(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  template <typename T>
  static void put(std::vector<std::byte>& out, const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
  }
  static void put_string(std::vector<std::byte>& out, std::string_view text) {
    put(out, uint64_t{text.size()});
    const Bytes bytes = as_bytes(text);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  void begin_key(std::string_view key, int32_t type) {
    put_string(keys_, key);
    put(keys_, type);
    ++keys_written_;
  }
  void begin_array(std::string_view key, int32_t type, uint64_t count) {
    begin_key(key, 9);
    put(keys_, type);
    put(keys_, count);
  }
  template <typename T>
  GgufBuilder& scalar(std::string_view key, int32_t type, T value) {
    begin_key(key, type);
    put(keys_, value);
    return *this;
  }
  template <typename T>
  GgufBuilder& array(std::string_view key, int32_t type, const std::vector<T>& values) {
    begin_array(key, type, values.size());
    const auto* first = reinterpret_cast<const std::byte*>(values.data());
    keys_.insert(keys_.end(), first, first + values.size() * sizeof(T));
    return *this;
  }

  std::vector<std::byte> keys_;
  uint64_t keys_written_ = 0;
};

}  // namespace tierpack::testing_support
