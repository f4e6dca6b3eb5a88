// ggml's operator results (tests/data/golden_ops): the same mathematics in another order of sums, so within tolerance.
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "formats/dequant.h"
#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

TEST(GoldenOps, NormsAndActivations) {
  const GoldenCase golden = golden_ops("ops_misc.txt").at(0);
  for (const KernelTable* table : available()) {
    for (int row = 0; row < 2; ++row) {
      const float* x = golden.list("rms_in").data() + 64 * row;
      std::vector<float> rms(64), l2(64);
      table->rms_norm(x, nullptr, 1e-6f, 64, rms.data());
      table->l2_norm(x, 0.0f, 1.0f, 64, l2.data());
      for (int i = 0; i < 64; ++i) {
        EXPECT_NEAR(rms[i], golden.list("rms_out")[64 * row + i], 1e-6);
        EXPECT_NEAR(l2[i], golden.list("l2_out")[64 * row + i], 1e-6);
      }
    }
    const std::vector<float>& x = golden.list("act_in");
    std::vector<float> y(x.size());
    table->silu(x.data(), 16, y.data());
    for (int i = 0; i < 16; ++i) EXPECT_NEAR(y[i], golden.list("silu")[i], 1e-6);
    table->softplus(x.data(), 16, y.data());
    for (int i = 0; i < 16; ++i) EXPECT_NEAR(y[i], golden.list("softplus")[i], 1e-6);
    table->sigmoid(x.data(), 16, y.data());
    for (int i = 0; i < 16; ++i) EXPECT_NEAR(y[i], golden.list("sigmoid")[i], 1e-6);
  }
}

TEST(GoldenOps, Convolution) {
  const GoldenCase golden = golden_ops("ops_misc.txt").at(0);
  const std::vector<float>& input = golden.list("conv_in");  // (3 channels, 7 tokens)
  for (const KernelTable* table : available()) {
    for (int t = 0; t < 4; ++t) {
      float columns[4][3];
      const float* taps[4];
      for (int k = 0; k < 4; ++k) {
        for (int c = 0; c < 3; ++c) columns[k][c] = input[c * 7 + t + k];
        taps[k] = columns[k];
      }
      float out[3];
      table->conv(taps, golden.list("conv_w").data(), 4, 3, out);
      for (int c = 0; c < 3; ++c) EXPECT_NEAR(out[c], golden.list("conv_out")[t * 3 + c], 1e-6);
    }
  }
}

// Plain NEOX rotations, and IMROPE, which is the same for text (t = h = w).
TEST(GoldenOps, Rotation) {
  int checked = 0;
  for (const GoldenCase& golden : golden_ops("ops_rope.txt")) {
    if (golden.parameter("mode") != 2 || golden.parameter("ext") != 0) continue;
    ++checked;
    const auto head = static_cast<uint32_t>(golden.parameter("head"));
    const auto pairs = static_cast<uint32_t>(golden.parameter("n_dims")) / 2;
    std::vector<float> inv_freq(pairs), cos(pairs), sin(pairs);
    rope_inv_freq(static_cast<float>(golden.parameter("base")), 2 * pairs, inv_freq.data());
    for (const KernelTable* table : available()) {
      for (uint32_t t = 0; t < golden.list("pos").size(); ++t) {
        const float position = golden.list("pos")[t];
        std::vector<float> x(golden.list("in").begin() + t * head, golden.list("in").begin() + (t + 1) * head);
        rope_row(inv_freq.data(), pairs, static_cast<uint32_t>(position), cos.data(), sin.data());
        table->rope(x.data(), cos.data(), sin.data(), pairs);
        for (uint32_t i = 0; i < head; ++i) {
          // ggml multiplies the f32 angle once a pair: pair i carries up to i roundings.
          const uint32_t pair = i % pairs;
          const double tolerance = 1e-6 + (pair + 2) * 0x1p-24 * position * inv_freq[pair];
          EXPECT_NEAR(x[i], golden.list("out")[t * head + i], i < 2 * pairs ? tolerance : 0) << golden.name;
        }
      }
    }
  }
  EXPECT_EQ(checked, 2);
}

