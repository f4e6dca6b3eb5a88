// Random checkpoints of every form, written and read by tests/support/make_checkpoint.py, which was made from the
// description of the formats and shares nothing with our reader: the values must agree bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/float_scan.h"
#include "formats/quant_decode.h"

namespace tierpack {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    directory_ = fs::path(TIERPACK_BINARY_DIR) / "test_files" / "checkpoint" / GetParam();
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path make(int seed) const {
    const fs::path out = directory_ / std::to_string(seed);
    const std::string command =
        fmt::format("{} {}/tests/support/make_checkpoint.py make --form {} --seed {} --out '{}'", TIERPACK_PYTHON3,
                    TIERPACK_SOURCE_DIR, GetParam(), seed, out.string());
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }

  fs::path directory_;
};

void expect_equal(std::string_view name, const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << name << " [" << i << "]";
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << name << " [" << i << "]: " << found[i] << ", expected " << expected[i];
    }
  }
}

// Row by row ranges of odd sizes, so that pieces begin and end inside blocks and matrices.
std::vector<float> decode_in_pieces(const SafetensorsSource& source, const QuantWeight& weight) {
  const uint64_t rows = weight.rows(), columns = weight.columns();
  std::vector<float> all(rows * columns);
  uint64_t piece = 1;
  for (uint64_t row = 0; row < rows && columns > 0;) {
    const uint64_t count = std::min(piece, rows - row);
    decode_rows(source, weight, row, count, std::span(all).subspan(row * columns, count * columns));
    row += count;
    piece = piece % 13 + 3;
  }
  return all;
}

TEST_P(Checkpoint, DecodesToTheIndependentReadersValues) {
  for (int seed = 1; seed <= 3; ++seed) {
    const fs::path path = make(seed);
    const SafetensorsSource source = SafetensorsSource::open(path);
    const QuantCatalog catalog = recognise_weights(source, read_quant_config(path));
    catalog.require_readable(path.string());

    const auto listing = nlohmann::json::parse(read_text_file(path / "expected.json", 1 << 24));
    const File values = File::open(path / "expected.f32", File::Mode::kRead);
    EXPECT_EQ(catalog.weights.size(), listing.size());
    for (const auto& item : listing) {
      const auto name = item["name"].get<std::string>();
      const QuantWeight* weight = catalog.find(name);
      ASSERT_NE(weight, nullptr) << name;
      const auto shape = item["shape"].get<std::vector<uint64_t>>();
      EXPECT_TRUE(std::ranges::equal(weight->shape, shape)) << name;
      std::vector<float> expected(weight->rows() * weight->columns());
      values.read_at(item["offset"].get<uint64_t>(), std::as_writable_bytes(std::span(expected)));

      std::vector<float> whole(expected.size());
      if (!whole.empty()) decode_rows(source, *weight, 0, weight->rows(), whole);
      expect_equal(name, whole, expected);
      expect_equal(name, decode_in_pieces(source, *weight), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Checkpoint,
                         ::testing::Values("plain", "fp8_block", "fp8_small_block", "fp8_channel", "fp8_tensor",
                                           "nvfp4_modelopt", "nvfp4_compressed", "mxfp4", "mxfp8", "mixed"),
                         [](const auto& form) { return std::string(form.param); });

}  // namespace
}  // namespace tierpack
