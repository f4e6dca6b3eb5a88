#include "formats/quantize.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "formats/block_search.h"
#include "formats/small_floats.h"

namespace tierpack {
namespace {

constexpr float kF16Largest = 65504;
constexpr float kWeightFloor = 0x1p-20f;  // of the block's largest

using block_search::Unit;

// Power of two that brings `magnitude` into [1, 2).
Unit unit_for(float magnitude) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127;
  return {std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23),
          std::bit_cast<float>(static_cast<uint32_t>(127 - exponent) << 23)};
}

// Weights of one block: importances relative to its largest one.
template <size_t kCount>
void block_weights(const float* importance, std::array<float, kCount>& w) {
  float largest = 0;
  if (importance != nullptr) {
    for (size_t i = 0; i < kCount; ++i) largest = importance[i] > largest ? importance[i] : largest;
  }
  if (!(largest > 0)) {
    w.fill(1);
    return;
  }
  for (size_t i = 0; i < kCount; ++i) {
    const float weight = importance[i] / largest;
    w[i] = weight > kWeightFloor ? weight : kWeightFloor;
  }
}

// One row of blocks. All bytes of a block of zeros are 0, and so are those of blocks too small for any f16 scale.
template <typename Block, size_t kCount>
void encode_row(const float* values, const float* importance, uint64_t cols, std::byte* out) {
  constexpr float kVanishing = 0x1p-30f;
  std::array<float, kCount> x, w;
  for (uint64_t at = 0; at < cols; at += kCount, out += sizeof(Block)) {
    float magnitude = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const float m = std::fabs(values[at + i]);
      magnitude = m > magnitude ? m : magnitude;
    }
    Block block{};
    if (magnitude > kVanishing) {
      const Unit unit = unit_for(magnitude);
      for (size_t i = 0; i < kCount; ++i) x[i] = values[at + i] * unit.down;
      block_weights(importance != nullptr ? importance + at : nullptr, w);
      block_search::encode(x.data(), w.data(), unit, block);
    }
    store(out, block);
  }
}

void encode_f32(const float* values, const float*, uint64_t cols, std::byte* out) {
  std::memcpy(out, values, cols * sizeof(float));
}

void encode_f16(const float* values, const float*, uint64_t cols, std::byte* out) {
  for (uint64_t i = 0; i < cols; ++i) store(out + 2 * i, f32_to_f16(values[i]));
}

void encode_bf16(const float* values, const float*, uint64_t cols, std::byte* out) {
  for (uint64_t i = 0; i < cols; ++i) store(out + 2 * i, f32_to_bf16(values[i]));
}

struct Target {
  DType type;
  float limit;
  void (*encode)(const float* values, const float* importance, uint64_t cols, std::byte* out);
};

constexpr Target kTargets[] = {
    {DType::kF32, 0x1.fffffep127f, encode_f32},
    {DType::kF16, kF16Largest, encode_f16},
    {DType::kBF16, 0x1.fep127f, encode_bf16},
    {DType::kQ8_0, kF16Largest * 127, encode_row<BlockQ8_0, 32>},
    {DType::kIQ4_NL, kF16Largest * 113, encode_row<BlockIQ4_NL, 32>},
    {DType::kNVFP4, 448 * 6, encode_row<BlockNVFP4, 64>},
    {DType::kQ4_K, kF16Largest * 63, encode_row<BlockQ4_K, 256>},
    {DType::kQ5_K, kF16Largest * 63, encode_row<BlockQ5_K, 256>},
    {DType::kQ6_K, kF16Largest * 31, encode_row<BlockQ6_K, 256>},
};

const Target* find_target(DType type) {
  for (const Target& target : kTargets) {
    if (target.type == type) return &target;
  }
  return nullptr;
}

// Whether every magnitude is at most `limit`; false for NaN.
bool within(std::span<const float> values, float limit) {
  bool good = true;
  for (const float v : values) good &= std::fabs(v) <= limit;
  return good;
}

void require_representable(const Target& target, uint64_t row, std::span<const float> values) {
  if (within(values, target.limit)) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      fail(ErrorKind::kCorrupt, "row {}: column {} holds {}; only finite values can be written as {}", row, i,
           values[i], dtype_name(target.type));
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) <= target.limit) continue;
    fail(ErrorKind::kUnsupported, "row {}: column {} holds {}; {} reaches {}: choose a type with a wider range", row, i,
         values[i], dtype_name(target.type), target.limit);
  }
}

}  // namespace

bool is_quantize_target(DType type) { return find_target(type) != nullptr; }

float quantize_limit(DType type) {
  const Target* const target = find_target(type);
  TIERPACK_CHECK(target != nullptr);
  return target->limit;
}

float nvfp4_tensor_scale(float largest) { return largest > 0 ? largest / 2688 : 1; }

void quantize_rows(DType type, uint64_t rows, uint64_t cols, std::span<const float> values,
                   std::span<const float> importance, MutableBytes out) {
  const Target* const target = find_target(type);
  if (target == nullptr) fail(ErrorKind::kUnsupported, "{} can be read, not written", dtype_name(type));
  if (cols % traits(type).block_elements != 0) {
    fail(ErrorKind::kUnsupported, "rows of {} values cannot be written as {}, whose blocks hold {}", cols,
         dtype_name(type), traits(type).block_elements);
  }
  const uint64_t stride = row_bytes(type, cols);
  TIERPACK_CHECK(values.size() == rows * cols && out.size() == rows * stride);
  TIERPACK_CHECK(importance.empty() || importance.size() == cols);
  for (size_t i = 0; i < importance.size(); ++i) {
    if (importance[i] >= 0 && std::isfinite(importance[i])) continue;
    fail(ErrorKind::kCorrupt, "importance of column {} is {}; it must be a non-negative number", i, importance[i]);
  }
  const float* const weights = importance.empty() ? nullptr : importance.data();
  for (uint64_t row = 0; row < rows; ++row) {
    const std::span<const float> one = values.subspan(row * cols, cols);
    require_representable(*target, row, one);
    target->encode(one.data(), weights, cols, out.data() + row * stride);
  }
}

}  // namespace tierpack
