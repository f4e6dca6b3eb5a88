// Attention and the delta rule on 512-bit vectors.
#include "runtime/kernels/avx512_vector.h"
#include "runtime/kernels/vector_attention.h"
#include "runtime/kernels/vector_delta_rule.h"

namespace tierpack::kernels::avx512_ops {

void attention(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale) {
  vector_attention(queries, n, cache, visible, scale);
}

void delta_rule(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk, uint32_t dv,
                float* out) {
  vector_delta_rule(state, q, k, v, decay, beta, dk, dv, out);
}

}  // namespace tierpack::kernels::avx512_ops
