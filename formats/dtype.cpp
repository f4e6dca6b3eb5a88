#include "formats/dtype.h"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include "base/error.h"
#include "formats/dtype_blocks.h"

namespace tierpack {
namespace {

template <typename Block>
constexpr DTypeTraits block(DType type, const char* name, uint32_t elements) {
  return {type, name, elements, sizeof(Block), true};
}

template <typename Number>
constexpr DTypeTraits number(DType type, const char* name) {
  return {type, name, 1, sizeof(Number), false};
}

// ggml's types in id order, then the others; sizes come from the block structs.
constexpr auto kTraits = std::to_array<DTypeTraits>({
    number<float>(DType::kF32, "F32"),
    number<uint16_t>(DType::kF16, "F16"),
    block<BlockQ4_0>(DType::kQ4_0, "Q4_0", 32),
    block<BlockQ4_1>(DType::kQ4_1, "Q4_1", 32),
    block<BlockQ5_0>(DType::kQ5_0, "Q5_0", 32),
    block<BlockQ5_1>(DType::kQ5_1, "Q5_1", 32),
    block<BlockQ8_0>(DType::kQ8_0, "Q8_0", 32),
    block<BlockQ8_1>(DType::kQ8_1, "Q8_1", 32),
    block<BlockQ2_K>(DType::kQ2_K, "Q2_K", 256),
    block<BlockQ3_K>(DType::kQ3_K, "Q3_K", 256),
    block<BlockQ4_K>(DType::kQ4_K, "Q4_K", 256),
    block<BlockQ5_K>(DType::kQ5_K, "Q5_K", 256),
    block<BlockQ6_K>(DType::kQ6_K, "Q6_K", 256),
    block<BlockQ8_K>(DType::kQ8_K, "Q8_K", 256),
    block<BlockIQ2_XXS>(DType::kIQ2_XXS, "IQ2_XXS", 256),
    block<BlockIQ2_XS>(DType::kIQ2_XS, "IQ2_XS", 256),
    block<BlockIQ3_XXS>(DType::kIQ3_XXS, "IQ3_XXS", 256),
    block<BlockIQ1_S>(DType::kIQ1_S, "IQ1_S", 256),
    block<BlockIQ4_NL>(DType::kIQ4_NL, "IQ4_NL", 32),
    block<BlockIQ3_S>(DType::kIQ3_S, "IQ3_S", 256),
    block<BlockIQ2_S>(DType::kIQ2_S, "IQ2_S", 256),
    block<BlockIQ4_XS>(DType::kIQ4_XS, "IQ4_XS", 256),
    number<int8_t>(DType::kI8, "I8"),
    number<int16_t>(DType::kI16, "I16"),
    number<int32_t>(DType::kI32, "I32"),
    number<int64_t>(DType::kI64, "I64"),
    number<double>(DType::kF64, "F64"),
    block<BlockIQ1_M>(DType::kIQ1_M, "IQ1_M", 256),
    number<uint16_t>(DType::kBF16, "BF16"),
    block<BlockTQ1_0>(DType::kTQ1_0, "TQ1_0", 256),
    block<BlockTQ2_0>(DType::kTQ2_0, "TQ2_0", 256),
    block<BlockMXFP4>(DType::kMXFP4, "MXFP4", 32),
    block<BlockNVFP4>(DType::kNVFP4, "NVFP4", 64),
    block<BlockQ1_0>(DType::kQ1_0, "Q1_0", 128),
    block<BlockQ2_0>(DType::kQ2_0, "Q2_0", 64),
    number<uint8_t>(DType::kF8_E4M3, "F8_E4M3"),
});

constexpr bool is_ggml(const DTypeTraits& t) { return static_cast<int32_t>(t.type) >= 0; }
constexpr auto kGgmlTypes = static_cast<size_t>(std::count_if(kTraits.begin(), kTraits.end(), is_ggml));
static_assert(std::is_partitioned(kTraits.begin(), kTraits.end(), is_ggml));

constexpr int32_t kFirstId = -2;
constexpr int32_t kIdCount = 43;

// id - kFirstId -> index into kTraits, -1 for ids that name no type.
constexpr auto kIndex = [] {
  std::array<int, kIdCount - kFirstId> index{};
  index.fill(-1);
  for (size_t i = 0; i < kTraits.size(); ++i) {
    index[static_cast<size_t>(static_cast<int32_t>(kTraits[i].type) - kFirstId)] = static_cast<int>(i);
  }
  return index;
}();

constexpr int index_of(int32_t id) { return kIndex[static_cast<size_t>(id - kFirstId)]; }

struct NamedId {
  int32_t id;
  const char* name;
};

constexpr NamedId kRemoved[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

constexpr NamedId kIkLlama[] = {
    {97, "Q8_0_X4"},  {98, "Q8_1_X4"}, {99, "Q8_2_X4"},  {133, "Q6_0"},    {134, "IQ1_BN"},  {135, "IQ2_BN"},
    {136, "Q8_K64"},  {137, "IQ2_K"},  {138, "IQ3_K"},   {139, "IQ4_K"},   {140, "IQ5_K"},   {141, "IQ6_K"},
    {144, "IQ4_KS"},  {145, "IQ2_KS"}, {146, "IQ4_KSS"}, {147, "Q8_K16"},  {148, "Q8_K32"},  {149, "Q8_KR8"},
    {150, "Q8_K128"}, {151, "Q8_KV"},  {152, "IQ5_KS"},  {153, "IQ2_KT"},  {154, "IQ3_KT"},  {155, "IQ4_KT"},
    {156, "IQ3_KS"},  {157, "IQ2_KL"}, {158, "IQ1_KT"},  {202, "Q4_0_R8"}, {212, "Q4_K_R4"}, {353, "MXFP4_R8"},
};

template <size_t N>
const char* name_of(const NamedId (&list)[N], int32_t id) {
  for (const NamedId& entry : list) {
    if (entry.id == id) return entry.name;
  }
  return nullptr;
}

}  // namespace

std::span<const DTypeTraits> all_dtypes() { return kTraits; }
std::span<const DTypeTraits> ggml_dtypes() { return all_dtypes().first(kGgmlTypes); }

const DTypeTraits& traits(DType type) {
  const auto id = static_cast<int32_t>(type);
  TIERPACK_CHECK(id >= kFirstId && id < kIdCount && index_of(id) >= 0);
  return kTraits[static_cast<size_t>(index_of(id))];
}

std::optional<DType> dtype_from_ggml(int32_t id) {
  if (id < 0 || id >= kIdCount || index_of(id) < 0) return std::nullopt;
  return static_cast<DType>(id);
}

std::string ggml_type_problem(int32_t id) {
  if (id == 36) return "type 36 is IQ4_NL_4_4, removed from GGUF, or I2_S of bitnet.cpp; convert the model again";
  if (const char* name = name_of(kRemoved, id)) {
    return fmt::format("type {} ({}) was removed from GGUF; convert the model again", id, name);
  }
  if (const char* name = name_of(kIkLlama, id)) {
    return fmt::format("type {} ({}) exists only in ik_llama.cpp", id, name);
  }
  if (id >= 202 && id <= 399) return fmt::format("type {} is a row-interleaved type of ik_llama.cpp", id);
  return fmt::format("type {} is unknown", id);
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (const DTypeTraits& candidate : kTraits) {
    const std::string_view known = candidate.name;
    if (std::equal(known.begin(), known.end(), name.begin(), name.end(), same)) return candidate.type;
  }
  return std::nullopt;
}

bool makes_rows(DType type, uint64_t elements) {
  const uint32_t step = type == DType::kNVFP4 ? kNvfp4ScaleElements : traits(type).block_elements;
  return elements > 0 && elements % step == 0 && elements <= UINT64_MAX - traits(type).block_elements;
}

uint64_t stored_elements(DType type, uint64_t elements) {
  TIERPACK_CHECK(makes_rows(type, elements));
  const uint32_t block = traits(type).block_elements;
  return (elements + block - 1) / block * block;
}

uint64_t row_bytes(DType type, uint64_t elements) {
  return elements == 0 ? 0 : stored_elements(type, elements) / traits(type).block_elements * traits(type).block_bytes;
}

}  // namespace tierpack
