// Reads the hyper-parameters of one architecture ("qwen3moe.block_count") and complains in its terms. Used by
// model_config.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/metadata.h"

namespace tierpack {

// Bounds far above any model, low enough that products of two of these values fit 64 bits with room to spare and
// per-layer arrays stay small.
inline constexpr uint32_t kLayersMax = 4096;
inline constexpr uint32_t kWidthMax = 1u << 20;
inline constexpr uint32_t kHeadsMax = 1u << 14;
inline constexpr uint32_t kExpertsMax = 1u << 16;
inline constexpr uint32_t kVocabMax = 1u << 24;
inline constexpr uint32_t kKernelMax = 64;

class ModelKeys {
 public:
  // `obstacle` receives the first reason why the model cannot be computed; both must outlive the object.
  ModelKeys(const Metadata& metadata, std::string_view architecture, std::string& obstacle)
      : metadata_(metadata), obstacle_(obstacle), prefix_(std::string(architecture) + '.') {}

  std::string key(const char* name) const { return prefix_ + name; }
  bool has(const char* name) const { return metadata_.has(key(name)); }
  const Metadata& metadata() const { return metadata_; }

  // Throw kCorrupt outside low .. high.
  uint32_t count(const char* name, uint32_t low, uint32_t high) const;
  uint32_t count_or(const char* name, uint32_t fallback, uint32_t low, uint32_t high) const;
  double positive(const char* name, double high) const;  // above 0

  // A count that may be given once or for each block; blocks where `skipped` holds may say 0. Where blocks differ that
  // is an obstacle, and the largest is returned.
  uint32_t uniform_count(const char* name, uint32_t low, uint32_t high, const std::vector<bool>& skipped) const;
  std::vector<uint32_t> block_counts(const char* name, size_t blocks, uint32_t high) const;

  // Of an architecture that nobody here knows: the value, the common value of an array, or 0 when the key is missing,
  // of another kind or above `high`.
  uint32_t any_count(const char* name, uint32_t high) const;

  [[noreturn]] void corrupt(const std::string& message) const;
  void cannot_compute(const std::string& reason) const {
    if (obstacle_.empty()) obstacle_ = reason;
  }

 private:
  uint32_t in_range(const char* name, uint64_t value, uint32_t low, uint32_t high) const;
  void require_blocks(const char* name, size_t found, size_t blocks) const;

  const Metadata& metadata_;
  std::string& obstacle_;
  std::string prefix_;
};

}  // namespace tierpack
