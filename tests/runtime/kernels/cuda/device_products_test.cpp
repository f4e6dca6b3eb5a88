// Products on the GPU, bit for bit against the reference: every type, number of tokens and way of finding weights and activations.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "formats/row_groups.h"
#include "runtime/kernels/cuda/products.h"
#include "tests/runtime/kernels/kernel_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

constexpr DType kPlain[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3};

std::vector<DType> quantised_weights() {
  std::vector<DType> types = quantised_types();
  std::erase_if(types, [](DType type) { return type == DType::kQ8_1 || type == DType::kQ8_K; });
  return types;
}

// A matrix as it lies in a pack.
std::vector<std::byte> packed_weights(Random& random, DType type, uint32_t rows, uint32_t cols, Weights kind) {
  std::vector<std::byte> plain = random_weights(random, type, rows, cols, kind);
  if (!has_row_groups(type, rows)) return plain;
  std::vector<std::byte> grouped(plain.size());
  to_row_groups(type, rows, cols, plain, grouped);
  return grouped;
}

Activations made_activations(Random& random, uint32_t tokens, uint32_t n, Weights kind) {
  std::vector<float> x = kind == Weights::kExtreme ? adversarial_vector(random, size_t{tokens} * n) : uniform_vector(random, size_t{tokens} * n);
  if (kind == Weights::kRawBytes) x[x.size() / 2] = std::numeric_limits<float>::infinity();
  return quantized(std::move(x), n);
}

// A product with everything it reads, on both sides.
struct Product {
  MatrixView w;
  std::vector<std::byte> weights;
  std::vector<float> scales;
  Activations x;
  std::vector<uint32_t> rows;  // gathered; empty: all of them in order
  std::unique_ptr<OnDevice<std::byte>> device_weights;
  std::unique_ptr<OnDevice<float>> device_scales, device_x, device_x_scale, y;
  std::unique_ptr<OnDevice<int8_t>> device_q;
  std::unique_ptr<OnDevice<int32_t>> device_sum;
  std::unique_ptr<OnDevice<uint32_t>> device_rows;
  size_t y_stride = 0;

  uint32_t tokens() const { return rows.empty() ? x.tokens : static_cast<uint32_t>(rows.size()); }
  MatrixView host_view() const {
    MatrixView view = w;
    view.data = weights.data();
    view.scales = scales.empty() ? nullptr : scales.data();
    return view;
  }
  // With `factor` as an expert's.
  std::vector<float> expected(float factor = 1.0f) const {
    std::vector<float> result(tokens() * y_stride);
    for (uint32_t t = 0; t < tokens(); ++t) {
      float* row = result.data() + t * y_stride;
      reference().matmul(host_view(), 0, w.rows, x.one(rows.empty() ? t : rows[t]), row, y_stride);
      for (uint32_t r = 0; r < w.rows; ++r) row[r] *= factor;
    }
    return result;
  }
};

class DeviceProducts : public testing::TestWithParam<DType> {
 protected:
  device::Stream stream_;
  GridTables grids_{stream_};

  Product made(Random& random, DType type, uint32_t rows, uint32_t cols, uint32_t tokens, Weights kind) {
    Product p;
    p.w.dtype = type;
    p.w.rows = rows;
    p.w.cols = cols;
    p.weights = packed_weights(random, type, rows, cols, kind);
    p.x = made_activations(random, tokens, cols, kind);
    p.y_stride = rows + 3;
    return p;
  }

