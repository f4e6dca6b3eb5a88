// Kernel speed, by table and tensor type: decode (one token; GB/s of weights read) and prefill (64 tokens; GFLOP/s, two
// a multiplication). The matrix of decode and of the runs called from_memory is larger than the caches of a core. One thread.
//
//   build/kernels_bench --benchmark_filter=avx2 --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/kernels/kernels.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

using namespace tierpack;
using namespace tierpack::kernels;

constexpr uint32_t kCols = 2560;  // also: 4096, where the activations of a batch lie a power of two apart

// Random codes; positions of scales do not matter for speed as long as no subnormal arithmetic happens, which finite
// random bytes below make rare.
std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i + 8 <= count; i += 8) {
    const uint64_t eight = (random() & 0x0F0F0F0F0F0F0F0F) | 0x3030303030303030;
    std::memcpy(bytes.data() + i, &eight, 8);
  }
  return bytes;
}

// As records lie in a pack: on a page of their own.
struct PageAligned {
  std::vector<std::byte> storage;
  const std::byte* data;
  explicit PageAligned(size_t count) : storage(random_bytes(count + 4096)), data(storage.data()) {
    data += (4096 - reinterpret_cast<uintptr_t>(data) % 4096) % 4096;
  }
  std::byte* writable() { return storage.data() + (data - storage.data()); }
};

struct Batch {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  ActivationView view;

  Batch(uint32_t tokens, uint32_t n) : x(size_t{tokens} * n), q(x.size()), scale(x.size() / 32), sum(x.size() / 32) {
    std::mt19937 random(2);
    for (float& v : x) v = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    for (uint32_t t = 0; t < tokens; ++t) {
      const size_t at = size_t{t} * n;
      reference().quantize(x.data() + at, n, q.data() + at, scale.data() + at / 32, sum.data() + at / 32);
    }
    view = {tokens, n, x.data(), q.data(), scale.data(), sum.data()};
  }
};

enum class Weights { kFromMemory, kInCache };

// scale_size: rows and columns of the scale blocks of a matrix of plain numbers; 0 for none.
void matmul(benchmark::State& state, const KernelTable& table, DType type, uint32_t tokens, Weights weights_are, uint32_t cols = kCols,
            uint32_t scale_size = 0) {
  const size_t row = row_bytes(type, cols);
  const uint32_t rows = weights_are == Weights::kFromMemory ? static_cast<uint32_t>(std::max<size_t>(64, (size_t{64} << 20) / row / 16 * 16)) : 64;
  const PageAligned weights(row * rows);
  const Batch batch(tokens, cols);
  std::vector<float> y(size_t{rows} * tokens);
  MatrixView w{type, weights.data, rows, cols};
  std::vector<float> scales;
  if (scale_size > 0) {
    scales.resize(size_t{rows + scale_size - 1} / scale_size * ((cols + scale_size - 1) / scale_size), 0.01f);
    w.scales = scales.data();
    w.scale_rows = w.scale_cols = scale_size;
  }
  for (auto _ : state) {
    table.matmul(w, 0, rows, batch.view, y.data(), rows);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(runs * static_cast<double>(row * rows) / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(runs * 2.0 * rows * cols * tokens / 1e9, benchmark::Counter::kIsRate);
}

#ifdef __x86_64__
// The ceiling of products with one token: every byte is read once and added.
__attribute__((target("avx2"))) void read_loop(benchmark::State& state) {
  constexpr size_t kBytes = size_t{64} << 20;
  const PageAligned data(kBytes);
  for (auto _ : state) {
    __m256i sums[4] = {};
    for (size_t at = 0; at < kBytes; at += 128) {
      for (size_t i = 0; i < 4; ++i) {
        sums[i] = _mm256_add_epi64(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data.data + at + 32 * i)));
      }
    }
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(kBytes) / 1e9, benchmark::Counter::kIsRate);
}