TEST(GoldenOps, GatedDeltaRule) {
  const GoldenCase golden = golden_ops("ops_gdn.txt").at(0);
  constexpr int kDim = 16, kKeyHeads = 2, kHeads = 4, kTokens = 5;
  for (const KernelTable* table : available()) {
    std::vector<float> state = golden.list("state");
    for (int t = 0; t < kTokens; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        const int at = (t * kKeyHeads + h % kKeyHeads) * kDim;
        std::vector<float> q(golden.list("q").begin() + at, golden.list("q").begin() + at + kDim);
        for (float& v : q) v *= 0.25f;  // 1 / sqrt(16)
        const float* k = golden.list("k").data() + at;
        const float* v = golden.list("v").data() + (t * kHeads + h) * kDim;
        float decay = 0;
        table->exp(&golden.list("g")[t * kHeads + h], 1, &decay);
        float out[kDim];
        table->delta_rule(state.data() + h * kDim * kDim, q.data(), k, v, decay, golden.list("beta")[t * kHeads + h], kDim, kDim, out);
        for (int j = 0; j < kDim; ++j) EXPECT_NEAR(out[j], golden.list("out")[(t * kHeads + h) * kDim + j], 1e-6);
      }
    }
    for (size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(state[i], golden.list("out")[kTokens * kHeads * kDim + i], 1e-6);
  }
}

// The packed row of 512 elements of tests/data/golden/<type>.txt.
std::vector<std::byte> golden_row(const std::string& type) {
  std::ifstream file(TIERPACK_SOURCE_DIR "/tests/data/golden/" + type + ".txt");
  std::vector<std::byte> row;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("B ", 0) != 0) continue;
    for (size_t i = 2; i + 1 < line.size(); i += 2) row.push_back(static_cast<std::byte>(std::stoi(line.substr(i, 2), nullptr, 16)));
  }
  return row;
}

// The activations that ggml's dots were computed with.
std::vector<float> golden_activations() {
  std::vector<float> x;
  uint32_t state = 12345;
  for (int i = 0; i < 512; ++i) {
    state = state * 1664525u + 1013904223u;
    x.push_back((static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 4.0f);
  }
  return x;
}

// Distance from the exact product of dequantised weights and unrounded activations, as a part of the vectors' lengths:
// small for every type, and over all types below that of ggml's own products of the same rows.
TEST(GoldenOps, ProductsAreCloserToExactThanGgmls) {
  const Activations x = quantized(golden_activations(), 512);
  std::ifstream file(TIERPACK_SOURCE_DIR "/tests/data/golden_ops/ggml_dots.txt");
  double ours = 0;
  double ggmls = 0;
  int types = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, partner, elements, bits;
    words >> name >> partner >> elements >> bits;
    const std::optional<DType> type = name == "#" ? std::nullopt : dtype_from_name(name);
    if (!type || !traits(*type).quantised) continue;
    ++types;
    const std::vector<std::byte> row = golden_row(name);
    ASSERT_EQ(row.size(), row_bytes(*type, 512)) << name;
    std::vector<float> w(512);
    dequantize_row(*type, row.data(), w.data(), 512);
    double exact = 0, weights = 0, activations = 0;
    for (int e = 0; e < 512; ++e) {
      exact += double{w[e]} * x.x[e];
      weights += double{w[e]} * w[e];
      activations += double{x.x[e]} * x.x[e];
    }
    const double length = std::sqrt(weights * activations);
    const float ggml = std::bit_cast<float>(static_cast<uint32_t>(std::stoul(bits, nullptr, 16)));
    for (const KernelTable* table : available()) {
      float y = 0;
      table->matmul({*type, row.data(), 1, 512}, 0, 1, x.view(), &y, 1);
      EXPECT_LT(std::abs(y - exact) / length, 4e-4) << table->name << " " << name;
      if (table == &reference()) ours += std::abs(y - exact) / length;
    }
    ggmls += std::abs(ggml - exact) / length;
  }
  EXPECT_EQ(types, 25);
  EXPECT_LT(ours, ggmls);
}

}  // namespace
}  // namespace tierpack::kernels
