#include "tests/runtime/kernels/kernel_inputs.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "formats/dequant.h"
#include "formats/dtype_blocks.h"
#include "runtime/kernels/avx2.h"

namespace tierpack::kernels {

const KernelTable& avx_vnni_twin();

namespace {

// Byte positions of the binary16 scales in a packed block.
std::vector<size_t> half_scales(DType type) {
  switch (type) {
    case DType::kQ4_0: return {offsetof(BlockQ4_0, d)};
    case DType::kQ4_1: return {offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)};
    case DType::kQ5_0: return {offsetof(BlockQ5_0, d)};
    case DType::kQ5_1: return {offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)};
    case DType::kQ8_0: return {offsetof(BlockQ8_0, d)};
    case DType::kQ8_1: return {offsetof(BlockQ8_1, d), offsetof(BlockQ8_1, s)};
    case DType::kQ2_K: return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
    case DType::kQ3_K: return {offsetof(BlockQ3_K, d)};
    case DType::kQ4_K: return {offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)};
    case DType::kQ5_K: return {offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin)};
    case DType::kQ6_K: return {offsetof(BlockQ6_K, d)};
    case DType::kIQ2_XXS: return {offsetof(BlockIQ2_XXS, d)};
    case DType::kIQ2_XS: return {offsetof(BlockIQ2_XS, d)};
    case DType::kIQ2_S: return {offsetof(BlockIQ2_S, d)};
    case DType::kIQ3_XXS: return {offsetof(BlockIQ3_XXS, d)};
    case DType::kIQ3_S: return {offsetof(BlockIQ3_S, d)};
    case DType::kIQ1_S: return {offsetof(BlockIQ1_S, d)};
    case DType::kIQ4_NL: return {offsetof(BlockIQ4_NL, d)};
    case DType::kIQ4_XS: return {offsetof(BlockIQ4_XS, d)};
    case DType::kTQ1_0: return {offsetof(BlockTQ1_0, d)};
    case DType::kTQ2_0: return {offsetof(BlockTQ2_0, d)};
    case DType::kQ1_0: return {offsetof(BlockQ1_0, d)};
    case DType::kQ2_0: return {offsetof(BlockQ2_0, d)};
    default: return {};
  }
}

float scale_of(Random& random, Weights kind) {
  if (kind == Weights::kSane) return uniform(random, -1.0f, 1.0f) / 64.0f;
  const float choices[] = {0x1p-24f, -0x1p-20f, 0.0f, -0.0f, 65504.0f, -65504.0f, 1.0f, 0x1.ffcp-15f};
  return choices[random() % 8];
}

// Any code but NaN; extreme: zeros, subnormals and the largest, with a NaN among thousands.
std::byte fp8_of(Random& random, Weights kind) {
  constexpr uint8_t kExtremes[] = {0x00, 0x80, 0x01, 0x81, 0x07, 0x87, 0x08, 0x88, 0x7E, 0xFE};
  if (kind == Weights::kExtreme) return static_cast<std::byte>(random() % 5000 == 0 ? 0x7F : kExtremes[random() % std::size(kExtremes)]);
  const auto sign = static_cast<uint8_t>(random() & 0x80);
  return static_cast<std::byte>(sign | random() % 0x7F);
}

void set_scales(Random& random, DType type, std::byte* block, Weights kind) {
  for (const size_t at : half_scales(type)) {
    const uint16_t bits = f32_to_f16(scale_of(random, kind));
    std::memcpy(block + at, &bits, 2);
  }
  if (type == DType::kQ8_K) {
    const float d = scale_of(random, kind);
    std::memcpy(block, &d, 4);
  } else if (type == DType::kMXFP4) {
    block[0] = static_cast<std::byte>(kind == Weights::kSane ? 116 + random() % 8 : random() % 256);
  } else if (type == DType::kNVFP4 && kind == Weights::kSane) {
    for (int s = 0; s < 4; ++s) block[s] = static_cast<std::byte>(random() % 0x60);
  } else if (type == DType::kIQ1_M) {
    const uint16_t d = f32_to_f16(scale_of(random, kind));
    for (int s = 0; s < 4; ++s) {
      std::byte& high = block[offsetof(BlockIQ1_M, scales) + 2 * s + 1];
      high = (high & std::byte{0x0F}) | static_cast<std::byte>(((d >> (4 * s)) & 15) << 4);
    }
  }
}

}  // namespace

Random seeded(uint64_t test) {
  return Random(test + 1000003u * static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed()));
}

float uniform(Random& random, float low, float high) {
  const float unit = static_cast<float>(random() >> 40) * 0x1p-24f;
  return low + (high - low) * unit;
}

std::vector<float> uniform_vector(Random& random, size_t n, float low, float high) {
  std::vector<float> values(n);
  for (float& value : values) value = uniform(random, low, high);
  return values;
}

std::vector<float> adversarial_vector(Random& random, size_t n) {
  std::vector<float> values(n);
  uint64_t mood = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i % 32 == 0) mood = random() % 8;
    const float sign = random() % 2 ? 1.0f : -1.0f;
    switch (mood) {
      case 0: values[i] = sign * 0.0f; break;
      case 1: values[i] = sign * std::bit_cast<float>(static_cast<uint32_t>(random() % 0x800000)); break;  // subnormal
      case 2: values[i] = sign * 3.0f; break;                                                           // saturates
      case 3: values[i] = sign * 0x1p-100f * uniform(random, 0.5f, 1.5f); break;                        // the floor
      case 4: values[i] = i % 32 == 5 ? 1e6f : uniform(random, -1e-3f, 1e-3f); break;                   // one outlier
      case 5: values[i] = sign * uniform(random, 0.0f, 1.0f) * 1e18f; break;
      case 6: values[i] = sign * (static_cast<float>(random() % 128) + 0.5f); break;                    // ties
      default: values[i] = uniform(random, -8.0f, 8.0f); break;
    }
  }
  return values;
}

