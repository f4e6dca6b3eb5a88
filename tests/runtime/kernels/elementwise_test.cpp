// Elementwise functions, norms and softmax: every table against the reference bit for bit, the reference against the
// mathematical library in double precision, and special values.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const uint32_t kLengths[] = {1, 2, 7, 8, 9, 15, 31, 32, 33, 64, 100, 128, 640, 2563};

using Unary = void (*)(const float*, uint32_t, float*);

float one(Unary function, float x) {
  float y = 0;
  function(&x, 1, &y);
  return y;
}

// Distance in units of the last place of the correctly rounded result.
double ulps(float found, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(found)) return rounded == found ? 0 : 1e9;
  const double ulp = std::max(double{std::nextafter(std::abs(rounded), kInfinity)} - std::abs(rounded), 0x1p-149);
  return std::abs(found - exact) / ulp;
}

// Every 997th float of a range of bit patterns, both signs.
void sweep(float low, float high, const std::function<void(float)>& visit) {
  for (uint32_t bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high); bits += 997) {
    visit(std::bit_cast<float>(bits));
    visit(-std::bit_cast<float>(bits));
  }
}

TEST(Exp, IsWithinOneUlpOverTheFullRange) {
  double worst = 0;
  sweep(0.0f, 110.0f, [&](float x) { worst = std::max(worst, ulps(one(reference().exp, x), std::exp(double{x}))); });
  EXPECT_LE(worst, 1.0);
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST(Exp, SpecialValues) {
  const Unary exp_of = reference().exp;
  EXPECT_EQ(one(exp_of, 0.0f), 1.0f);
  EXPECT_EQ(one(exp_of, -0.0f), 1.0f);
  EXPECT_EQ(one(exp_of, kInfinity), kInfinity);
  EXPECT_EQ(one(exp_of, -kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(one(exp_of, kNaN)));
  EXPECT_EQ(one(exp_of, 88.73f), kInfinity);
  EXPECT_LT(one(exp_of, 88.72f), kInfinity);
  EXPECT_EQ(one(exp_of, std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(one(exp_of, -std::numeric_limits<float>::max()), 0.0f);
  EXPECT_EQ(one(exp_of, -103.0f), 0x1p-149f);  // e^-103 = 1.4 * 2^-149
  EXPECT_EQ(one(exp_of, -104.0f), 0.0f);
  EXPECT_GT(one(exp_of, -100.0f), 0.0f);       // gradual underflow
}

TEST(Sigmoid, IsWithinTwoUlps) {
  double worst = 0;
  sweep(0x1p-30f, 85.0f, [&](float x) { worst = std::max(worst, ulps(one(reference().sigmoid, x), 1 / (1 + std::exp(-double{x})))); });
  EXPECT_LE(worst, 2.5);
  EXPECT_EQ(one(reference().sigmoid, kInfinity), 1.0f);
  EXPECT_EQ(one(reference().sigmoid, -kInfinity), 0.0f);
  EXPECT_EQ(one(reference().sigmoid, 0.0f), 0.5f);
  EXPECT_TRUE(std::isnan(one(reference().sigmoid, kNaN)));
}

TEST(Silu, IsWithinThreeUlps) {
  double worst = 0;
  sweep(0x1p-30f, 80.0f, [&](float x) { worst = std::max(worst, ulps(one(reference().silu, x), x / (1 + std::exp(-double{x})))); });
  EXPECT_LE(worst, 3.0);
  EXPECT_EQ(one(reference().silu, 0.0f), 0.0f);
  EXPECT_EQ(one(reference().silu, 100.0f), 100.0f);
  EXPECT_EQ(one(reference().silu, -200.0f), -0.0f);
  EXPECT_EQ(one(reference().silu, kInfinity), kInfinity);
}

TEST(Softplus, IsWithinTwoUlps) {
  double worst = 0;
  sweep(0x1p-30f, 85.0f, [&](float x) { worst = std::max(worst, ulps(one(reference().softplus, x), std::log1p(std::exp(double{x})))); });
  EXPECT_LE(worst, 2.5);
  EXPECT_EQ(one(reference().softplus, 20.5f), 20.5f);
  EXPECT_EQ(one(reference().softplus, kInfinity), kInfinity);
  EXPECT_EQ(one(reference().softplus, -kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(one(reference().softplus, kNaN)));
}

std::vector<float> special_values() {
  return {0.0f, -0.0f, 1.0f, -1.0f, kInfinity, -kInfinity, kNaN, 88.72f, 88.73f, -87.3f, -103.9f, -104.0f, 20.0f,
          std::nextafter(20.0f, 30.0f), 0x1p-149f, -0x1p-149f, 3e38f, -3e38f};
}

std::vector<float> inputs(Random& random, uint32_t n) {
  switch (random() % 4) {
    case 0: return adversarial_vector(random, n);
    case 1: return uniform_vector(random, n, -110.0f, 100.0f);
    case 2: {
      std::vector<float> x = uniform_vector(random, n, -10.0f, 10.0f);
      for (const float special : special_values()) x[random() % n] = special;
      return x;
    }
    default: return uniform_vector(random, n, -4.0f, 4.0f);
  }
}

TEST(Elementwise, EveryTableEqualsTheReference) {
  Random random = seeded(31);
  const std::pair<const char*, Unary KernelTable::*> unary[] = {{"silu", &KernelTable::silu}, {"sigmoid", &KernelTable::sigmoid},
      {"softplus", &KernelTable::softplus}, {"exp", &KernelTable::exp}, {"softmax", &KernelTable::softmax}};
  using Binary = void (*)(const float*, const float*, uint32_t, float*);
  const std::pair<const char*, Binary KernelTable::*> binary[] = {{"silu_mul", &KernelTable::silu_mul},
      {"sigmoid_mul", &KernelTable::sigmoid_mul}, {"mul", &KernelTable::mul}, {"add", &KernelTable::add}};
  for (const KernelTable* table : available()) {
    for (const uint32_t n : kLengths) {
      for (int round = 0; round < 8; ++round) {
        const std::vector<float> x = inputs(random, n);
        const std::vector<float> y = inputs(random, n);
        for (const auto& [name, function] : unary) {
          std::vector<float> expected(n), found(n), in_place = x;
          (reference().*function)(x.data(), n, expected.data());
          (table->*function)(x.data(), n, found.data());
          (table->*function)(in_place.data(), n, in_place.data());
          EXPECT_TRUE(same_bits(expected, found)) << table->name << " " << name << " n " << n;
          EXPECT_TRUE(same_bits(expected, in_place)) << table->name << " " << name << " in place, n " << n;
        }
        for (const auto& [name, function] : binary) {
          std::vector<float> expected(n), found(n), in_place = y;
          (reference().*function)(x.data(), y.data(), n, expected.data());
          (table->*function)(x.data(), y.data(), n, found.data());
          (table->*function)(x.data(), in_place.data(), n, in_place.data());
          EXPECT_TRUE(same_bits(expected, found)) << table->name << " " << name << " n " << n;
          EXPECT_TRUE(same_bits(expected, in_place)) << table->name << " " << name << " in place, n " << n;
        }
        const float factor = uniform(random, -3.0f, 3.0f);
        std::vector<float> expected(n), found(n);
        reference().scale(x.data(), factor, n, expected.data());
        table->scale(x.data(), factor, n, found.data());
        EXPECT_TRUE(same_bits(expected, found)) << table->name << " scale n " << n;
        expected = found = y;
        reference().add_scaled(x.data(), factor, n, expected.data());
        table->add_scaled(x.data(), factor, n, found.data());
        EXPECT_TRUE(same_bits(expected, found)) << table->name << " add_scaled n " << n;
        for (const float* weight : {static_cast<const float*>(nullptr), y.data()}) {
          reference().rms_norm(x.data(), weight, 1e-6f, n, expected.data());
          table->rms_norm(x.data(), weight, 1e-6f, n, found.data());
          EXPECT_TRUE(same_bits(expected, found)) << table->name << " rms_norm n " << n;
        }
        reference().l2_norm(x.data(), 1e-6f, factor, n, expected.data());
        table->l2_norm(x.data(), 1e-6f, factor, n, found.data());
        EXPECT_TRUE(same_bits(expected, found)) << table->name << " l2_norm n " << n;
      }
    }
  }
}

TEST(Norms, AreCloseToDoublePrecision) {
  Random random = seeded(32);
  for (const uint32_t n : kLengths) {
    const std::vector<float> x = uniform_vector(random, n, -3.0f, 3.0f);
    const std::vector<float> weight = uniform_vector(random, n, 0.5f, 2.0f);
    double square = 0;
    for (const float v : x) square += double{v} * v;
    std::vector<float> rms(n), l2(n);
    reference().rms_norm(x.data(), weight.data(), 1e-6f, n, rms.data());
    reference().l2_norm(x.data(), 1e-6f, 0.25f, n, l2.data());
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(rms[i], x[i] / std::sqrt(square / n + 1e-6) * weight[i], 1e-6);
      EXPECT_NEAR(l2[i], x[i] / std::sqrt(square + 1e-6) * 0.25, 1e-6);
    }
  }
}

TEST(Softmax, IsADistribution) {
  Random random = seeded(33);
  for (const uint32_t n : kLengths) {
    const std::vector<float> x = uniform_vector(random, n, -20.0f, 20.0f);
    std::vector<float> p(n);
    reference().softmax(x.data(), n, p.data());
    double total = 0;
    for (const float v : x) total += std::exp(double{v});
    double sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const double exact = std::exp(double{x[i]}) / total;
      EXPECT_NEAR(p[i], exact, 3e-7 * exact + 1e-12);
      sum += p[i];
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST(Softmax, HugeAndMaskedScores) {
  const std::vector<float> x = {1e30f, 1e30f, -1e30f, -kInfinity};
  std::vector<float> p(4);
  reference().softmax(x.data(), 4, p.data());
  EXPECT_TRUE(same_bits({0.5f, 0.5f, 0.0f, 0.0f}, p));
}

TEST(TopK, OrdersByValueThenIndex) {
  const std::vector<float> values = {1.0f, 3.0f, kNaN, 3.0f, -1.0f, 2.0f, -kInfinity, 0.0f, -0.0f};
  std::vector<uint32_t> all(values.size());
  top_k(values.data(), 9, 9, all.data());
  EXPECT_EQ(all, (std::vector<uint32_t>{1, 3, 5, 0, 7, 8, 4, 6, 2}));
  for (uint32_t k = 0; k <= 9; ++k) {
    std::vector<uint32_t> some(k);
    top_k(values.data(), 9, k, some.data());
    EXPECT_EQ(some, std::vector<uint32_t>(all.begin(), all.begin() + k));
  }
}

TEST(TopK, EqualsASortOnManyTies) {
  Random random = seeded(34);
  for (int round = 0; round < 200; ++round) {
    const uint32_t n = 1 + random() % 600;
    const uint32_t k = random() % (n + 1);
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(random() % 20);
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
    order.resize(k);
    std::vector<uint32_t> found(k);
    top_k(values.data(), n, k, found.data());
    EXPECT_EQ(found, order);
  }
}

}  // namespace
}  // namespace tierpack::kernels
