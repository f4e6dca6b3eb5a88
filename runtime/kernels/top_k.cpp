#include <algorithm>

#include "base/error.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels {

void top_k(const float* values, uint32_t n, uint32_t k, uint32_t* indices) {
  TIERPACK_CHECK(k <= n);
  if (k == 0) return;
  // A total order, so that the result is unique: larger values first, NaN after all numbers, ties to the lower index.
  const auto before = [values](uint32_t a, uint32_t b) {
    const float x = values[a];
    const float y = values[b];
    if (x > y) return true;
    if (x < y) return false;
    const bool x_nan = x != x;
    const bool y_nan = y != y;
    if (x_nan != y_nan) return y_nan;
    return a < b;
  };
  // indices is a heap with the last of the kept ones on top.
  for (uint32_t i = 0; i < k; ++i) indices[i] = i;
  std::make_heap(indices, indices + k, before);
  for (uint32_t i = k; i < n; ++i) {
    if (!before(i, indices[0])) continue;
    std::pop_heap(indices, indices + k, before);
    indices[k - 1] = i;
    std::push_heap(indices, indices + k, before);
  }
  std::sort_heap(indices, indices + k, before);
}

}  // namespace tierpack::kernels
