// The table of CPUs with AVX-512 VNNI: products of bytes by vpdpbusd on 256-bit vectors, attention and the
// delta rule on 512-bit ones, everything else as with AVX2.
#include "runtime/kernels/vector_matmul.h"

namespace tierpack::kernels {

const KernelTable& avx512() {
  static const KernelTable table = [] {
    KernelTable t = avx2();
    t.name = "avx512";
    t.matmul = vector_matmul;
    t.delta_rule = avx512_ops::delta_rule;
    t.attention = avx512_ops::attention;
    return t;
  }();
  return table;
}

}  // namespace tierpack::kernels
