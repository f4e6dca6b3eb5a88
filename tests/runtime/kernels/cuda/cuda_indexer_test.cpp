// The indexer of sparse attention, bit for bit against the steps of runtime/model/sparse_attention.cpp with the reference's operations.
#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> values_of(size_t count, uint32_t seed, uint32_t hostile = 0) {
  const float special[] = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1e-40f, -1e-40f, 3e38f, -3e38f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = hostile != 0 && random() % hostile == 0 ? special[random() % std::size(special)] : normal(random);
  return values;
}

TEST(CudaIndexer, Keys) {
  struct Shape {
    uint32_t blocks, ratio, dim, pairs;
  };
  for (const Shape& shape : {Shape{1, 1, 32, 16}, {5, 16, 128, 32}, {9, 4, 64, 0}, {6, 3, 80, 20}, {3, 64, 35, 17}}) {
    for (const uint32_t hostile : {0u, 200u}) {
      const auto& [blocks, ratio, dim, pairs] = shape;
      const std::vector<float> raw = values_of(size_t{blocks} * ratio * dim, dim, hostile), weight = values_of(dim, 2);
      const std::vector<float> cos = values_of(size_t{blocks} * pairs + 1, 3), sin = values_of(size_t{blocks} * pairs + 1, 4);
      std::vector<float> expected(size_t{blocks} * dim);
      const KernelTable& k = reference();
      for (uint32_t b = 0; b < blocks; ++b) {
        const float* const first = raw.data() + size_t{b} * ratio * dim;
        float* const key = expected.data() + size_t{b} * dim;
        std::copy_n(first, dim, key);
        for (uint32_t i = 1; i < ratio; ++i) k.add(key, first + size_t{i} * dim, dim, key);
        k.scale(key, 1.0f / static_cast<float>(ratio), dim, key);
        k.rms_norm(key, weight.data(), 1e-6f, dim, key);
        k.rope(key, cos.data() + size_t{b} * pairs, sin.data() + size_t{b} * pairs, pairs);
      }
      Stream stream;
      const OnDevice<float> device_raw(stream, raw), device_weight(stream, weight), device_cos(stream, cos), device_sin(stream, sin);
      const OnDevice<float> keys(stream, expected.size());
      index_keys(stream, device_raw.data(), blocks, ratio, dim, device_weight.data(), 1e-6f, device_cos.data(), device_sin.data(), pairs,
                 keys.data());
      ASSERT_TRUE(same_values(keys.get(), expected));
    }
  }
}

TEST(CudaIndexer, Scores) {
  struct Shape {
    uint32_t queries, heads, dim, blocks;
  };
  for (const Shape& shape : {Shape{1, 4, 128, 1}, {1, 1, 32, 7}, {3, 5, 64, 65}, {2, 16, 128, 200}, {2, 3, 35, 9}, {1, 64, 32, 8}}) {
    for (const uint32_t hostile : {0u, 100u}) {
      const auto& [queries, heads, dim, blocks] = shape;
      const std::vector<float> q = values_of(size_t{queries} * heads * dim, dim, hostile);
      const std::vector<float> keys = values_of(size_t{blocks} * dim, 2, hostile);
      std::vector<float> expected;
      for (uint32_t query = 0; query < queries; ++query) {
        for (uint32_t b = 0; b < blocks; ++b) {
          float score = 0;
          for (uint32_t h = 0; h < heads; ++h) {
            score += std::max(reference().dot(keys.data() + size_t{b} * dim, q.data() + (size_t{query} * heads + h) * dim, dim), 0.0f);
          }
          expected.push_back(score);
        }
      }
      Stream stream;
      const OnDevice<float> device_q(stream, q), device_keys(stream, keys), scores(stream, expected.size());
      index_scores(stream, device_q.data(), queries, heads, dim, device_keys.data(), blocks, scores.data());
      ASSERT_TRUE(same_values(scores.get(), expected));
    }
  }
}

void check_selection(uint32_t queries, uint32_t first, uint32_t ratio, uint32_t keep, const std::vector<float>& scores, size_t stride) {
  const size_t visible_stride = size_t{keep} * ratio + ratio;
  std::vector<uint32_t> expected(queries * visible_stride), expected_count;
  for (uint32_t query = 0; query < queries; ++query) {
    const uint32_t position = first + query, seen = (position + 1) / ratio;
    std::vector<uint32_t> picked(keep);
    kernels::top_k(scores.data() + query * stride, seen, keep, picked.data());
    std::sort(picked.begin(), picked.end());
    uint32_t* const visible = expected.data() + query * visible_stride;
    uint32_t n = 0;
    for (const uint32_t block : picked) {
      for (uint32_t i = 0; i < ratio; ++i) visible[n++] = block * ratio + i;
    }
    for (uint32_t p = seen * ratio; p <= position; ++p) visible[n++] = p;
    expected_count.push_back(n);
  }
  Stream stream;
  const OnDevice<float> device_scores(stream, scores);
  const OnDevice<uint32_t> visible(stream, expected.size()), count(stream, queries);
  select_blocks(stream, device_scores.data(), stride, queries, first, ratio, keep, visible.data(), visible_stride, count.data());
  ASSERT_EQ(count.get(), expected_count);
  ASSERT_EQ(visible.get(), expected) << queries << " queries from " << first << ", ratio " << ratio << ", keep " << keep;
}

TEST(CudaIndexer, Selection) {
  const auto few = [](size_t count) {  // many ties, zeros of both signs
    std::vector<float> scores(count);
    std::mt19937 random(5);
    for (float& score : scores) score = static_cast<float>(random() % 4) * (random() % 2 == 0 ? 0.5f : -0.0f);
    return scores;
  };
  for (const uint32_t blocks : {1u, 40u, 300u, 1500u}) {
    for (const uint32_t ratio : {1u, 4u, 16u}) {
      for (const uint32_t keep : {1u, 7u, 33u, 300u}) {
        if (keep > blocks) continue;
        const uint32_t queries = 3, first = blocks * ratio - 1 + ratio / 2;
        const size_t stride = blocks + 4;
        check_selection(queries, first, ratio, keep, values_of(queries * stride, blocks), stride);
        check_selection(queries, first, ratio, keep, few(queries * stride), stride);
        check_selection(queries, first, ratio, keep, values_of(queries * stride, blocks, 2), stride);
      }
    }
  }
  check_selection(2, 7, 4, 0, values_of(8, 1), 4);
  check_selection(1, 65535, 1, 512, few(65536), 65536);
}

}  // namespace
}  // namespace tierpack::kernels::cuda
