#include "runtime/evaluation.h"

#include <cmath>
#include <fstream>

#include "tests/runtime/model/model_fixture.h"

namespace tierpack {
namespace {

using namespace testing_support;

std::vector<float> read_floats(const std::filesystem::path& path) {
  const File file = File::open(path, File::Mode::kRead);
  std::vector<float> values(file.size() / sizeof(float));
  file.read_at(0, std::as_writable_bytes(std::span(values)));
  return values;
}

void write_floats(const std::filesystem::path& path, const std::vector<float>& values) {
  write_file_atomically(path, std::as_bytes(std::span(values)));
}

TEST(Evaluation, PerplexityOfKnownDistributions) {
  Evaluation e(4, 3, {}, {});
  const std::vector<float> even = {1, 1, 1, 1};
  e.add(even, 2u);                                                // 1/4
  e.add(std::vector<float>{std::log(8.0f), std::log(4.0f), std::log(2.0f), std::log(2.0f)}, 0u);  // 1/2
  e.add(even, std::nullopt);
  e.finish();
  EXPECT_EQ(e.rows(), 3u);
  EXPECT_EQ(e.predicted(), 2u);
  EXPECT_NEAR(e.mean_loss(), (std::log(4.0) + std::log(2.0)) / 2, 1e-7);
  EXPECT_NEAR(e.perplexity(), std::sqrt(8.0), 1e-6);
}

TEST(Evaluation, LargeLogitsDoNotOverflow) {
  Evaluation e(2, 1, {}, {});
  e.add(std::vector<float>{10000.0f, 9999.0f}, 0u);
  e.finish();
  EXPECT_NEAR(e.mean_loss(), std::log1p(std::exp(-1.0)), 1e-9);
}

TEST(Evaluation, WritesTheRowsAndFingerprintsTheirBytes) {
  TempDirectory directory;
  const std::filesystem::path out = directory.path() / "logits.f32";
  const std::vector<float> rows = {1, 2, 3, -4, 5, 6};
  Evaluation e(3, 2, out, {});
  e.add(std::span(rows).first(3), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(out));  // not before it is whole
  e.add(std::span(rows).last(3), std::nullopt);
  e.finish();
  EXPECT_EQ(read_floats(out), rows);
  EXPECT_EQ(e.fingerprint(), xxh3_128(std::as_bytes(std::span(rows))));
  EXPECT_FALSE(std::filesystem::exists(out.string() + ".part"));
}

TEST(Evaluation, LeavesNothingBehindWhenItIsNotFinished) {
  TempDirectory directory;
  {
    Evaluation e(1, 2, directory.path() / "logits.f32", {});
    e.add(std::vector<float>{1}, std::nullopt);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Evaluation, DistanceFromAReference) {
  TempDirectory directory;
  const std::filesystem::path reference = directory.path() / "reference.f32";
  // Row 0: p = (1/2, 1/2) against q = (1/4, 3/4). Row 1: equal up to a constant.
  write_floats(reference, {0, 0, 3, 5});
  Evaluation e(2, 2, {}, reference);
  e.add(std::vector<float>{0, std::log(3.0f)}, std::nullopt);
  e.add(std::vector<float>{1, 3}, std::nullopt);
  e.finish();
  ASSERT_TRUE(e.distance().has_value());
  const double kl = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0);
  EXPECT_NEAR(e.distance()->mean_kl, kl / 2, 1e-7);
  EXPECT_NEAR(e.distance()->max_kl, kl, 1e-7);
  EXPECT_NEAR(e.distance()->max_difference, 2, 1e-6);
  EXPECT_NEAR(e.distance()->same_top, 0.5, 1e-9);
}

TEST(Evaluation, RefusesAReferenceOfAnotherShape) {
  TempDirectory directory;
  const std::filesystem::path reference = directory.path() / "reference.f32";
  write_floats(reference, {0, 0, 3});
  const auto [kind, message] = thrown_by([&] { Evaluation(2, 2, {}, reference); });
  EXPECT_EQ(kind, ErrorKind::kUsage);
  EXPECT_NE(message.find("12 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("16"), std::string::npos) << message;

  write_floats(reference, {0, NAN, 3, 4});
  Evaluation e(2, 2, {}, reference);
  EXPECT_EQ(thrown_by([&] { e.add(std::vector<float>{0, 0}, std::nullopt); }).kind, ErrorKind::kUsage);
}

TEST(TokenIds, AreDecimalNumbersBetweenWhiteSpace) {
  EXPECT_EQ(parse_token_ids(" 1\n2\t33 \r\n4095", "ids"), (std::vector<uint32_t>{1, 2, 33, 4095}));
  EXPECT_TRUE(parse_token_ids("", "ids").empty());
  EXPECT_TRUE(parse_token_ids(" \n ", "ids").empty());
  EXPECT_EQ(parse_token_ids("4294967295", "ids"), (std::vector<uint32_t>{4294967295u}));
  for (const char* wrong : {"1 -2", "1,2", "0x10", "1 4294967296", "one", "1.5"}) {
    const auto [kind, message] = thrown_by([&] { parse_token_ids(wrong, "prompt.ids"); });
    EXPECT_EQ(kind, ErrorKind::kUsage) << wrong;
    EXPECT_NE(message.find("prompt.ids"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tierpack
