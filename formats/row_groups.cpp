#include "formats/row_groups.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "formats/dtype_blocks.h"

namespace tierpack {

namespace {

// Fields of N bytes at `offset`.
constexpr GroupField field(size_t offset, size_t bytes) {
  const size_t unit = bytes % 4 == 0 ? 4 : bytes;
  return {static_cast<uint16_t>(offset), static_cast<uint16_t>(bytes), static_cast<uint16_t>(unit)};
}

template <typename Block, size_t N>
constexpr std::array<GroupField, N> tiles_block(std::array<GroupField, N> fields) {
  size_t at = 0;
  for (const GroupField& f : fields) {
    if (f.offset != at || f.unit > 4) throw "fields do not tile the block";
    at += f.bytes;
  }
  if (at != sizeof(Block) || at > kBlockBytesMax) throw "fields do not tile the block";
  return fields;
}

#define FIELD(Block, member) field(offsetof(Block, member), sizeof(Block::member))
#define FIELDS(Block, ...) constexpr auto k##Block = tiles_block<Block>(std::array{__VA_ARGS__})
#define F(member) FIELD(B, member)

// clang-format off
#define B BlockQ4_0
FIELDS(BlockQ4_0, F(d), F(qs));
#undef B
#define B BlockQ4_1
FIELDS(BlockQ4_1, F(d), F(m), F(qs));
#undef B
#define B BlockQ5_0
FIELDS(BlockQ5_0, F(d), F(qh), F(qs));
#undef B
#define B BlockQ5_1
FIELDS(BlockQ5_1, F(d), F(m), F(qh), F(qs));
#undef B
#define B BlockQ8_0
FIELDS(BlockQ8_0, F(d), F(qs));
#undef B
#define B BlockQ8_1
FIELDS(BlockQ8_1, F(d), F(s), F(qs));
#undef B
#define B BlockIQ4_NL
FIELDS(BlockIQ4_NL, F(d), F(qs));
#undef B
#define B BlockMXFP4
FIELDS(BlockMXFP4, F(e), F(qs));
#undef B
#define B BlockNVFP4
FIELDS(BlockNVFP4, F(d), F(qs));
#undef B
#define B BlockQ2_0
FIELDS(BlockQ2_0, F(d), F(qs));
#undef B
#define B BlockQ1_0
FIELDS(BlockQ1_0, F(d), F(qs));
#undef B
#define B BlockQ2_K
FIELDS(BlockQ2_K, F(scales), F(qs), F(d), F(dmin));
#undef B
#define B BlockQ3_K
FIELDS(BlockQ3_K, F(hmask), F(qs), F(scales), F(d));
#undef B
#define B BlockQ4_K
FIELDS(BlockQ4_K, F(d), F(dmin), F(scales), F(qs));
#undef B
#define B BlockQ5_K
FIELDS(BlockQ5_K, F(d), F(dmin), F(scales), F(qh), F(qs));
#undef B
#define B BlockQ6_K
FIELDS(BlockQ6_K, F(ql), F(qh), F(scales), F(d));
#undef B
#define B BlockQ8_K
FIELDS(BlockQ8_K, F(d), F(qs), F(bsums));
#undef B
#define B BlockIQ2_XXS
FIELDS(BlockIQ2_XXS, F(d), F(qs));
#undef B
#define B BlockIQ2_XS
FIELDS(BlockIQ2_XS, F(d), F(qs), F(scales));
#undef B
#define B BlockIQ2_S
FIELDS(BlockIQ2_S, F(d), F(qs), F(signs), F(qh), F(scales));
#undef B
#define B BlockIQ3_XXS
FIELDS(BlockIQ3_XXS, F(d), F(qs), F(scales_and_signs));
#undef B
#define B BlockIQ3_S
FIELDS(BlockIQ3_S, F(d), F(qs), F(qh), F(signs), F(scales));
#undef B
#define B BlockIQ1_S
FIELDS(BlockIQ1_S, F(d), F(qs), F(qh));
#undef B
#define B BlockIQ1_M
FIELDS(BlockIQ1_M, F(qs), F(qh), F(scales));
#undef B
#define B BlockIQ4_XS
FIELDS(BlockIQ4_XS, F(d), F(scales_h), F(scales_l), F(qs));
#undef B
#define B BlockTQ1_0
FIELDS(BlockTQ1_0, F(qs), F(qh), F(d));
#undef B
#define B BlockTQ2_0
FIELDS(BlockTQ2_0, F(qs), F(d));
#undef B
// clang-format on

#undef F
#undef FIELDS
#undef FIELD

// Calls unit(offset in the block, offset in the column, bytes) for the units of `row`.
template <typename Unit>
inline void for_units(std::span<const GroupField> fields, uint32_t row, Unit&& unit) {
  size_t column_offset = 0;
  for (const GroupField& f : fields) {
    for (uint32_t u = 0; u < f.bytes; u += f.unit) {
      unit(f.offset + u, column_offset + size_t{row} * f.unit, f.unit);
      column_offset += size_t{kGroupRows} * f.unit;
    }
  }
}

inline void copy_unit(std::byte* out, const std::byte* in, uint32_t bytes) {
  switch (bytes) {
    case 4: std::memcpy(out, in, 4); break;
    case 2: std::memcpy(out, in, 2); break;
    default: *out = *in; break;
  }
}

enum class Direction { kToGroups, kFromGroups };

// One field of a column: `units` units of N bytes in each of 16 rows, and the same units as they lie in the group. Constant
// trip counts let the compiler unroll the rows.
template <Direction direction, size_t N>
inline void permute_field(std::conditional_t<direction == Direction::kToGroups, const std::byte, std::byte>* rows, uint64_t stride,
                          std::conditional_t<direction == Direction::kToGroups, std::byte, const std::byte>* column, uint32_t units) {
  for (uint32_t u = 0; u < units; ++u) {
    for (uint32_t r = 0; r < kGroupRows; ++r) {
      if constexpr (direction == Direction::kToGroups) {
        std::memcpy(column + r * N, rows + r * stride + u * N, N);
      } else {
        std::memcpy(rows + r * stride + u * N, column + r * N, N);
      }
    }
    column += kGroupRows * N;
  }
}

template <Direction direction>
void permute(DType type, uint64_t rows, uint64_t cols, Bytes in, MutableBytes out) {
  const uint64_t stride = row_bytes(type, cols);
  TIERPACK_CHECK(in.size() == rows * stride && out.size() == in.size());
  const std::span<const GroupField> fields = group_fields(type);
  const uint64_t grouped = fields.empty() ? 0 : grouped_rows(rows);
  const uint64_t block_bytes = traits(type).block_bytes;
  const uint64_t columns = stride / block_bytes;
  for (uint64_t first = 0; first < grouped; first += kGroupRows) {
    const std::byte* const from = in.data() + first * stride;
    std::byte* const to = out.data() + first * stride;
    for (uint64_t c = 0; c < columns; ++c) {
      for (const GroupField& f : fields) {
        const uint64_t in_rows = c * block_bytes + f.offset;
        const uint64_t in_group = (c * block_bytes + f.offset) * kGroupRows;
        const auto move = [&]<size_t N>() {
          const uint32_t units = f.bytes / N;
          if constexpr (direction == Direction::kToGroups) {
            permute_field<direction, N>(from + in_rows, stride, to + in_group, units);
          } else {
            permute_field<direction, N>(to + in_rows, stride, from + in_group, units);
          }
        };
        switch (f.unit) {
          case 4: move.template operator()<4>(); break;
          case 2: move.template operator()<2>(); break;
          default: move.template operator()<1>(); break;
        }
      }
    }
  }
  std::memcpy(out.data() + grouped * stride, in.data() + grouped * stride, in.size() - grouped * stride);
}

}  // namespace

std::span<const GroupField> group_fields(DType type) {
  switch (type) {
    case DType::kQ4_0: return kBlockQ4_0;
    case DType::kQ4_1: return kBlockQ4_1;
    case DType::kQ5_0: return kBlockQ5_0;
    case DType::kQ5_1: return kBlockQ5_1;
    case DType::kQ8_0: return kBlockQ8_0;
    case DType::kQ8_1: return kBlockQ8_1;
    case DType::kQ2_K: return kBlockQ2_K;
    case DType::kQ3_K: return kBlockQ3_K;
    case DType::kQ4_K: return kBlockQ4_K;
    case DType::kQ5_K: return kBlockQ5_K;
    case DType::kQ6_K: return kBlockQ6_K;
    case DType::kQ8_K: return kBlockQ8_K;
    case DType::kIQ2_XXS: return kBlockIQ2_XXS;
    case DType::kIQ2_XS: return kBlockIQ2_XS;
    case DType::kIQ2_S: return kBlockIQ2_S;
    case DType::kIQ3_XXS: return kBlockIQ3_XXS;
    case DType::kIQ3_S: return kBlockIQ3_S;
    case DType::kIQ1_S: return kBlockIQ1_S;
    case DType::kIQ1_M: return kBlockIQ1_M;
    case DType::kIQ4_NL: return kBlockIQ4_NL;
    case DType::kIQ4_XS: return kBlockIQ4_XS;
    case DType::kTQ1_0: return kBlockTQ1_0;
    case DType::kTQ2_0: return kBlockTQ2_0;
    case DType::kMXFP4: return kBlockMXFP4;
    case DType::kNVFP4: return kBlockNVFP4;
    case DType::kQ1_0: return kBlockQ1_0;
    case DType::kQ2_0: return kBlockQ2_0;
    default: return {};
  }
}

bool has_row_groups(DType type, uint64_t rows) { return rows >= kGroupRows && !group_fields(type).empty(); }

void to_row_groups(DType type, uint64_t rows, uint64_t cols, Bytes in, MutableBytes out) {
  permute<Direction::kToGroups>(type, rows, cols, in, out);
}

void from_row_groups(DType type, uint64_t rows, uint64_t cols, Bytes in, MutableBytes out) {
  permute<Direction::kFromGroups>(type, rows, cols, in, out);
}

void pad_row_group(DType type, uint32_t rows, uint64_t cols, const std::byte* in, std::byte* out) {
  TIERPACK_CHECK(rows > 0 && rows < kGroupRows);
  const uint64_t stride = row_bytes(type, cols);
  const uint64_t block_bytes = traits(type).block_bytes;
  std::memset(out, 0, kGroupRows * stride);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint64_t at = 0; at < stride; at += block_bytes) {
      const std::byte* const block = in + row * stride + at;
      std::byte* const column = out + kGroupRows * at;
      for_units(group_fields(type), row, [&](size_t in_block, size_t in_column, uint32_t bytes) {
        copy_unit(column + in_column, block + in_block, bytes);
      });
    }
  }
}

void load_grouped_block(DType type, const std::byte* group, uint64_t column, uint32_t row, std::byte* block) {
  const std::byte* base = group + column * traits(type).block_bytes * kGroupRows;
  for_units(group_fields(type), row, [&](size_t in_block, size_t in_column, uint32_t bytes) {
    copy_unit(block + in_block, base + in_column, bytes);
  });
}

void load_grouped_row(DType type, const std::byte* matrix, uint64_t rows, uint64_t cols, uint64_t row, std::byte* out) {
  const uint64_t stride = row_bytes(type, cols);
  TIERPACK_CHECK(row < rows);
  if (row >= grouped_rows(rows) || group_fields(type).empty()) {
    std::memcpy(out, matrix + row * stride, stride);
    return;
  }
  const std::byte* group = matrix + (row - row % kGroupRows) * stride;
  const uint64_t block_bytes = traits(type).block_bytes;
  for (uint64_t c = 0; c < stride / block_bytes; ++c) {
    load_grouped_block(type, group, c, static_cast<uint32_t>(row % kGroupRows), out + c * block_bytes);
  }
}

}  // namespace tierpack
