#include "formats/dtype.h"

#include <set>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

struct Row {
  int32_t id;
  const char* name;
  uint32_t elements;
  uint32_t bytes;
  double bits;
};

// ggml's table, typed in from its description; ggml_dtypes() must say exactly this.
// clang-format off
constexpr Row kTable[] = {
    {0, "F32", 1, 4, 32},          {1, "F16", 1, 2, 16},           {2, "Q4_0", 32, 18, 4.5},
    {3, "Q4_1", 32, 20, 5},        {6, "Q5_0", 32, 22, 5.5},       {7, "Q5_1", 32, 24, 6},
    {8, "Q8_0", 32, 34, 8.5},      {9, "Q8_1", 32, 36, 9},         {10, "Q2_K", 256, 84, 2.625},
    {11, "Q3_K", 256, 110, 3.4375}, {12, "Q4_K", 256, 144, 4.5},   {13, "Q5_K", 256, 176, 5.5},
    {14, "Q6_K", 256, 210, 6.5625}, {15, "Q8_K", 256, 292, 9.125}, {16, "IQ2_XXS", 256, 66, 2.0625},
    {17, "IQ2_XS", 256, 74, 2.3125}, {18, "IQ3_XXS", 256, 98, 3.0625}, {19, "IQ1_S", 256, 50, 1.5625},
    {20, "IQ4_NL", 32, 18, 4.5},   {21, "IQ3_S", 256, 110, 3.4375}, {22, "IQ2_S", 256, 82, 2.5625},
    {23, "IQ4_XS", 256, 136, 4.25}, {24, "I8", 1, 1, 8},           {25, "I16", 1, 2, 16},
    {26, "I32", 1, 4, 32},         {27, "I64", 1, 8, 64},          {28, "F64", 1, 8, 64},
    {29, "IQ1_M", 256, 56, 1.75},  {30, "BF16", 1, 2, 16},         {34, "TQ1_0", 256, 54, 1.6875},
    {35, "TQ2_0", 256, 66, 2.0625}, {39, "MXFP4", 32, 17, 4.25},   {40, "NVFP4", 64, 36, 4.5},
    {41, "Q1_0", 128, 18, 1.125},  {42, "Q2_0", 64, 18, 2.25},
};
// clang-format on

TEST(DType, TraitsSayWhatGgmlSays) {
  ASSERT_EQ(ggml_dtypes().size(), std::size(kTable));
  for (size_t i = 0; i < std::size(kTable); ++i) {
    const Row& row = kTable[i];
    const DTypeTraits& t = ggml_dtypes()[i];
    EXPECT_EQ(static_cast<int32_t>(t.type), row.id) << row.name;
    EXPECT_STREQ(t.name, row.name);
    EXPECT_EQ(t.block_elements, row.elements) << row.name;
    EXPECT_EQ(t.block_bytes, row.bytes) << row.name;
    EXPECT_EQ(t.bits_per_weight(), row.bits) << row.name;
    EXPECT_EQ(t.quantised, row.elements > 1) << row.name;
    EXPECT_EQ(&traits(t.type), &t);
    EXPECT_EQ(dtype_from_ggml(row.id), t.type);
    EXPECT_EQ(dtype_from_name(row.name), t.type);
  }
}

// Types of safetensors alone are outside ggml's ids, so that no GGUF file can name them.
TEST(DType, TypesThatGgmlDoesNotKnowAreNoGgufTypes) {
  const auto others = all_dtypes().subspan(ggml_dtypes().size());
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(&traits(DType::kF8_E4M3), &others[0]);
  EXPECT_STREQ(others[0].name, "F8_E4M3");
  EXPECT_EQ(others[0].bits_per_weight(), 8.0);
  EXPECT_FALSE(others[0].quantised);
  EXPECT_EQ(dtype_from_name("f8_e4m3"), DType::kF8_E4M3);
  EXPECT_EQ(row_bytes(DType::kF8_E4M3, 33), 33u);
  for (const DTypeTraits& t : others) {
    EXPECT_LT(static_cast<int32_t>(t.type), 0) << t.name;
    EXPECT_FALSE(dtype_from_ggml(static_cast<int32_t>(t.type))) << t.name;
  }
}

TEST(DType, OtherIdsNameNoType) {
  std::set<int32_t> known;
  for (const Row& row : kTable) known.insert(row.id);
  for (int32_t id = -5; id < 500; ++id) EXPECT_EQ(dtype_from_ggml(id).has_value(), known.contains(id)) << id;
  EXPECT_FALSE(dtype_from_ggml(std::numeric_limits<int32_t>::min()));
  EXPECT_FALSE(dtype_from_ggml(std::numeric_limits<int32_t>::max()));
}

TEST(DType, ProblemsAreExplained) {
  EXPECT_EQ(ggml_type_problem(4), "type 4 (Q4_2) was removed from GGUF; convert the model again");
  EXPECT_EQ(ggml_type_problem(33), "type 33 (Q4_0_8_8) was removed from GGUF; convert the model again");
  EXPECT_EQ(ggml_type_problem(139), "type 139 (IQ4_K) exists only in ik_llama.cpp");
  EXPECT_EQ(ggml_type_problem(230), "type 230 is a row-interleaved type of ik_llama.cpp");
  EXPECT_EQ(ggml_type_problem(-1), "type -1 is unknown");
  EXPECT_NE(ggml_type_problem(36).find("I2_S"), std::string::npos);
}

TEST(DType, NamesIgnoreCase) {
  EXPECT_EQ(dtype_from_name("q4_k"), DType::kQ4_K);
  EXPECT_EQ(dtype_from_name("bf16"), DType::kBF16);
  EXPECT_FALSE(dtype_from_name("q4_kk"));
  EXPECT_FALSE(dtype_from_name("q4_"));
  EXPECT_FALSE(dtype_from_name(""));
}

TEST(DType, RowsAreWholeBlocks) {
  EXPECT_EQ(row_bytes(DType::kQ4_K, 2560), 1440u);
  EXPECT_EQ(row_bytes(DType::kF16, 3), 6u);
  EXPECT_EQ(row_bytes(DType::kQ4_0, 0), 0u);
  EXPECT_THROW(row_bytes(DType::kQ4_K, 640), Error);
  EXPECT_THROW(traits(static_cast<DType>(4)), Error);
  EXPECT_THROW(traits(static_cast<DType>(-1)), Error);
  EXPECT_THROW(traits(static_cast<DType>(-3)), Error);
  EXPECT_THROW(traits(static_cast<DType>(43)), Error);
}

}  // namespace
}  // namespace tierpack
