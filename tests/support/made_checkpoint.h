// Checkpoints in memory, with seeded random content, and what a mapping makes of them, element by element.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/bytes.h"
#include "formats/quant_decode.h"
#include "repack/hf_mapping.h"

namespace tierpack::testing_support {

class MadeCheckpoint {
 public:
  using Dims = std::vector<uint64_t>;

  // Floating-point types hold values of a few bits, so that every type holds them exactly.
  MadeCheckpoint& add(const std::string& name, const Dims& shape, HfType type = HfType::kBF16) {
    std::string bytes;
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    for (uint64_t i = 0; i < count; ++i) {
      const float value = static_cast<float>(static_cast<int>(next() % 255) - 127) / 64;
      if (type == HfType::kF32)
        put(bytes, value);
      else if (type == HfType::kBF16)
        put(bytes, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
      else if (type == HfType::kF8E4M3)
        put(bytes, static_cast<uint8_t>(next() % 0x7F | (next() & 0x80)));
      else
        for (uint32_t b = 0; b < hf_traits(type).bits; b += 8) put(bytes, static_cast<uint8_t>(next()));
    }
    items_.push_back({name, type, shape, std::move(bytes)});
    return *this;
  }
  MadeCheckpoint& fp8(const std::string& name, const Dims& shape, const Dims& scales,
                      const std::string& suffix = "_scale_inv") {
    return add(name, shape, HfType::kF8E4M3).add(name + suffix, scales, HfType::kF32);
  }
  // ModelOpt; with `divides` compressed-tensors. `base` without ".weight".
  MadeCheckpoint& nvfp4(const std::string& base, Dims shape, const Dims& second = {}, bool divides = false) {
    Dims codes = shape, scales = shape;
    codes.back() /= 2;
    scales.back() /= 16;
    return add(base + (divides ? ".weight_packed" : ".weight"), codes, HfType::kU8)
        .positive(base + ".weight_scale", scales, HfType::kF8E4M3)
        .positive(base + (divides ? ".weight_global_scale" : ".weight_scale_2"), second, HfType::kF32);
  }
  MadeCheckpoint& positive(const std::string& name, const Dims& shape, HfType type) {
    add(name, shape, type);
    std::string& bytes = items_.back().bytes;
    for (size_t i = hf_traits(type).bits / 8 - 1; i < bytes.size(); i += hf_traits(type).bits / 8) {
      bytes[i] = static_cast<char>(bytes[i] & 0x7F);
      if (type == HfType::kF32) bytes[i] = 0x3E, bytes[i - 1] = static_cast<char>(next());
    }
    return *this;
  }

  void remove(const std::string& name) {
    std::erase_if(items_, [&](const Item& item) { return item.name == name; });
  }
  void remove_all(const std::string& prefix) {
    std::erase_if(items_, [&](const Item& item) { return item.name.starts_with(prefix); });
  }
  // The text of the file; the source that is opened on it must not outlive it.
  std::string file() const {
    std::string header = "{", data;
    for (const Item& item : items_) {
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                            header.size() > 1 ? "," : "", item.name, hf_type_name(item.type), hf_shape_text(item.shape),
                            data.size(), data.size() + item.bytes.size());
      data += item.bytes;
    }
    header += "}";
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  }

 private:
  struct Item {
    std::string name;
    HfType type;
    Dims shape;
    std::string bytes;
  };
  template <typename T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  std::vector<Item> items_;
  uint64_t state_ = 1;
};

// A source, recognised and mapped. Throws what these throw.
class Mapped {
 public:
  Mapped(SafetensorsSource opened, const ModelConfig& config, const QuantConfig& quant = {})
      : source(std::move(opened)),
        catalog(recognise_weights(source, quant)),
        mapping(repack::map_checkpoint(source, catalog, config)) {}

  const TensorInfo* tensor(const std::string& name) const {
    for (const TensorInfo& t : mapping.tensors) {
      if (t.name == name) return &t;
    }
    return nullptr;
  }
  const repack::DerivedTensor* derived(const std::string& name) const {
    for (const repack::DerivedTensor& d : mapping.derived) {
      if (d.target.name == name) return &d;
    }
    return nullptr;
  }

