// Rotation, convolution, delta rule and attention: every table against the reference bit for bit, the reference against
// double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

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

// Keys or values of two KV heads and what a cache of `type` gives back for them.
struct Cache {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // (positions, 2 heads, head_dim)
};

Cache make_cache(KvType type, std::vector<float> values, uint32_t head_dim) {
  const size_t rows = values.size() / head_dim;
  const size_t row_bytes = kv_row_bytes(type, head_dim);
  Cache cache{std::vector<std::byte>(rows * row_bytes), std::move(values)};
  for (size_t r = 0; r < rows; ++r) {
    std::byte* const row = cache.bytes.data() + r * row_bytes;
    float* const x = cache.values.data() + r * head_dim;
    reference().store_kv(x, head_dim, type, row);
    for (uint32_t d = 0; d < head_dim; ++d) {
      if (type == KvType::kF16) x[d] = f16_to_f32(reinterpret_cast<const uint16_t*>(row)[d]);
      if (type != KvType::kQ8) continue;
      const float scale = reinterpret_cast<const float*>(row + head_dim)[d / 32];
      x[d] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[d]) * scale;
    }
  }
  return cache;
}

std::vector<KvType> kv_types(uint32_t head_dim) {
  std::vector<KvType> types = {KvType::kF32, KvType::kF16};
  if (head_dim % 32 == 0) types.push_back(KvType::kQ8);
  return types;
}

// Attention of queries that see `counts` tokens of head 1 of the cache.
std::vector<std::vector<float>> attend(const KernelTable& table, const std::vector<std::vector<float>>& q,
                                       const std::vector<uint32_t>& counts, KvType type, const Cache& keys, const Cache& values,
                                       const uint32_t* visible, float scale) {
  const auto head_dim = static_cast<uint32_t>(q[0].size());
  const size_t row_bytes = kv_row_bytes(type, head_dim);
  std::vector<std::vector<float>> out(q.size(), std::vector<float>(head_dim + 1, 7.0f));
  std::vector<AttentionQuery> queries;
  for (size_t i = 0; i < q.size(); ++i) queries.push_back({q[i].data(), out[i].data(), counts[i]});
  const KvView cache{type, keys.bytes.data() + row_bytes, values.bytes.data() + row_bytes, 2 * row_bytes, head_dim};
  table.attention(queries.data(), static_cast<uint32_t>(queries.size()), cache, visible, scale);
  for (std::vector<float>& one : out) {
    EXPECT_EQ(one.back(), 7.0f) << table.name << " wrote past a result";
    one.pop_back();
  }
  return out;
}

// Double precision, straight from the definition, over head 1.
std::vector<double> exact_attention(const std::vector<float>& q, uint32_t count, const Cache& keys, const Cache& values,
                                    const uint32_t* visible, float scale) {
  const size_t dim = q.size();
  const auto row = [&](const Cache& cache, uint32_t j) { return cache.values.data() + (size_t{visible ? visible[j] : j} * 2 + 1) * dim; };
  std::vector<double> weights;
  double largest = -1e300;
  for (uint32_t j = 0; j < count; ++j) {
    double score = 0;
    for (size_t d = 0; d < dim; ++d) score += double{q[d]} * row(keys, j)[d];
    weights.push_back(score * scale);
    largest = std::max(largest, weights.back());
  }
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  std::vector<double> out(dim);
  for (uint32_t j = 0; j < count; ++j) {
    for (size_t d = 0; d < dim; ++d) out[d] += weights[j] / total * row(values, j)[d];
  }
  return out;
}

TEST(Attention, EveryTableEqualsTheReference) {
  Random random = seeded(44);
  for (const uint32_t head_dim : {1u, 16u, 40u, 64u, 96u, 128u, 256u, 576u}) {
    for (const KvType type : kv_types(head_dim)) {
      for (const uint32_t count : {0u, 1u, 2u, 31u, 63u, 64u, 65u, 128u, 300u}) {
        for (const bool sparse : {false, true}) {
          const uint32_t positions = sparse ? 2 * count + 1 : count + 1;
          const Cache keys = make_cache(type, uniform_vector(random, size_t{2} * positions * head_dim, -2.0f, 2.0f), head_dim);
          const Cache values = make_cache(type, uniform_vector(random, size_t{2} * positions * head_dim), head_dim);
          std::vector<uint32_t> visible;
          for (uint32_t j = 0; j < count; ++j) visible.push_back(2 * j + static_cast<uint32_t>(random() % 2));
          const uint32_t* list = sparse ? visible.data() : nullptr;
          const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
          // Groups of every size, of which some queries see fewer tokens or none.
          const uint32_t n = 1 + random() % kAttentionQueries;
          std::vector<std::vector<float>> q;
          std::vector<uint32_t> counts;
          for (uint32_t i = 0; i < n; ++i) {
            q.push_back(uniform_vector(random, head_dim, -2.0f, 2.0f));
            counts.push_back(random() % 3 == 0 ? static_cast<uint32_t>(random() % (count + 1)) : count);
          }
          counts[random() % n] = count;
          const auto expected = attend(reference(), q, counts, type, keys, values, list, scale);
          for (const KernelTable* table : available()) {
            const auto found = attend(*table, q, counts, type, keys, values, list, scale);
            for (uint32_t i = 0; i < n; ++i) {
              EXPECT_TRUE(same_bits(expected[i], found[i])) << table->name << " head_dim " << head_dim << " count " << counts[i];
            }
          }
          const std::vector<double> exact = exact_attention(q[0], counts[0], keys, values, list, scale);
          for (uint32_t d = 0; d < head_dim; ++d) EXPECT_NEAR(expected[0][d], exact[d], 2e-5);
        }
      }
    }
  }
}