  DeviceProduct on_device(Product& p) {
    p.device_weights = std::make_unique<OnDevice<std::byte>>(stream_, p.weights);
    if (!p.scales.empty()) p.device_scales = std::make_unique<OnDevice<float>>(stream_, p.scales);
    p.device_x = std::make_unique<OnDevice<float>>(stream_, p.x.x);
    if (!p.x.q.empty()) {
      p.device_q = std::make_unique<OnDevice<int8_t>>(stream_, p.x.q);
      p.device_x_scale = std::make_unique<OnDevice<float>>(stream_, p.x.scale);
      p.device_sum = std::make_unique<OnDevice<int32_t>>(stream_, p.x.sum);
    }
    if (!p.rows.empty()) p.device_rows = std::make_unique<OnDevice<uint32_t>>(stream_, p.rows);
    p.y = std::make_unique<OnDevice<float>>(stream_, p.tokens() * p.y_stride);
    DeviceProduct d;
    d.w = p.w;
    d.w.data = p.device_weights->data();
    d.w.scales = p.scales.empty() ? nullptr : p.device_scales->data();
    d.x = {p.tokens(), p.w.cols, p.device_x->data(), p.x.q.empty() ? nullptr : p.device_q->data(), p.x.q.empty() ? nullptr : p.device_x_scale->data(),
           p.x.q.empty() ? nullptr : p.device_sum->data()};
    d.rows = p.rows.empty() ? nullptr : p.device_rows->data();
    d.y = p.y->data();
    d.y_stride = p.y_stride;
    return d;
  }

  void expect_equal(Product& p, const std::string& what) {
    const DeviceProduct d = on_device(p);
    multiply(stream_, grids_, std::span(&d, 1));
    EXPECT_TRUE(same_bits(p.expected(), p.y->get())) << dtype_name(p.w.dtype) << ", " << p.w.rows << " x " << p.w.cols << ", " << p.tokens()
                                                     << " tokens, " << what;
  }
};

struct Size {
  uint32_t rows, tokens;
  uint32_t blocks;  // columns are about 32 times that
};
constexpr Size kSizes[] = {{16, 1, 3},  {80, 1, 21}, {37, 1, 8},  {5, 1, 9},   {32, 1, 64}, {16, 2, 24},
                           {32, 3, 64}, {37, 7, 5},  {5, 9, 3},   {16, 9, 17}, {37, 70, 9}, {48, 64, 16}};

std::string type_name(const testing::TestParamInfo<DType>& info) { return dtype_name(info.param); }

class QuantisedProducts : public DeviceProducts {};

TEST_P(QuantisedProducts, EqualTheReference) {
  const DType type = GetParam();
  const uint32_t packed = traits(type).block_elements;
  Random random = seeded(static_cast<uint64_t>(type) + 100);
  for (const Size& size : kSizes) {
    const uint32_t cols = (32 * size.blocks + packed - 1) / packed * packed;
    for (const Weights kind : {Weights::kSane, Weights::kExtreme, Weights::kRawBytes}) {
      if (kind == Weights::kRawBytes && size.tokens >= 64) continue;
      Product p = made(random, type, size.rows, cols, size.tokens, kind);
      expect_equal(p, "kind " + std::to_string(static_cast<int>(kind)));
    }
  }
}

// The largest integers that a type makes, of both signs.
TEST_P(QuantisedProducts, LargestIntegers) {
  const DType type = GetParam();
  const uint32_t cols = 256;
  Random random = seeded(static_cast<uint64_t>(type) + 200);
  for (const uint32_t tokens : {1u, 2u, 9u}) {
    Product p = made(random, type, 21, cols, tokens, Weights::kExtreme);
    std::vector<float> x(size_t{tokens} * cols);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i / 64 % 2 == 0 ? 3.0f : -3.0f;
    p.x = quantized(std::move(x), cols);
    expect_equal(p, "largest integers");
  }
}

