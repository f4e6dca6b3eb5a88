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

// The A operand of mma.m16n8k32.s8 (PTX ISA, matrix fragments): which row and columns register i of a lane holds.
struct FragmentRegister {
  uint32_t row;     // of A
  uint32_t column;  // the first of four
};
FragmentRegister fragment_register(uint32_t lane, uint32_t i) {
  return {lane / 4 + (i % 2) * 8, lane % 4 * 4 + (i / 2) * 16};
}

uint32_t word_at(const std::byte* p) {
  uint32_t out;
  std::memcpy(&out, p, 4);
  return out;
}

// docs/pack_format.md: two loads of 8 bytes are a lane's fragment, each load of a warp covering 256 contiguous bytes.
TEST(RowGroupsOnGpu, LoadsOfEightBytesAreTheFragmentOfQ8_0) {
  const std::vector<std::byte> in = random_bytes(16 * 34);
  std::vector<std::byte> group(in.size());
  to_row_groups(DType::kQ8_0, 16, 32, in, group);
  std::vector<bool> touched(512);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t at = (i / 2) * 256 + t * 64 + g * 8 + (i % 2) * 4;
      for (uint32_t byte = 0; byte < 4; ++byte) touched[at + byte] = true;
      const FragmentRegister want = fragment_register(lane, i);
      const uint32_t row = want.row % 8 * 2 + want.row / 8;  // of the group: row g of A is row 2g, row g + 8 is row 2g + 1
      EXPECT_EQ(word_at(group.data() + 32 + at), word_at(in.data() + row * 34 + 2 + want.column)) << lane << " " << i;
    }
  }
  EXPECT_EQ(std::count(touched.begin(), touched.end(), true), 512);
}

// Two loads of 16 bytes from two groups are a lane's registers for two fragments.
TEST(RowGroupsOnGpu, LoadsOfSixteenBytesAreTwoFragmentsOfQ8_0) {
  const std::vector<std::byte> in = random_bytes(32 * 34);
  std::vector<std::byte> groups(in.size());
  to_row_groups(DType::kQ8_0, 32, 32, in, groups);
  std::vector<int> seen(32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t fragment = 0; fragment < 2; ++fragment) {
      for (uint32_t i = 0; i < 4; ++i) {
        const std::byte* const group = groups.data() + g / 4 * 16 * 34;
        const std::byte* const load = group + 32 + (i / 2) * 256 + t * 64 + g % 4 * 16;
        const FragmentRegister want = fragment_register(lane, i);
        const uint32_t row = g / 4 * 16 + g % 4 * 4 + fragment * 2 + want.row / 8;  // the same in all lanes of g
        if (t == 0 && i < 2) ++seen[row];
        EXPECT_EQ(word_at(load + (fragment * 2 + i % 2) * 4), word_at(in.data() + row * 34 + 2 + want.column));
      }
    }
  }
  EXPECT_EQ(seen, std::vector<int>(32, 1));
}

// One load of 8 bytes is a lane's fragment where a byte holds two columns 16 apart.
TEST(RowGroupsOnGpu, OneLoadIsTheFragmentOfQ4_0) {
  const std::vector<std::byte> in = random_bytes(16 * 18);
  std::vector<std::byte> group(in.size());
  to_row_groups(DType::kQ4_0, 16, 32, in, group);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word = word_at(group.data() + 32 + t * 64 + g * 8 + (i % 2) * 4);
      const FragmentRegister want = fragment_register(lane, i);
      const std::byte* const row = in.data() + (want.row % 8 * 2 + want.row / 8) * 18 + 2;
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t column = want.column + k;
        const uint32_t code = std::to_integer<uint32_t>(row[column % 16]) >> (column / 16 * 4) & 15;
        EXPECT_EQ(word >> (8 * k + i / 2 * 4) & 15, code) << lane << " " << i;
      }
    }
  }
}

std::vector<DType> all() {
  std::vector<DType> out;
  for (const DTypeTraits& t : all_dtypes()) out.push_back(t.type);
  return out;
}

TEST_P(EveryDtype, PaddedGroupIsTheGroupOfThoseRowsAndZeros) {
  const DType type = GetParam();
  if (!traits(type).quantised) return;
  const uint64_t cols = 3ull * std::max(traits(type).block_elements, 32u), stride = row_bytes(type, cols);
  for (const uint32_t rows : {1u, 7u, kGroupRows - 1}) {
    const std::vector<std::byte> in = random_bytes(rows * stride);
    std::vector<std::byte> whole(kGroupRows * stride), expected(whole.size()), out(whole.size(), std::byte{0xEE});
    std::copy(in.begin(), in.end(), whole.begin());
    to_row_groups(type, kGroupRows, cols, whole, expected);
    pad_row_group(type, rows, cols, in.data(), out.data());
    EXPECT_EQ(out, expected) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(RowGroups, EveryDtype, testing::ValuesIn(all()),
                         [](const auto& name) { return std::string(dtype_name(name.param)); });

}  // namespace
}  // namespace tierpack
