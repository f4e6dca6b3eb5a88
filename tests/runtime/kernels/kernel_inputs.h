// Inputs for kernel tests: seeded numbers, weight rows with sane or hostile scales, activations in both forms, and
// comparison by bits.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

using Random = std::mt19937_64;

// The generator of one test. Runs are the same each time, but with --gtest_shuffle, where --gtest_random_seed and
// --gtest_repeat explore other inputs.
Random seeded(uint64_t test);

float uniform(Random& random, float low, float high);
std::vector<float> uniform_vector(Random& random, size_t n, float low = -1.0f, float high = 1.0f);

// The kinds of numbers that break kernels: zeros of both signs, subnormals, huge values, ones that saturate a block.
std::vector<float> adversarial_vector(Random& random, size_t n);

enum class Weights {
  kSane,      // random codes, scales around 2^-6
  kExtreme,   // all codes at an end of their range, scales from subnormal to the largest
  kRawBytes,  // any bytes: infinite and NaN scales happen
};

// rows x cols of `type`; cols is a multiple of the type's block.
std::vector<std::byte> random_weights(Random& random, DType type, uint32_t rows, uint32_t cols, Weights kind);

// T vectors with their quantised form, which exists when n % 32 == 0.
struct Activations {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  uint32_t tokens = 0;
  uint32_t n = 0;
  ActivationView view() const { return {tokens, n, x.data(), q.data(), scale.data(), sum.data()}; }
  ActivationView one(uint32_t token) const;  // a single token of them
};
Activations quantized(std::vector<float> x, uint32_t n);

// Equal as bits; all NaNs are one value.
testing::AssertionResult same_bits(const std::vector<float>& expected, const std::vector<float>& found);

// The tables of this CPU, and the AVX-VNNI one in the encoding of AVX-512 where the CPU has only that. That twin differs from avx2 in its
// products alone.
std::vector<const KernelTable*> tables_with_twin();

// Types whose row a matmul can read.
std::vector<DType> quantised_types();
std::vector<DType> plain_types();

// Number lists of tests/data/golden_ops/NAME, `case` by `case` (files without cases are one).
struct GoldenCase {
  std::string name;
  std::vector<std::pair<std::string, double>> parameters;
  std::vector<std::pair<std::string, std::vector<float>>> lists;
  double parameter(const std::string& key) const;
  const std::vector<float>& list(const std::string& key) const;
};
std::vector<GoldenCase> golden_ops(const std::string& name);

}  // namespace tierpack::kernels
