#include "runtime/hardware/kernel_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/memory_placement.h"

namespace tierpack::hardware {

namespace {

constexpr uint32_t kMatricesAtOnce = 8;   // experts of a layer for one token
constexpr uint32_t kPrefillTokens = 64;
constexpr uint32_t kRowsPerPiece = 64;
constexpr uint64_t kPageBytes = 4096;
constexpr double kSmallShare = 0.01;      // of a pack's dense matrices: types below it do not matter

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

bool has_products(DType dtype) {
  return traits(dtype).quantised || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF8_E4M3;
}

// Random codes whose scales are ordinary numbers in every type: no subnormal arithmetic, no NaN.
void fill(ThreadTeam& team, std::byte* memory, uint64_t bytes) {
  constexpr uint64_t kPart = uint64_t{1} << 20;
  team.for_each(bytes / kPart, [&](size_t part) {
    std::mt19937_64 random(part);
    for (uint64_t i = 0; i < kPart; i += 8) {
      store(memory + part * kPart + i, (random() & 0x0F0F0F0F0F0F0F0F) | 0x3030303030303030);
    }
  });
}

struct Batch {
  std::vector<float> x;
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;

  Batch(const kernels::KernelTable& table, uint32_t tokens, uint32_t n)
      : x(size_t{tokens} * n), q(x.size()), scale(x.size() / 32), sum(x.size() / 32) {
    std::mt19937 random(2);
    for (float& value : x) value = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    for (size_t at = 0; at < x.size(); at += n) {
      table.quantize(x.data() + at, n, q.data() + at, scale.data() + at / 32, sum.data() + at / 32);
    }
  }
  kernels::ActivationView view(uint32_t tokens, uint32_t n) const {
    return {tokens, n, x.data(), q.data(), scale.data(), sum.data()};
  }
};

class Measurement {
 public:
  Measurement(const kernels::KernelTable& table, ThreadTeam& team, const KernelQuestion& question)
      : table_(table), team_(team), question_(question), bytes_(align_up(question.memory_bytes, uint64_t{1} << 20)),
        memory_(allocate_placed(bytes_)), batch_(table, kPrefillTokens, question.cols),
        y_(size_t{kMatricesAtOnce} * kPrefillTokens * question.rows) {
    if (!memory_) fail(ErrorKind::kCapacity, "cannot allocate {} to measure the kernels with", format_size(bytes_));
    fill(team_, memory_.get(), bytes_);
  }

  KernelRate rate_of(DType dtype) {
    // Several different matrices have to fit.
    rows_ = static_cast<uint32_t>(std::clamp<uint64_t>(bytes_ / kMatricesAtOnce / row_bytes(dtype, question_.cols), 1, question_.rows));
    std::vector<double> decode, prefill;
    const double matrix = static_cast<double>(row_bytes(dtype, question_.cols)) * rows_;
    for (uint32_t window = 0; window < question_.windows; ++window) {
      decode.push_back(matrix * products(dtype, 1));
      prefill.push_back(static_cast<double>(rows_) * question_.cols * kPrefillTokens * products(dtype, kPrefillTokens));
    }
    return {dtype_name(dtype), median(decode), median(prefill)};
  }

 private:
  static double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  // Matrices a second.
  double products(DType dtype, uint32_t tokens) {
    const uint64_t stride = align_up(row_bytes(dtype, question_.cols) * rows_, kPageBytes);
    const uint64_t places = std::max<uint64_t>(1, bytes_ / stride);
    TIERPACK_CHECK(stride <= bytes_);
    const kernels::ActivationView view = batch_.view(tokens, question_.cols);
    const uint32_t pieces = (rows_ + kRowsPerPiece - 1) / kRowsPerPiece;
    uint64_t made = 0;
    const double start = now();
    for (double took = 0; made == 0 || took < question_.window_seconds; took = now() - start) {
      throw_if_interrupted();
      std::array<const std::byte*, kMatricesAtOnce> matrices;
      for (auto& matrix : matrices) matrix = memory_.get() + random_() % places * stride;
      team_.for_each(size_t{kMatricesAtOnce} * pieces, [&](size_t index) {
        const size_t which = index / pieces;
        const auto begin = static_cast<uint32_t>(index % pieces) * kRowsPerPiece;
        const kernels::MatrixView w{dtype, matrices[which], rows_, question_.cols};
        table_.matmul(w, begin, std::min(rows_, begin + kRowsPerPiece), view, y_.data() + which * kPrefillTokens * rows_, rows_);
      });
      made += kMatricesAtOnce;
    }
    return static_cast<double>(made) / (now() - start);
  }

  const kernels::KernelTable& table_;
  ThreadTeam& team_;
  const KernelQuestion& question_;
  uint64_t bytes_;
  uint32_t rows_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
  Batch batch_;
  std::vector<float> y_;
  std::mt19937_64 random_{7};
};

}  // namespace

std::vector<KernelRate> measure_kernels(const kernels::KernelTable& table, ThreadTeam& team, const KernelQuestion& question) {
  Measurement measurement(table, team, question);
  std::vector<KernelRate> out;
  for (const DType dtype : question.dtypes) out.push_back(measurement.rate_of(dtype));
  return out;
}

std::vector<DType> weight_types(const PackManifest& manifest) {
  std::map<DType, uint64_t> bytes;
  uint64_t dense = 0;
  std::map<DType, uint64_t> dense_bytes;
  for (const DenseTensor& tensor : manifest.dense) {
    if (tensor.shape.dims < 2 || !has_products(tensor.dtype)) continue;
    dense_bytes[tensor.dtype] += manifest.records[tensor.record].bytes;
    dense += manifest.records[tensor.record].bytes;
  }
  for (const auto& [dtype, size] : dense_bytes) {
    if (static_cast<double>(size) >= kSmallShare * static_cast<double>(dense)) bytes[dtype] += size;
  }
  for (const ExpertLayer& layer : manifest.expert_layers) {
    for (const ExpertPart* const part : layer.parts()) bytes[part->dtype] += part->bytes * layer.experts;
  }
  std::vector<DType> types;
  for (const auto& [dtype, size] : bytes) types.push_back(dtype);
  std::stable_sort(types.begin(), types.end(), [&](DType a, DType b) { return bytes[a] > bytes[b]; });
  return types;
}

}  // namespace tierpack::hardware
