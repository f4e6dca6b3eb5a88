#include "formats/source_rows.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/naive_rows.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::naive_copy;
using testing_support::naive_moves;
using testing_support::naive_source_row;
using testing_support::NaivePlace;

struct Field {
  RowField field;
  DType dtype;
};
constexpr Field kFields[] = {
    {RowField::kValues, DType::kF32},       {RowField::kValues, DType::kBF16},      {RowField::kValues, DType::kF8_E4M3},
    {RowField::kNvfp4Codes, DType::kNVFP4}, {RowField::kNvfp4Scales, DType::kNVFP4}, {RowField::kMxfp4Codes, DType::kMXFP4},
    {RowField::kMxfp4Scales, DType::kMXFP4}};

// All columns, windows at both ends and inside, tiles in all columns and in a window.
std::vector<RowLayout> layouts_of(const Field& field) {
  const uint64_t step = field_columns(field.field);
  const uint64_t columns = 24 * std::max<uint64_t>(step, traits(field.dtype).block_elements);
  std::vector<RowLayout> out;
  const auto add = [&](uint64_t first, uint64_t count, ColumnTiles tiles) {
    out.push_back({field.dtype, columns, field.field, first, count, tiles});
  };
  add(0, columns, {});
  add(0, step, {});
  add(columns - step, step, {});
  add(5 * step, 7 * step, {});
  const auto block = [&](uint64_t blocks) { return static_cast<uint32_t>(columns / blocks); };
  add(0, columns, {2, 3, block(6)});
  add(0, columns, {3, 2, block(6)});
  add(0, columns, {24, 1, block(24)});
  add(0, columns, {1, 24, block(24)});
  add(3 * step, 12 * step, {2, 6, static_cast<uint32_t>(step)});
  add(step, 20 * step, {5, 2, static_cast<uint32_t>(2 * step)});
  return out;
}