// The ceiling of products of plain numbers with many tokens: twelve independent multiply-adds of eight lanes.
__attribute__((target("avx2,fma"))) void fma_loop(benchmark::State& state) {
  constexpr uint32_t kSums = 12, kSteps = 1000;
  __m256 sums[kSums] = {};
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (auto _ : state) {
    for (uint32_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
      for (uint32_t i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
    }
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 2.0 * kSums * kSteps * 8 / 1e9, benchmark::Counter::kIsRate);
}
#endif

// `queries` heads that share one KV head, over `count` tokens; a KV head after the other of a cache larger than a core's own.
void attention(benchmark::State& state, const KernelTable& table, KvType type, uint32_t count, uint32_t queries) {
  constexpr uint32_t kHeadDim = 128;
  constexpr uint32_t kDistinct = 1024;  // rows; the others repeat them
  const size_t row = kv_row_bytes(type, kHeadDim);
  const size_t head = count * row;
  const size_t heads = std::max<size_t>(1, (size_t{64} << 20) / (2 * head));
  PageAligned bytes(2 * heads * head);
  std::byte* const rows = bytes.writable();
  const Batch numbers(kDistinct, kHeadDim);
  for (size_t j = 0; j < 2 * heads * count; ++j) {
    table.store_kv(numbers.x.data() + j % kDistinct * kHeadDim, kHeadDim, type, rows + j * row);
  }
  PageAligned q(queries * kHeadDim * sizeof(float));
  std::memcpy(q.writable(), numbers.x.data(), queries * kHeadDim * sizeof(float));
  std::vector<float> out(size_t{queries} * kHeadDim);
  std::vector<AttentionQuery> list;
  for (uint32_t i = 0; i < queries; ++i) {
    list.push_back({reinterpret_cast<const float*>(q.data) + size_t{i} * kHeadDim, out.data() + size_t{i} * kHeadDim, count});
  }
  size_t next = 0;
  for (auto _ : state) {
    const KvView cache{type, rows + 2 * next * head, rows + (2 * next + 1) * head, row, kHeadDim};
    next = (next + 1) % heads;
    table.attention(list.data(), queries, cache, nullptr, 0.1f);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(runs * 2 * static_cast<double>(head) / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(runs * 4.0 * count * queries * kHeadDim / 1e9, benchmark::Counter::kIsRate);
}

void delta_rule(benchmark::State& state, const KernelTable& table) {
  const Batch batch(4, 128);
  std::vector<float> s(128 * 128, 0.01f), out(128);
  for (auto _ : state) {
    table.delta_rule(s.data(), batch.x.data(), batch.x.data() + 128, batch.x.data() + 256, 0.9f, 0.5f, 128, 128, out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * 128 * 128 * 4 / 1e9, benchmark::Counter::kIsRate);
}

// Functions (n floats in, n out); values a second.
template <typename Function>
void elementwise(benchmark::State& state, Function&& function) {
  const Batch batch(1, kCols);
  std::vector<float> out(kCols);
  for (auto _ : state) {
    function(batch.x.data(), kCols, out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["Gvalue/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * kCols / 1e9, benchmark::Counter::kIsRate);
}

void register_all() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) benchmark::RegisterBenchmark("read_loop", read_loop);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) benchmark::RegisterBenchmark("fma_loop", fma_loop);
#endif
  for (const KernelTable* table : available()) {
    const std::string prefix = std::string(table->name) + "/";
    for (const DTypeTraits& t : all_dtypes()) {
      const DType type = t.type;
      if (!t.quantised && type != DType::kF32 && type != DType::kF16 && type != DType::kBF16 && type != DType::kF8_E4M3) continue;
      for (const uint32_t tokens : {1u, 2u, 4u, 64u, 512u}) {
        benchmark::RegisterBenchmark((prefix + "matmul/" + t.name + "/tokens:" + std::to_string(tokens)).c_str(),
                                     [table, type, tokens](benchmark::State& s) {
                                       matmul(s, *table, type, tokens, tokens == 1 ? Weights::kFromMemory : Weights::kInCache);
                                     });
      }
      benchmark::RegisterBenchmark((prefix + "matmul/" + t.name + "/tokens:32/from_memory").c_str(),
                                   [table, type](benchmark::State& s) { matmul(s, *table, type, 32, Weights::kFromMemory); });
    }
    for (const uint32_t tokens : {1u, 2u, 4u, 64u, 512u}) {
      benchmark::RegisterBenchmark((prefix + "matmul/F8_E4M3/128x128/tokens:" + std::to_string(tokens)).c_str(),
                                   [table, tokens](benchmark::State& s) {
                                     matmul(s, *table, DType::kF8_E4M3, tokens, tokens == 1 ? Weights::kFromMemory : Weights::kInCache, kCols, 128);
                                   });
    }
    for (const DType type : {DType::kQ4_K, DType::kF16}) {
      benchmark::RegisterBenchmark((prefix + "matmul/" + dtype_name(type) + "/tokens:64/cols:4096").c_str(),
                                   [table, type](benchmark::State& s) { matmul(s, *table, type, 64, Weights::kInCache, 4096); });
    }
    for (const auto& [name, type] : {std::pair{"f32", KvType::kF32}, {"f16", KvType::kF16}, {"q8", KvType::kQ8}}) {
      for (const uint32_t count : {4096u, 32768u}) {
        for (const uint32_t queries : {1u, 4u, 8u, 16u, 32u}) {
          benchmark::RegisterBenchmark((prefix + "attention/" + name + "/" + std::to_string(count) + "/queries:" + std::to_string(queries)).c_str(),
                                       [table, type, count, queries](benchmark::State& s) { attention(s, *table, type, count, queries); });
        }
      }
    }
    benchmark::RegisterBenchmark((prefix + "delta_rule/128").c_str(), [table](benchmark::State& s) { delta_rule(s, *table); });
    benchmark::RegisterBenchmark((prefix + "quantize").c_str(), [table](benchmark::State& s) {
      std::vector<int8_t> q(kCols);
      std::vector<int32_t> sum(kCols / 32);
      elementwise(s, [&](const float* x, uint32_t n, float* out) { table->quantize(x, n, q.data(), out, sum.data()); });
    });
    benchmark::RegisterBenchmark((prefix + "silu").c_str(), [table](benchmark::State& s) { elementwise(s, table->silu); });
    benchmark::RegisterBenchmark((prefix + "softmax").c_str(), [table](benchmark::State& s) { elementwise(s, table->softmax); });
    benchmark::RegisterBenchmark((prefix + "rms_norm").c_str(), [table](benchmark::State& s) {
      elementwise(s, [table](const float* x, uint32_t n, float* out) { table->rms_norm(x, nullptr, 1e-6f, n, out); });
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
