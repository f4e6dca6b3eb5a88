// Inputs and comparison for tests of the GPU's operations: ordinary numbers, and ones with zeros of both signs, subnormals, huge
// values, infinities and NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tierpack::kernels::cuda {

inline std::vector<float> normal_values(size_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// One value in `rarity` is a finite extreme.
inline std::vector<float> extreme_values(size_t count, uint32_t seed, uint32_t rarity = 8) {
  constexpr float kSpecial[] = {0.0f, -0.0f, 1e-40f, -1e-45f, 3e38f, -3e38f, -88.5f, 104.0f, 1e-20f, -1e19f};
  std::mt19937 random(seed);
  std::vector<float> values = normal_values(count, seed + 1, 3.0f);
  for (float& value : values) {
    if (random() % rarity == 0) value = kSpecial[random() % std::size(kSpecial)];
  }
  return values;
}

// As extreme_values, with infinities and NaN at the places that are multiples of `every`.
inline std::vector<float> broken_values(size_t count, uint32_t seed, size_t every) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kBroken[] = {kInfinity, std::numeric_limits<float>::quiet_NaN(), -kInfinity};
  std::vector<float> values = extreme_values(count, seed);
  for (size_t i = every; i < count; i += every) values[i] = kBroken[i / every % std::size(kBroken)];
  return values;
}

inline std::vector<float> subnormal_values(size_t count, uint32_t seed) {
  std::vector<float> values = normal_values(count, seed);
  for (float& value : values) value *= 1e-39f;
  return values;
}

// The same bits; one NaN is as good as another.
inline testing::AssertionResult same_values(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return testing::AssertionFailure() << found.size() << " values instead of " << expected.size();
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    return testing::AssertionFailure() << "element " << i << " is " << found[i] << " instead of " << expected[i];
  }
  return testing::AssertionSuccess();
}

}  // namespace tierpack::kernels::cuda