std::vector<std::byte> noise(std::mt19937& random, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

TEST(SourceRows, GoWhereTheTableSays) {
  std::mt19937 random(3);
  for (const Field& field : kFields) {
    for (const RowLayout& layout : layouts_of(field)) {
      ASSERT_EQ(layout_problem(layout), std::nullopt);
      const RowMover mover(layout);
      constexpr uint64_t kRows = 5;
      const uint64_t source_bytes = testing_support::naive_row_bytes(layout), target_bytes = row_bytes(layout.dtype, layout.target_columns);
      ASSERT_EQ(mover.source_row_bytes(), source_bytes);
      ASSERT_EQ(mover.target_row_bytes(), target_bytes);
      ASSERT_EQ(field_row_bytes(layout.field, layout.dtype, layout.columns), source_bytes);
      for (const uint64_t stride : {source_bytes, 2 * source_bytes, source_bytes + 3}) {
        const std::vector<std::byte> target = noise(random, kRows * target_bytes);
        std::vector<std::byte> want = noise(random, kRows * stride);  // bytes between rows stay what they are
        std::vector<std::byte> found = want;
        for (uint64_t r = 0; r < kRows; ++r) {
          const std::vector<std::byte> row = naive_source_row(layout, &target[r * target_bytes]);
          std::copy(row.begin(), row.end(), want.begin() + static_cast<ptrdiff_t>(r * stride));
        }
        mover.extract(kRows, target.data(), found.data(), stride);
        ASSERT_EQ(found, want) << static_cast<int>(layout.field) << " " << layout.first_column << "+" << layout.columns;

        // The way there touches the layout's share of the target and nothing else.
        std::vector<std::byte> other = noise(random, kRows * target_bytes);
        std::vector<std::byte> placed = other;
        for (uint64_t r = 0; r < kRows; ++r) {
          naive_moves(layout, [&](NaivePlace source, NaivePlace place) {
            naive_copy(&want[r * stride], source, &placed[r * target_bytes], place);
          });
        }
        mover.insert(kRows, want.data(), stride, other.data());
        ASSERT_EQ(other, placed) << static_cast<int>(layout.field) << " " << layout.first_column << "+" << layout.columns;
      }
    }
  }
}

// Rows of 96 elements lie in two blocks of 64, of which the source has the first six sixteens.
TEST(SourceRows, WhatFillsUpABlockIsLeftAlone) {
  std::mt19937 random(5);
  for (const RowField field : {RowField::kNvfp4Codes, RowField::kNvfp4Scales}) {
    const RowMover mover({DType::kNVFP4, 96, field, 0, 96, {}});
    EXPECT_EQ(mover.target_row_bytes(), 72u);
    EXPECT_EQ(mover.source_row_bytes(), field == RowField::kNvfp4Codes ? 48u : 6u);
    const std::vector<std::byte> source = noise(random, 2 * mover.source_row_bytes());
    std::vector<std::byte> target(144), again(source.size());
    mover.insert(2, source.data(), mover.source_row_bytes(), target.data());
    for (size_t row = 0; row < 2; ++row) {
      for (const size_t i : {38, 39, 56, 71}) EXPECT_EQ(target[row * 72 + i], std::byte{0}) << i;
    }
    mover.extract(2, target.data(), again.data(), mover.source_row_bytes());
    EXPECT_EQ(again, source);
  }
}

// Codes and scales together are all bytes of the blocks.
TEST(SourceRows, TwoFieldsMakeUpABlock) {
  std::mt19937 random(4);
  const std::pair<Field, Field> types[] = {{kFields[3], kFields[4]}, {kFields[5], kFields[6]}};
  for (const auto& [codes, scales] : types) {
    const RowMover a({codes.dtype, 256, codes.field, 0, 256, {}}), b({scales.dtype, 256, scales.field, 0, 256, {}});
    const std::vector<std::byte> target = noise(random, 3 * row_bytes(codes.dtype, 256));
    std::vector<std::byte> from_a(3 * a.source_row_bytes()), from_b(3 * b.source_row_bytes());
    a.extract(3, target.data(), from_a.data(), a.source_row_bytes());
    b.extract(3, target.data(), from_b.data(), b.source_row_bytes());
    std::vector<std::byte> again(target.size());
    a.insert(3, from_a.data(), a.source_row_bytes(), again.data());
    b.insert(3, from_b.data(), b.source_row_bytes(), again.data());
    EXPECT_EQ(again, target);
  }
}

// The nibble orders as they are written in the header, by hand.
TEST(SourceRows, NibblesByHand) {
  std::vector<std::byte> source(32), nvfp4(36), mxfp4(17);
  for (size_t k = 0; k < source.size(); ++k) source[k] = static_cast<std::byte>((2 * k % 16) | ((2 * k + 1) % 16) << 4);
  // Element i is i mod 16, so byte j of a block of 16 is j in the low nibble, j + 8 in the high one.
  RowMover({DType::kNVFP4, 64, RowField::kNvfp4Codes, 0, 64, {}}).insert(1, source.data(), 32, nvfp4.data());
  for (size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(nvfp4[s], std::byte{0});
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(nvfp4[4 + 8 * s + j], static_cast<std::byte>(j | (j + 8) << 4));
  }
  // Elements j and j + 16 are the same number.
  RowMover({DType::kMXFP4, 32, RowField::kMxfp4Codes, 0, 32, {}}).insert(1, source.data(), 16, mxfp4.data());
  for (size_t j = 0; j < 16; ++j) EXPECT_EQ(mxfp4[1 + j], static_cast<std::byte>(j | j << 4));
}

TEST(SourceRows, OnlyWholeRowsOfValuesAreTheSameBytes) {
  EXPECT_TRUE(RowMover({DType::kBF16, 40, RowField::kValues, 0, 40, {}}).identity());
  EXPECT_FALSE(RowMover({DType::kBF16, 40, RowField::kValues, 0, 20, {}}).identity());
  EXPECT_FALSE(RowMover({DType::kBF16, 40, RowField::kValues, 0, 40, {2, 2, 10}}).identity());
  EXPECT_FALSE(RowMover({DType::kNVFP4, 64, RowField::kNvfp4Codes, 0, 64, {}}).identity());
}

TEST(SourceRows, BadLayoutsAreNone) {
  const RowLayout values{DType::kBF16, 40, RowField::kValues, 0, 40, {}};
  const RowLayout nvfp4{DType::kNVFP4, 256, RowField::kNvfp4Codes, 0, 256, {}};
  const RowLayout mxfp4{DType::kMXFP4, 256, RowField::kMxfp4Scales, 0, 256, {}};
  for (const RowLayout& good : {values, nvfp4, mxfp4}) EXPECT_EQ(layout_problem(good), std::nullopt);
  const auto problem = [](RowLayout layout, auto change) {
    change(layout);
    const std::optional<const char*> found = layout_problem(layout);
    return std::string(found ? *found : "none");
  };
  using L = RowLayout;
  EXPECT_THAT(problem(values, [](L& l) { l.dtype = DType::kQ8_0; }), HasSubstr("type"));
  EXPECT_THAT(problem(values, [](L& l) { l.dtype = DType::kNVFP4; }), HasSubstr("type"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.dtype = DType::kMXFP4; }), HasSubstr("type"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.dtype = DType::kBF16; }), HasSubstr("type"));
  EXPECT_THAT(problem(mxfp4, [](L& l) { l.dtype = DType::kNVFP4; }), HasSubstr("type"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.field = static_cast<RowField>(kRowFields); }), HasSubstr("type"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.target_columns = 264; }), HasSubstr("whole blocks"));
  EXPECT_THAT(problem(values, [](L& l) { l.columns = 0; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.columns = 24; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.first_column = 8, l.columns = 16; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(mxfp4, [](L& l) { l.columns = 48; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(mxfp4, [](L& l) { l.first_column = 16, l.columns = 32; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(values, [](L& l) { l.columns = 41; }), HasSubstr("leave"));
  EXPECT_THAT(problem(values, [](L& l) { l.first_column = 1; }), HasSubstr("leave"));
  EXPECT_THAT(problem(values, [](L& l) { l.first_column = UINT64_MAX; }), HasSubstr("leave"));
  EXPECT_THAT(problem(values, [](L& l) { l.columns = UINT64_MAX; }), HasSubstr("leave"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {0, 4, 10}; }), HasSubstr("without groups"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {0, 0, 10}; }), HasSubstr("without groups"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {4, 0, 10}; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {4, 1, 0}; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(nvfp4, [](L& l) { l.tiles = {32, 1, 8}; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(mxfp4, [](L& l) { l.tiles = {16, 1, 16}; }), HasSubstr("inside a block"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {2, 2, 9}; }), HasSubstr("make up"));
  EXPECT_THAT(problem(values, [](L& l) { l.tiles = {UINT32_MAX, UINT32_MAX, UINT32_MAX}; }), HasSubstr("make up"));
}

}  // namespace
}  // namespace tierpack