// The kinds of numbers that break kernels, in queries, keys and values; whole infinities too.
TEST(Attention, EveryTableEqualsTheReferenceOnHostileNumbers) {
  Random random = seeded(47);
  for (const uint32_t head_dim : {8u, 33u, 64u, 128u}) {
    for (const KvType type : kv_types(head_dim)) {
      for (int round = 0; round < 12; ++round) {
        const uint32_t count = 1 + random() % 200;
        const auto hostile = [&](size_t n) {
          std::vector<float> x = random() % 2 ? adversarial_vector(random, n) : uniform_vector(random, n, -1e-20f, 1e-20f);
          if (random() % 3 == 0) x[random() % n] = std::numeric_limits<float>::infinity();
          if (random() % 3 == 0) x[random() % n] = std::numeric_limits<float>::quiet_NaN();
          return x;
        };
        const Cache keys = make_cache(type, hostile(size_t{2} * count * head_dim), head_dim);
        const Cache values = make_cache(type, hostile(size_t{2} * count * head_dim), head_dim);
        std::vector<std::vector<float>> q;
        for (int i = 0; i < 7; ++i) q.push_back(i % 2 ? uniform_vector(random, head_dim) : adversarial_vector(random, head_dim));
        const std::vector<uint32_t> counts(q.size(), count);
        const auto expected = attend(reference(), q, counts, type, keys, values, nullptr, 0.125f);
        for (const KernelTable* table : available()) {
          const auto found = attend(*table, q, counts, type, keys, values, nullptr, 0.125f);
          for (size_t i = 0; i < q.size(); ++i) {
            EXPECT_TRUE(same_bits(expected[i], found[i])) << table->name << " head_dim " << head_dim << " round " << round;
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
  const Cache keys = make_cache(KvType::kF16, uniform_vector(random, size_t{2} * count * head_dim, -3.0f, 3.0f), head_dim);
  const Cache values = make_cache(KvType::kF16, uniform_vector(random, size_t{2} * count * head_dim), head_dim);
  const std::vector<std::vector<float>> q = {uniform_vector(random, head_dim)};
  std::vector<uint32_t> visible(count);
  for (uint32_t j = 0; j < count; ++j) visible[j] = j;
  for (const KernelTable* table : available()) {
    const auto with = attend(*table, q, {count}, KvType::kF16, keys, values, visible.data(), 0.125f);
    const auto without = attend(*table, q, {count}, KvType::kF16, keys, values, nullptr, 0.125f);
    EXPECT_TRUE(same_bits(with[0], without[0])) << table->name;
  }
}

// Scores so far apart that whole chunks vanish, in both orders.
TEST(Attention, ChunksOfVeryDifferentScoresMerge) {
  const uint32_t head_dim = 8;
  const uint32_t count = 192;
  for (const bool rising : {false, true}) {
    std::vector<float> keys(size_t{2} * count * head_dim, 0.0f), values(size_t{2} * count * head_dim, 1.0f), q(head_dim, 0.0f);
    q[0] = 1.0f;
    for (uint32_t j = 0; j < count; ++j) {
      keys[(size_t{2} * j + 1) * head_dim] = (rising ? 1.0f : -1.0f) * 500.0f * static_cast<float>(j / 64);
      values[(size_t{2} * j + 1) * head_dim] = static_cast<float>(j / 64);
    }
    const Cache key_cache = make_cache(KvType::kF32, keys, head_dim);
    const Cache value_cache = make_cache(KvType::kF32, values, head_dim);
    for (const KernelTable* table : available()) {
      const auto out = attend(*table, {q}, {count}, KvType::kF32, key_cache, value_cache, nullptr, 1.0f);
      EXPECT_EQ(out[0][0], rising ? 2.0f : 0.0f) << table->name;
      EXPECT_EQ(out[0][1], 1.0f) << table->name;
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

TEST(StoreKv, CodesAreThoseOfQuantisedActivations) {
  Random random = seeded(48);
  for (const uint32_t n : {32u, 64u, 256u, 1024u}) {
    for (int round = 0; round < 8; ++round) {
      std::vector<float> x = round % 2 ? adversarial_vector(random, n) : uniform_vector(random, n);
      if (round == 5) x[n / 2] = std::numeric_limits<float>::infinity();
      std::vector<int8_t> codes(n);
      std::vector<float> scales(n / 32);
      std::vector<int32_t> sums(n / 32);
      reference().quantize(x.data(), n, codes.data(), scales.data(), sums.data());
      for (const KernelTable* table : available()) {
        std::vector<std::byte> row(kv_row_bytes(KvType::kQ8, n) + 1, std::byte{0x5A});
        table->store_kv(x.data(), n, KvType::kQ8, row.data());
        EXPECT_EQ(std::memcmp(row.data(), codes.data(), n), 0) << table->name;
        std::vector<float> found(n / 32);
        std::memcpy(found.data(), row.data() + n, found.size() * sizeof(float));
        EXPECT_TRUE(same_bits(scales, found)) << table->name;
        EXPECT_EQ(row.back(), std::byte{0x5A});
      }
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