std::vector<std::byte> random_weights(Random& random, DType type, uint32_t rows, uint32_t cols, Weights kind) {
  const size_t bytes = row_bytes(type, cols) * rows;
  std::vector<std::byte> data(bytes);
  if (!traits(type).quantised && kind != Weights::kRawBytes) {
    const size_t element = traits(type).block_bytes;
    const std::vector<float> values = kind == Weights::kSane ? uniform_vector(random, size_t{rows} * cols)
                                                             : adversarial_vector(random, size_t{rows} * cols);
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* at = data.data() + i * element;
      const uint16_t half = type == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      const double wide = values[i];
      const auto integer = static_cast<int64_t>(std::clamp(values[i], -100.0f, 100.0f));
      if (type == DType::kF32) std::memcpy(at, &values[i], 4);
      else if (type == DType::kF64) std::memcpy(at, &wide, 8);
      else if (type == DType::kF8_E4M3) *at = fp8_of(random, kind);
      else if (element == 2 && type != DType::kI16) std::memcpy(at, &half, 2);
      else std::memcpy(at, &integer, element);  // little-endian: the low bytes
    }
    return data;
  }
  const size_t block = traits(type).block_bytes;
  for (size_t at = 0; at < bytes; at += block) {
    const uint8_t ends[] = {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0};
    const uint8_t end = ends[random() % 6];
    for (size_t i = 0; i < block; ++i) {
      data[at + i] = static_cast<std::byte>(kind == Weights::kExtreme ? end : static_cast<uint8_t>(random()));
    }
    if (kind != Weights::kRawBytes) set_scales(random, type, data.data() + at, kind);
  }
  return data;
}

ActivationView Activations::one(uint32_t token) const {
  const size_t blocks = n / 32;
  ActivationView v = view();
  v.tokens = 1;
  v.x += size_t{token} * n;
  if (n % 32 == 0) {
    v.q += size_t{token} * n;
    v.scale += token * blocks;
    v.sum += token * blocks;
  }
  return v;
}

Activations quantized(std::vector<float> x, uint32_t n) {
  Activations a;
  a.n = n;
  a.tokens = static_cast<uint32_t>(x.size() / n);
  a.x = std::move(x);
  if (n % 32 == 0) {
    a.q.resize(a.x.size());
    a.scale.resize(a.x.size() / 32);
    a.sum.resize(a.x.size() / 32);
    for (uint32_t t = 0; t < a.tokens; ++t) {
      const size_t block = size_t{t} * n / 32;
      reference().quantize(a.x.data() + size_t{t} * n, n, a.q.data() + size_t{t} * n, a.scale.data() + block, a.sum.data() + block);
    }
  }
  return a;
}

testing::AssertionResult same_bits(const std::vector<float>& expected, const std::vector<float>& found) {
  if (expected.size() != found.size()) return testing::AssertionFailure() << found.size() << " values, not " << expected.size();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(found[i])) continue;
    return testing::AssertionFailure() << "value " << i << " of " << expected.size() << " is " << found[i] << " ("
                                       << std::hexfloat << found[i] << "), expected " << std::defaultfloat << expected[i]
                                       << " (" << std::hexfloat << expected[i] << ")";
  }
  return testing::AssertionSuccess();
}

std::vector<const KernelTable*> tables_with_twin() {
  std::vector<const KernelTable*> tables = available();
#ifdef TIERPACK_AVX2
  if (cpu_has_avx512() && !cpu_has_avx_vnni()) tables.push_back(&avx_vnni_twin());
#endif
  return tables;
}

std::vector<DType> quantised_types() {
  std::vector<DType> types;
  for (const DTypeTraits& t : all_dtypes()) {
    if (t.quantised) types.push_back(t.type);
  }
  return types;
}

std::vector<DType> plain_types() {
  std::vector<DType> types;
  for (const DTypeTraits& t : all_dtypes()) {
    if (!t.quantised) types.push_back(t.type);
  }
  return types;
}

double GoldenCase::parameter(const std::string& key) const {
  for (const auto& [name_, value] : parameters) {
    if (name_ == key) return value;
  }
  throw std::runtime_error("golden case " + name + " has no parameter " + key);
}

const std::vector<float>& GoldenCase::list(const std::string& key) const {
  for (const auto& [name_, values] : lists) {
    if (name_ == key) return values;
  }
  throw std::runtime_error("golden case " + name + " has no list " + key);
}

std::vector<GoldenCase> golden_ops(const std::string& name) {
  std::ifstream file(TIERPACK_SOURCE_DIR "/tests/data/golden_ops/" + name);
  if (!file) throw std::runtime_error("cannot open tests/data/golden_ops/" + name);
  std::vector<GoldenCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "case") {
      cases.emplace_back();
      words >> cases.back().name;
      for (std::string pair; words >> pair;) {
        const size_t equals = pair.find('=');
        cases.back().parameters.emplace_back(pair.substr(0, equals), std::stod(pair.substr(equals + 1)));
      }
      continue;
    }
    if (cases.empty()) cases.emplace_back();
    size_t count = 0;
    words >> count;
    std::vector<float> values;
    for (std::string word; words >> word;) {
      values.push_back(key == "pos" || key == "sections" ? std::stof(word)
                                                         : std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
    }
    if (values.size() != count) throw std::runtime_error("golden list " + key + " of " + name + " is cut short");
    cases.back().lists.emplace_back(key, std::move(values));
  }
  return cases;
}

}  // namespace tierpack::kernels
