// The host side of products.h: sorts products into batches of one type and kernel, and queues them.
#include "runtime/kernels/cuda/products.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "formats/iq_grids.h"
#include "formats/row_groups.h"
#include "runtime/kernels/cuda/grid_layout.h"
#include "runtime/kernels/cuda/product_batch.h"

namespace tierpack::kernels::cuda {
namespace {

constexpr size_t kKernels = 4;
constexpr int kTypes = 64;  // ids from -8 on
// Row groups of one token's products from which on a warp has one alone.
constexpr uint64_t kGroupsOfSingleWarps = 2048;

size_t index_of(DType type) {
  const int index = static_cast<int>(type) + 8;
  TIERPACK_CHECK(index >= 0 && index < kTypes);
  return static_cast<size_t>(index);
}

// Whether a kernel has a part of the product.
bool takes_part(const DeviceProduct& product, ProductKernel kernel) {
  const uint32_t tokens = product.x.tokens;
  if (tokens == 0 || product.w.rows == 0) return false;
  const bool quantised = traits(product.w.dtype).quantised;
  if (kernel == ProductKernel::kTailRows) return quantised && product.w.rows % kGroupRows != 0;
  if (quantised && product.w.rows < kGroupRows) return false;
  if (kernel == ProductKernel::kOneToken) return tokens == 1;
  if (kernel == ProductKernel::kFewTokens) return quantised && tokens > 1 && tokens <= kFewTokens;
  return tokens > (quantised ? kFewTokens : 1);
}

uint32_t quotient_up(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }

void check(const DeviceProduct& product) {
  const MatrixView& w = product.w;
  TIERPACK_CHECK(product.x.n == w.cols && scales_fit(w));
  TIERPACK_CHECK(product.expert != nullptr || (product.records == nullptr && product.expert_scales == nullptr));
  if (!traits(w.dtype).quantised) {
    TIERPACK_CHECK(product.x.x != nullptr);
    return;
  }
  TIERPACK_CHECK(w.cols % 32 == 0 && product.x.q != nullptr && product.x.scale != nullptr && product.x.sum != nullptr);
  TIERPACK_CHECK(reinterpret_cast<uintptr_t>(product.x.q) % 16 == 0 && (w.rows < kGroupRows || reinterpret_cast<uintptr_t>(w.data) % 16 == 0));
}

// Rows that a kernel has of a matrix.
uint32_t rows_of(const MatrixView& w, ProductKernel kernel) {
  if (!traits(w.dtype).quantised) return w.rows;
  const uint32_t behind = w.rows % kGroupRows;
  return kernel == ProductKernel::kTailRows ? behind : w.rows - behind;
}

ProductParameters parameters_of(const DeviceProduct& product, BlockShape shape) {
  const MatrixView& w = product.w;
  const bool quantised = traits(w.dtype).quantised;
  ProductParameters p{};
  p.data = reinterpret_cast<const uint8_t*>(w.data);
  p.scales = w.scales;
  p.records = product.records;
  p.expert = product.expert;
  p.expert_scales = product.expert_scales;
  p.x = quantised ? static_cast<const void*>(product.x.q) : product.x.x;
  p.x_scale = product.x.scale;
  p.x_sum = product.x.sum;
  p.x_rows = product.rows;
  p.y = product.y;
  p.y_stride = product.y_stride;
  p.row_bytes = row_bytes(w.dtype, w.cols);
  p.rows = w.rows;
  p.columns = w.cols;
  p.tokens = product.x.tokens;
  p.scale_rows = w.scale_rows;
  p.scale_columns = w.scale_cols;
  p.grid_tokens = quotient_up(p.tokens, shape.tokens);
  return p;
}

void launch_batch(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  const bool launched = launch_small_blocks(stream, type, kernel, batch) || launch_k_blocks(stream, type, kernel, batch) ||
                        launch_iq2_blocks(stream, type, kernel, batch) || launch_iq3_blocks(stream, type, kernel, batch) ||
                        launch_plain(stream, type, kernel, batch);
  if (!launched) fail(ErrorKind::kUnsupported, "the GPU has no product with weights of type {}", dtype_name(type));
}

// Warps that share a row group: a GPU has work for a few thousand, and each takes 256 columns or more at a time.
uint32_t turns_of(std::span<const DeviceProduct> products, DType type, ProductKernel kernel) {
  if (kernel != ProductKernel::kOneToken || !traits(type).quantised) return 1;
  uint64_t groups = 0;
  uint32_t columns = 0;
  for (const DeviceProduct& product : products) {
    if (product.w.dtype != type || !takes_part(product, kernel)) continue;
    groups += product.w.rows / kGroupRows;
    columns = std::max(columns, product.w.cols);
  }
  if (groups > kGroupsOfSingleWarps) return 1;
  return columns >= 4 * 256 ? 4 : columns >= 2 * 256 ? 2 : 1;
}

void launch_all(device::Stream& stream, const uint32_t* grids, std::span<const DeviceProduct> products, DType type, ProductKernel kernel) {
  BlockShape shape = block_shape(type, kernel);
  ProductBatch batch{};
  batch.grids = grids;
  batch.turns = turns_of(products, type, kernel);
  shape.rows /= batch.turns;
  const auto begin = [&] {
    batch.count = 0;
    std::fill(std::begin(batch.first) + 1, std::end(batch.first), UINT32_MAX);
  };
  begin();
  for (const DeviceProduct& product : products) {
    if (product.w.dtype != type || !takes_part(product, kernel)) continue;
    check(product);
    ProductParameters& parameters = batch.product[batch.count];
    parameters = parameters_of(product, shape);
    batch.first[batch.count + 1] = batch.first[batch.count] + parameters.grid_tokens * quotient_up(rows_of(product.w, kernel), shape.rows);
    if (++batch.count < kBatchProducts) continue;
    launch_batch(stream, type, kernel, batch);
    begin();
  }
  if (batch.count > 0) launch_batch(stream, type, kernel, batch);
}

// The entries of a grid as numbers of its values, from word `first` on. A byte g of the grid is value factor * g + factor, or g itself
// where the factor is 0.
template <typename Entry, size_t N>
void put_grid(std::vector<uint32_t>& words, uint32_t first, const std::array<Entry, N>& grid, const GridValues& values, int factor) {
  constexpr size_t elements = sizeof(Entry), in_word = 8 / elements;
  for (size_t i = 0; i < N; ++i) {
    for (size_t k = 0; k < elements; ++k) {
      const int byte = static_cast<int8_t>(static_cast<uint8_t>(grid[i] >> (8 * k)));
      const auto found = std::find(values.begin(), values.end(), static_cast<uint8_t>(factor == 0 ? byte : factor * byte + factor));
      TIERPACK_CHECK(found != values.end());
      words[first + i / in_word] |= static_cast<uint32_t>(found - values.begin()) << (4 * (elements * (i % in_word) + k));
    }
  }
}

}  // namespace

GridTables::GridTables(device::Stream& stream) : memory_(kGridWords * sizeof(uint32_t)) {
  std::vector<uint32_t> words(kGridWords);
  put_grid(words, kGridIq2Xxs, kIq2xxsGrid, kIq2Values, 0);
  put_grid(words, kGridIq2Xs, kIq2xsGrid, kIq2Values, 0);
  put_grid(words, kGridIq2S, kIq2sGrid, kIq2Values, 0);
  put_grid(words, kGridIq1, kIq1sGrid, kIq1Values, 8);
  put_grid(words, kGridIq3Xxs, kIq3xxsGrid, kIq3XxsValues, 0);
  put_grid(words, kGridIq3S, kIq3sGrid, kIq3SValues, 0);
  stream.copy_to_device(memory_, 0, std::as_bytes(std::span(words)));
  stream.synchronize();
}

int least_compute_capability() {
#ifdef TIERPACK_LEAST_COMPUTE_CAPABILITY
  return TIERPACK_LEAST_COMPUTE_CAPABILITY;
#else
  return 0;
#endif
}

BlockShape block_shape(DType type, ProductKernel kernel) {
  if (!traits(type).quantised) return plain_block_shape(type, kernel);
  switch (kernel) {
    case ProductKernel::kOneToken: return {kOneTokenWarps * kGroupRows, 1};
    case ProductKernel::kFewTokens: return {kGroupRows, kFewTokens};
    case ProductKernel::kManyTokens: return {kManyGroups * kGroupRows, kManyTokens};
    case ProductKernel::kTailRows: return {kGroupRows, kTailTokens};
  }
  return {};
}

void multiply(device::Stream& stream, const GridTables& grids, std::span<const DeviceProduct> products) {
  bool queued[kTypes][kKernels] = {};
  for (const DeviceProduct& product : products) {
    for (size_t k = 0; k < kKernels; ++k) {
      const auto kernel = static_cast<ProductKernel>(k);
      bool& done = queued[index_of(product.w.dtype)][k];
      if (done || !takes_part(product, kernel)) continue;
      launch_all(stream, reinterpret_cast<const uint32_t*>(grids.address()), products, product.w.dtype, kernel);
      done = true;
    }
  }
}

void quantize(device::Stream& stream, const float* x, size_t count, int8_t* q, float* scale, int32_t* sum) {
  TIERPACK_CHECK(count % 32 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 && reinterpret_cast<uintptr_t>(q) % 4 == 0);
  if (count > 0) launch_quantize(stream, x, count / 32, q, scale, sum);
}

}  // namespace tierpack::kernels::cuda
