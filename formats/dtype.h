// Element types of tensors: the ggml ids of GGUF and the types that only safetensors knows, their block geometry, and one
// packed struct per quantised block.
//
// Layouts: each struct lists its fields in byte order without padding; static_assert ties it to the size in the traits
// table, which is built from sizeof. Source of ids and layouts: ggml (src/ggml-common.h), as restated in
// docs/dtypes.md. Rows are sequences of blocks; a row of n elements occupies n / block_elements * block_bytes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tierpack {

// Values from 0 on are ggml's type ids and appear in GGUF files. Types that ggml does not know have negative values, which no
// file holds: GGUF readers refuse them like every unknown id, packs and safetensors name their types.
enum class DType : int32_t {
  // clang-format off
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ8_1 = 9,
  kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kQ8_K = 15,
  kIQ2_XXS = 16, kIQ2_XS = 17, kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21, kIQ2_S = 22, kIQ4_XS = 23,
  kI8 = 24, kI16 = 25, kI32 = 26, kI64 = 27, kF64 = 28, kIQ1_M = 29, kBF16 = 30,
  kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40, kQ1_0 = 41, kQ2_0 = 42,
  kF8_E4M3 = -2,
  // clang-format on
};

struct DTypeTraits {
  DType type;
  const char* name;         // "Q4_K"
  uint32_t block_elements;  // elements in one block (1 for scalars)
  uint32_t block_bytes;
  bool quantised;  // has block scales; false for plain numbers
  double bits_per_weight() const { return 8.0 * block_bytes / block_elements; }
};

// All known types: ggml's in id order, then the others.
std::span<const DTypeTraits> all_dtypes();
// Those that GGUF files can hold.
std::span<const DTypeTraits> ggml_dtypes();
const DTypeTraits& traits(DType type);
inline const char* dtype_name(DType type) { return traits(type).name; }

// nullopt for ids that are unknown or removed, and for all negative ones. ggml_type_problem() then says why ("removed from GGUF", "a type of
// ik_llama.cpp (IQ4_K)", "unknown").
std::optional<DType> dtype_from_ggml(int32_t id);
std::string ggml_type_problem(int32_t id);
std::optional<DType> dtype_from_name(std::string_view name);  // case-insensitive

// Elements that one scale of an NVFP4 block belongs to.
inline constexpr uint32_t kNvfp4ScaleElements = 16;

// Whether rows of `elements` values can be stored: whole blocks, or whole sixteens of NVFP4. Published NVFP4 checkpoints have rows such as 96: the last
// block is then filled up with zero codes and zero scales. GGUF files have whole blocks only.
bool makes_rows(DType type, uint64_t elements);
// Elements of a row with what fills it up.
uint64_t stored_elements(DType type, uint64_t elements);
// Bytes of a row of `elements` values, for which makes_rows() must hold (checked with TIERPACK_CHECK).
uint64_t row_bytes(DType type, uint64_t elements);

}  // namespace tierpack