TEST_P(QuantisedProducts, SecondScaleAndGather) {
  Random random = seeded(static_cast<uint64_t>(GetParam()) + 300);
  for (const std::vector<uint32_t>& rows : std::vector<std::vector<uint32_t>>{{4}, {2, 0}, {5, 5, 1, 0, 3, 2, 4, 5, 1, 3, 0}}) {
    Product p = made(random, GetParam(), 19, 256, 6, Weights::kSane);
    p.rows = rows;
    p.scales = {0.3f};
    p.w.scale_rows = p.w.rows;
    p.w.scale_cols = p.w.cols;
    expect_equal(p, "gathered");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedProducts, testing::ValuesIn(quantised_weights()), type_name);

class PlainProducts : public DeviceProducts {};

TEST_P(PlainProducts, EqualTheReference) {
  Random random = seeded(static_cast<uint64_t>(GetParam()) + 400);
  for (const uint32_t cols : {1u, 31u, 32u, 36u, 200u, 257u, 512u}) {
    for (const auto& [rows, tokens] : {std::pair{1u, 1u}, {37u, 1u}, {130u, 1u}, {5u, 2u}, {67u, 3u}, {16u, 9u}}) {
      for (const Weights kind : {Weights::kSane, Weights::kExtreme, Weights::kRawBytes}) {
        Product p = made(random, GetParam(), rows, cols, tokens, kind);
        expect_equal(p, "kind " + std::to_string(static_cast<int>(kind)));
      }
    }
  }
}

TEST_P(PlainProducts, FactorsAndGather) {
  Random random = seeded(static_cast<uint64_t>(GetParam()) + 500);
  for (const auto& [scale_rows, scale_cols] : {std::pair{128u, 128u}, {1u, 1000u}, {1000u, 1000u}, {3u, 32u}}) {
    for (const uint32_t cols : {31u, 200u, 416u}) {
      for (const uint32_t tokens : {1u, 6u}) {
        Product p = made(random, GetParam(), 150, cols, 7, Weights::kExtreme);
        p.w.scale_rows = scale_rows;
        p.w.scale_cols = scale_cols;
        const size_t count = size_t{(150 + scale_rows - 1) / scale_rows} * ((cols + scale_cols - 1) / scale_cols);
        p.scales = uniform_vector(random, count);
        p.scales[count / 2] = count % 2 == 0 ? 0x1p-140f : 3e38f;
        for (uint32_t t = 0; t < tokens; ++t) p.rows.push_back((5 * t + 3) % 7);
        expect_equal(p, "factors");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PlainProducts, testing::ValuesIn(kPlain), type_name);

// Everything at once, more than fit one launch.
TEST_F(DeviceProducts, MixturesInOneCall) {
  Random random = seeded(600);
  std::vector<Product> products;
  for (uint32_t i = 0; i < 60; ++i) {
    const DType types[] = {DType::kQ4_K, DType::kF32, DType::kQ6_K, DType::kQ4_K, DType::kMXFP4, DType::kBF16};
    const uint32_t tokens[] = {1, 1, 3, 1, 1, 10, 2};
    products.push_back(made(random, types[i % 6], 1 + random() % 70, 256, tokens[i % 7], Weights::kSane));
  }
  products.push_back(made(random, DType::kQ4_K, 32, 256, 0, Weights::kSane));
  std::vector<DeviceProduct> on_gpu;
  for (Product& p : products) on_gpu.push_back(on_device(p));
  multiply(stream_, grids_, on_gpu);
  for (const Product& p : products) EXPECT_TRUE(same_bits(p.expected(), p.y->get())) << dtype_name(p.w.dtype) << " " << p.w.rows;
}

// So many row groups that each is a single warp's.
TEST_F(DeviceProducts, ManyRowGroups) {
  Random random = seeded(640);
  Product p = made(random, DType::kQ4_0, 16 * 2051, 544, 1, Weights::kSane);
  expect_equal(p, "many rows");
}

// Rows that end within a packed block.
TEST_F(DeviceProducts, UnfinishedBlocks) {
  Random random = seeded(650);
  for (const uint32_t tokens : {1u, 3u, 12u}) {
    Product p = made(random, DType::kNVFP4, 35, 96, tokens, Weights::kSane);
    expect_equal(p, "96 columns");
  }
}

// Where an expert's record lies is known to the device alone, and its matrix and factors by their places in it.
TEST_F(DeviceProducts, RecordsOfExperts) {
  Random random = seeded(700);
  for (const DType type : {DType::kQ4_K, DType::kNVFP4, DType::kQ8_0, DType::kF8_E4M3}) {
    for (const uint32_t tokens : {1u, 4u, 20u}) {
      constexpr uint32_t kExperts = 3;
      std::vector<Product> experts;
      std::vector<OnDevice<std::byte>> records;
      std::vector<uint64_t> addresses;
      const size_t weight_bytes = row_bytes(type, 256) * 37, data_at = 64, scales_at = (data_at + weight_bytes + 15) / 16 * 16;
      for (uint32_t e = 0; e < kExperts; ++e) {
        experts.push_back(made(random, type, 37, 256, tokens, Weights::kSane));
        Product& p = experts.back();
        p.w.scale_rows = 37;
        p.w.scale_cols = 256;
        p.scales = {0.7f + static_cast<float>(e)};
        std::vector<std::byte> record(scales_at + sizeof(float));
        std::memcpy(record.data() + data_at, p.weights.data(), weight_bytes);
        std::memcpy(record.data() + scales_at, p.scales.data(), sizeof(float));
        records.emplace_back(stream_, record);
        addresses.push_back(reinterpret_cast<uint64_t>(records.back().data()));
      }
      const std::vector<float> factors = {3.0f, 0.1f, -7.0f};
      const OnDevice<uint64_t> device_records(stream_, addresses);
      const OnDevice<float> device_factors(stream_, factors);
      const OnDevice<uint32_t> chosen(stream_, std::vector<uint32_t>{2, 0, 1});
      std::vector<DeviceProduct> on_gpu;
      for (uint32_t i = 0; i < kExperts; ++i) {
        Product& p = experts[std::vector<uint32_t>{2, 0, 1}[i]];
        on_gpu.push_back(on_device(p));
        DeviceProduct& d = on_gpu.back();
        d.w.data = reinterpret_cast<const std::byte*>(data_at);
        d.w.scales = reinterpret_cast<const float*>(scales_at);
        d.records = device_records.data();
        d.expert = chosen.data() + i;
        d.expert_scales = device_factors.data();
      }
      multiply(stream_, grids_, on_gpu);
      for (uint32_t e = 0; e < kExperts; ++e) EXPECT_TRUE(same_bits(experts[e].expected(factors[e]), experts[e].y->get())) << dtype_name(type) << e;
    }
  }
}

TEST_F(DeviceProducts, Quantize) {
  Random random = seeded(800);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const uint32_t blocks : {1u, 7u, 32u, 33u, 100u}) {
    for (const bool extreme : {false, true}) {
      std::vector<float> x = extreme ? adversarial_vector(random, 32 * size_t{blocks}) : uniform_vector(random, 32 * size_t{blocks});
      if (extreme && blocks > 6) {
        x[37] = kInfinity;
        x[64] = -kInfinity;
        x[127] = std::numeric_limits<float>::quiet_NaN();
        x[130] = 0x1p-100f;
        std::fill_n(x.begin() + 160, 32, 0x1.fffffep-101f);
        std::fill_n(x.begin() + 192, 32, 3.4028235e38f);
      }
      std::vector<int8_t> q(x.size());
      std::vector<float> scale(blocks);
      std::vector<int32_t> sum(blocks);
      reference().quantize(x.data(), 32 * blocks, q.data(), scale.data(), sum.data());
      const OnDevice<float> device_x(stream_, x), device_scale(stream_, blocks);
      const OnDevice<int8_t> device_q(stream_, x.size());
      const OnDevice<int32_t> device_sum(stream_, blocks);
      quantize(stream_, device_x.data(), x.size(), device_q.data(), device_scale.data(), device_sum.data());
      EXPECT_EQ(q, device_q.get());
      EXPECT_TRUE(same_bits(scale, device_scale.get()));
      EXPECT_EQ(sum, device_sum.get());
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda
