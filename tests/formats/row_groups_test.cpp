#include "formats/row_groups.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tierpack {
namespace {

std::vector<std::byte> random_bytes(size_t n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

class EveryDtype : public testing::TestWithParam<DType> {};

TEST_P(EveryDtype, FieldsTileTheBlock) {
  uint32_t at = 0;
  for (const GroupField& f : group_fields(GetParam())) {
    EXPECT_EQ(f.offset, at);
    EXPECT_EQ(f.bytes % f.unit, 0);
    at += f.bytes;
  }
  EXPECT_EQ(at, traits(GetParam()).quantised ? traits(GetParam()).block_bytes : 0u);
}

// Where a byte goes, written out from the description in the header.
TEST_P(EveryDtype, BytesAreWhereTheLayoutSays) {
  const DType type = GetParam();
  const uint64_t cols = 3ull * std::max(traits(type).block_elements, 32u), rows = 2 * kGroupRows + 5;
  const uint64_t stride = row_bytes(type, cols), block = traits(type).block_bytes;
  const std::vector<std::byte> in = random_bytes(rows * stride);
  std::vector<std::byte> out(in.size());
  to_row_groups(type, rows, cols, in, out);
  if (!traits(type).quantised) {
    EXPECT_EQ(in, out);
    return;
  }
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t at = 0; at < stride; ++at) {
      uint64_t place = row * stride + at;
      if (row < 2 * kGroupRows) {
        uint64_t before = 0;  // bytes of the column's earlier fields
        for (const GroupField& f : group_fields(type)) {
          if (at % block >= f.offset && at % block < f.offset + f.bytes) {
            const uint64_t in_field = at % block - f.offset;
            place = row / 16 * 16 * stride + at / block * block * 16 + before + in_field / f.unit * f.unit * 16 +
                    row % 16 * f.unit + in_field % f.unit;
          }
          before += uint64_t{f.bytes} * 16;
        }
      }
      ASSERT_EQ(out[place], in[row * stride + at]) << "row " << row << " byte " << at;
    }
  }
}

TEST_P(EveryDtype, ComesBack) {
  const DType type = GetParam();
  const uint64_t cols = 2ull * std::max(traits(type).block_elements, 32u);
  for (const uint64_t rows : {1u, 15u, 16u, 17u, 48u, 63u}) {
    const std::vector<std::byte> in = random_bytes(rows * row_bytes(type, cols));
    std::vector<std::byte> grouped(in.size()), back(in.size());
    to_row_groups(type, rows, cols, in, grouped);
    from_row_groups(type, rows, cols, grouped, back);
    EXPECT_EQ(in, back);
    const uint64_t stride = row_bytes(type, cols);
    for (uint64_t row = 0; row < rows; ++row) {
      std::vector<std::byte> one(stride);
      load_grouped_row(type, grouped.data(), rows, cols, row, one.data());
      EXPECT_TRUE(std::equal(one.begin(), one.end(), in.begin() + static_cast<ptrdiff_t>(row * stride))) << row;
    }
  }
}

// A matrix cut between groups gives the same bytes.
TEST_P(EveryDtype, MayBeCutBetweenGroups) {
  const DType type = GetParam();
  const uint64_t cols = std::max(traits(type).block_elements, 32u), rows = 3 * kGroupRows + 2, stride = row_bytes(type, cols);
  const std::vector<std::byte> in = random_bytes(rows * stride);
  std::vector<std::byte> whole(in.size()), cut(in.size());
  to_row_groups(type, rows, cols, in, whole);
  for (const auto& [first, count] : {std::pair{0u, 16u}, {16u, 34u}}) {
    to_row_groups(type, count, cols, Bytes(in).subspan(first * stride, count * stride), MutableBytes(cut).subspan(first * stride, count * stride));
  }
  EXPECT_EQ(whole, cut);
}

std::vector<DType> all() {
  std::vector<DType> out;
  for (const DTypeTraits& t : all_dtypes()) out.push_back(t.type);
  return out;
}

INSTANTIATE_TEST_SUITE_P(RowGroups, EveryDtype, testing::ValuesIn(all()),
                         [](const auto& name) { return std::string(dtype_name(name.param)); });

}  // namespace
}  // namespace tierpack
