// Rotation, convolution, delta rule and attention: every table against the reference bit for bit, the reference against
// double precision.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/dequant.h"
#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

TEST(RopeTables, AreTheRoundedMathematicalValues) {
  for (const auto& [base, dim] : {std::pair{1e4f, 128u}, {1e6f, 128u}, {1e7f, 64u}, {150000.0f, 64u}, {1.0f, 2u}}) {
    std::vector<float> inv_freq(dim / 2);
    rope_inv_freq(base, dim, inv_freq.data());
    EXPECT_EQ(inv_freq[0], 1.0f);
    for (uint32_t i = 0; i < dim / 2; ++i) {
      EXPECT_EQ(inv_freq[i], static_cast<float>(std::pow(double{base}, -2.0 * i / dim))) << base << " " << i;
    }
    std::vector<float> cos(dim / 2), sin(dim / 2);
    for (const uint32_t position : {0u, 1u, 2u, 3u, 1000u, 70000u, 262143u, 1000000u, 4294967295u}) {
      rope_row(inv_freq.data(), dim / 2, position, cos.data(), sin.data());
      for (uint32_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<float>(position) * inv_freq[i];
        EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle))) << position << " " << i;
        EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle))) << position << " " << i;
      }
    }
  }
}

TEST(RopeTables, ImpossibleParametersAreRefused) {
  float out[8];
  EXPECT_THROW(rope_inv_freq(0.0f, 8, out), Error);
  EXPECT_THROW(rope_inv_freq(1e4f, 7, out), Error);
  EXPECT_THROW(rope_inv_freq(std::nanf(""), 8, out), Error);
}

TEST(Rope, EveryTableEqualsTheReference) {
  Random random = seeded(41);
  for (const uint32_t pairs : {1u, 3u, 8u, 13u, 32u, 64u, 128u}) {
    const std::vector<float> head = uniform_vector(random, 2 * pairs + 5);
    const std::vector<float> cos = uniform_vector(random, pairs);
    const std::vector<float> sin = uniform_vector(random, pairs);
    std::vector<float> expected = head;
    reference().rope(expected.data(), cos.data(), sin.data(), pairs);
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(expected[2 * pairs + i], head[2 * pairs + i]);
    for (const KernelTable* table : available()) {
      std::vector<float> found = head;
      table->rope(found.data(), cos.data(), sin.data(), pairs);
      EXPECT_TRUE(same_bits(expected, found)) << table->name << " pairs " << pairs;
    }
  }
}

TEST(Conv, EveryTableEqualsTheReference) {
  Random random = seeded(42);
  for (const uint32_t kernel : {1u, 2u, 3u, 4u, 5u, 7u}) {
    for (const uint32_t n : {1u, 7u, 8u, 32u, 45u, 640u}) {
      std::vector<std::vector<float>> inputs;
      std::vector<const float*> taps;
      for (uint32_t k = 0; k < kernel; ++k) inputs.push_back(uniform_vector(random, n));
      for (const std::vector<float>& input : inputs) taps.push_back(input.data());
      const std::vector<float> weight = uniform_vector(random, size_t{n} * kernel);
      std::vector<float> expected(n);
      reference().conv(taps.data(), weight.data(), kernel, n, expected.data());
      for (uint32_t c = 0; c < n; ++c) {
        double exact = 0;
        for (uint32_t k = 0; k < kernel; ++k) exact += double{weight[c * kernel + k]} * inputs[k][c];
        EXPECT_NEAR(expected[c], exact, 1e-6);
      }
      for (const KernelTable* table : available()) {
        std::vector<float> found(n);
        table->conv(taps.data(), weight.data(), kernel, n, found.data());
        EXPECT_TRUE(same_bits(expected, found)) << table->name << " kernel " << kernel << " n " << n;
      }
    }
  }
}