  // A weight of the source as f32, all rows. Without `scaled` NVFP4 and FP8 are only their blocks, as a pack holds
  // them.
  const std::vector<float>& weight(const std::string& name, bool scaled = true) const {
    const QuantWeight* found = catalog.find(name);
    if (found == nullptr) throw Error(ErrorKind::kInternal, "no weight " + name);
    return weight(*found, scaled);
  }
  const std::vector<float>& weight(const QuantWeight& found, bool scaled) const {
    std::vector<float>& values = cache_[scaled ? 0 : 1][std::string(found.name)];
    if (!values.empty()) return values;
    values.resize(found.rows() * found.columns());
    QuantWeight w = found;
    if (!scaled && w.scheme == QuantScheme::kNvfp4)
      w.scale_2 = nullptr, w.scale_2_divides = false;
    else if (!scaled && w.scheme != QuantScheme::kMxfp4)
      w.scheme = QuantScheme::kPlain;
    decode_rows(source, w, 0, w.rows(), values, GlobalScale::kMultiplyByReciprocal);
    return values;
  }

  // A target by its moves as the header defines them, one element after the other.
  std::vector<float> moved(const std::string& name, bool scaled = true) const {
    const TensorInfo* t = tensor(name);
    if (t == nullptr) throw Error(ErrorKind::kInternal, "no target " + name);
    const auto id = static_cast<uint32_t>(t - mapping.tensors.data());
    std::vector<float> out(t->shape.elements(), -12345.0f);
    for (const repack::RowMove& m : mapping.moves) {
      if (m.target[0] != id && (m.ways == 1 || m.target[1] != id)) continue;
      const QuantWeight& w = catalog.weights[m.weight];
      const std::vector<float>& from = weight(w, scaled);
      for (uint64_t i = 0; i < m.rows; ++i) {
        for (uint64_t j = 0; j < w.columns(); ++j) {
          const uint64_t line = m.transposed ? j : i, across = m.transposed ? i : tiled(m.tiles, j);
          if (m.target[line % m.ways] != id) continue;
          const uint64_t row = m.target_row[line % m.ways] + line / m.ways;
          out.at(row * t->shape.ne[0] + m.target_column + across) = from[(m.source_row + i) * w.columns() + j];
        }
      }
    }
    return out;
  }

  // All matrices of a derived tensor.
  std::vector<float> values(const std::string& name) const {
    const repack::DerivedTensor* d = derived(name);
    if (d == nullptr) throw Error(ErrorKind::kInternal, "no derived tensor " + name);
    std::vector<float> out;
    for (uint64_t m = 0; m < d->target.shape.ne[2]; ++m) {
      const std::vector<float> matrix = derived_values(source, catalog, *d, m);
      out.insert(out.end(), matrix.begin(), matrix.end());
    }
    return out;
  }

  // A target with the scales of the pack applied: what a reader of the pack computes with.
  std::vector<float> unpacked(const std::string& name) const {
    std::vector<float> out = moved(name, false);
    const std::string scale_name = name.substr(0, name.size() - 7) + ".scale";
    const repack::DerivedTensor* d = derived(scale_name);
    if (d == nullptr) return out;
    const std::vector<float> scales = values(scale_name);
    const Shape& shape = tensor(name)->shape;
    const Shape& grid = d->target.shape;
    const bool one = grid.ne[0] * grid.ne[1] == 1, channels = grid.ne[0] == 1 && grid.ne[1] == shape.ne[1];
    for (uint64_t i = 0; i < out.size(); ++i) {
      const uint64_t column = i % shape.ne[0], row = i / shape.ne[0] % shape.ne[1],
                     matrix = i / shape.ne[0] / shape.ne[1];
      const uint64_t cell = one ? 0 : channels ? row : row / 128 * grid.ne[0] + column / 128;
      out[i] *= scales.at(matrix * grid.ne[0] * grid.ne[1] + cell);
    }
    return out;
  }

  SafetensorsSource source;
  QuantCatalog catalog;
  repack::HfMapping mapping;

 private:
  static uint64_t tiled(const ColumnTiles& t, uint64_t column) {
    if (t.groups == 0) return column;
    const uint64_t block = column / t.block, g = block / t.per_group, j = block % t.per_group;
    return (j * t.groups + g) * t.block + column % t.block;
  }
  mutable std::map<std::string, std::vector<float>> cache_[2];
};

}  // namespace tierpack::testing_support