TEST(DeltaRule, EveryTableEqualsTheReferenceOverManyTokens) {
  Random random = seeded(43);
  for (const auto& [dk, dv] : {std::pair{16u, 16u}, {32u, 8u}, {64u, 64u}, {128u, 128u}, {100u, 5u}, {1u, 1u}}) {
    const std::vector<float> start = uniform_vector(random, size_t{dk} * dv);
    std::vector<double> exact(start.begin(), start.end());
    std::vector<float> expected_state = start;
    std::vector<std::vector<float>> states(available().size(), start);
    for (int token = 0; token < 12; ++token) {
      const std::vector<float> q = uniform_vector(random, dk, -0.3f, 0.3f);
      const std::vector<float> k = uniform_vector(random, dk, -0.3f, 0.3f);
      const std::vector<float> v = token == 5 ? adversarial_vector(random, dv) : uniform_vector(random, dv);
      const float decay = uniform(random, 0.0f, 1.0f);
      const float beta = token == 5 ? 0.0f : uniform(random, 0.0f, 1.0f);
      std::vector<float> expected(dv);
      reference().delta_rule(expected_state.data(), q.data(), k.data(), v.data(), decay, beta, dk, dv, expected.data());
      for (uint32_t j = 0; j < dv; ++j) {
        double* row = exact.data() + size_t{j} * dk;
        double prediction = 0;
        for (uint32_t i = 0; i < dk; ++i) prediction += (row[i] *= decay) * k[i];
        double out = 0;
        for (uint32_t i = 0; i < dk; ++i) out += (row[i] += beta * (v[j] - prediction) * k[i]) * q[i];
        EXPECT_NEAR(expected[j], out, 1e-5);
      }
      for (size_t i = 0; i < states.size(); ++i) {
        const KernelTable* table = available()[i];
        std::vector<float> found(dv);
        table->delta_rule(states[i].data(), q.data(), k.data(), v.data(), decay, beta, dk, dv, found.data());
        EXPECT_TRUE(same_bits(expected, found)) << table->name << " dk " << dk << " dv " << dv << " token " << token;
        EXPECT_TRUE(same_bits(expected_state, states[i])) << table->name << " dk " << dk << " dv " << dv << " token " << token;
      }
    }
  }
}

struct Cache {
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  KvType type;
  const void* data() const { return type == KvType::kF32 ? static_cast<const void*>(floats.data()) : halves.data(); }
};

Cache make_cache(Random& random, KvType type, size_t n, float range) {
  Cache cache{uniform_vector(random, n, -range, range), std::vector<uint16_t>(n), type};
  reference().store_kv(cache.floats.data(), static_cast<uint32_t>(n), KvType::kF16, cache.halves.data());
  if (type == KvType::kF16) {
    for (size_t i = 0; i < n; ++i) cache.floats[i] = f16_to_f32(cache.halves[i]);
  }
  return cache;
}

TEST(Attention, EveryTableEqualsTheReference) {
  Random random = seeded(44);
  for (const KvType type : {KvType::kF32, KvType::kF16}) {
    for (const uint32_t head_dim : {1u, 16u, 40u, 64u, 128u, 256u}) {
      for (const uint32_t count : {0u, 1u, 2u, 31u, 63u, 64u, 65u, 128u, 300u}) {
        for (const bool sparse : {false, true}) {
          const size_t stride = 2 * head_dim + 3;
          const uint32_t positions = sparse ? 2 * count + 1 : count + 1;
          const Cache keys = make_cache(random, type, stride * positions, 2.0f);
          const Cache values = make_cache(random, type, stride * positions, 1.0f);
          const std::vector<float> q = uniform_vector(random, head_dim, -2.0f, 2.0f);
          std::vector<uint32_t> visible;
          for (uint32_t j = 0; j < count; ++j) visible.push_back(2 * j + static_cast<uint32_t>(random() % 2));
          const uint32_t* list = sparse ? visible.data() : nullptr;
          const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
          std::vector<float> expected(head_dim, 7.0f);
          reference().attention(q.data(), keys.data(), values.data(), type, stride, head_dim, list, count, scale, expected.data());
          for (const KernelTable* table : available()) {
            std::vector<float> found(head_dim, 7.0f);
            table->attention(q.data(), keys.data(), values.data(), type, stride, head_dim, list, count, scale, found.data());
            EXPECT_TRUE(same_bits(expected, found)) << table->name << " head_dim " << head_dim << " count " << count;
          }
          // Double precision, straight from the definition.
          std::vector<double> weights;
          double largest = -1e300;
          for (uint32_t j = 0; j < count; ++j) {
            double score = 0;
            for (uint32_t d = 0; d < head_dim; ++d) score += double{q[d]} * keys.floats[(list ? list[j] : j) * stride + d];
            weights.push_back(score * scale);
            largest = std::max(largest, weights.back());
          }
          double total = 0;
          for (double& weight : weights) total += weight = std::exp(weight - largest);
          for (uint32_t d = 0; d < head_dim; ++d) {
            double exact = 0;
            for (uint32_t j = 0; j < count; ++j) exact += weights[j] / total * values.floats[(list ? list[j] : j) * stride + d];
            EXPECT_NEAR(expected[d], count ? exact : 0.0, 2e-5);
          }
        }
      }
    }
  }
}

TEST(Attention, AnAllVisibleListEqualsNoList) {
  Random random = seeded(45);
  const uint32_t count = 150;
  const uint32_t head_dim = 64;
  const Cache keys = make_cache(random, KvType::kF16, size_t{count} * head_dim, 3.0f);
  const Cache values = make_cache(random, KvType::kF16, size_t{count} * head_dim, 1.0f);
  const std::vector<float> q = uniform_vector(random, head_dim);
  std::vector<uint32_t> visible(count);
  for (uint32_t j = 0; j < count; ++j) visible[j] = j;
  for (const KernelTable* table : available()) {
    std::vector<float> with(head_dim), without(head_dim);
    table->attention(q.data(), keys.data(), values.data(), KvType::kF16, head_dim, head_dim, visible.data(), count, 0.125f, with.data());
    table->attention(q.data(), keys.data(), values.data(), KvType::kF16, head_dim, head_dim, nullptr, count, 0.125f, without.data());
    EXPECT_TRUE(same_bits(with, without)) << table->name;
  }
}

// Scores so far apart that whole chunks vanish, in both orders.
TEST(Attention, ChunksOfVeryDifferentScoresMerge) {
  const uint32_t head_dim = 8;
  const uint32_t count = 192;
  for (const bool rising : {false, true}) {
    std::vector<float> keys(size_t{count} * head_dim, 0.0f), values(size_t{count} * head_dim, 1.0f), q(head_dim, 0.0f);
    q[0] = 1.0f;
    for (uint32_t j = 0; j < count; ++j) keys[size_t{j} * head_dim] = (rising ? 1.0f : -1.0f) * 500.0f * static_cast<float>(j / 64);
    for (uint32_t j = 0; j < count; ++j) values[size_t{j} * head_dim] = static_cast<float>(j / 64);
    for (const KernelTable* table : available()) {
      std::vector<float> out(head_dim);
      table->attention(q.data(), keys.data(), values.data(), KvType::kF32, head_dim, head_dim, nullptr, count, 1.0f, out.data());
      EXPECT_EQ(out[0], rising ? 2.0f : 0.0f) << table->name;
      EXPECT_EQ(out[1], 1.0f) << table->name;
    }
  }
}

TEST(StoreKv, RoundsToNearestEvenHalves) {
  Random random = seeded(46);
  for (const uint32_t n : {1u, 8u, 13u, 256u}) {
    std::vector<float> x = adversarial_vector(random, n);
    x[0] = 65520.0f;  // the first value that rounds to infinity
    for (const KernelTable* table : available()) {
      std::vector<uint16_t> halves(n + 1, 0x1234);
      table->store_kv(x.data(), n, KvType::kF16, halves.data());
      for (uint32_t i = 0; i < n; ++i) EXPECT_EQ(halves[i], f32_to_f16(x[i])) << table->name << " " << x[i];
      EXPECT_EQ(halves[n], 0x1234);
      EXPECT_EQ(halves[0], 0x7C00);
      std::vector<float> floats(n);
      table->store_kv(x.data(), n, KvType::kF32, floats.data());
      EXPECT_TRUE(same_bits(x, floats)) << table->name;
    }
  }
}

TEST(Dispatch, TablesAreFoundByName) {
  EXPECT_STREQ(available().front()->name, "reference");
  EXPECT_EQ(&best(), available().back());
  for (const KernelTable* table : available()) EXPECT_EQ(&by_name(table->name), table);
  try {
    by_name("avx9000");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("reference"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tierpack::kernels
