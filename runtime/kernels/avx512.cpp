// The table of CPUs with AVX-512 VNNI: products with quantised weights on vectors of sixteen rows,
// attention and the delta rule on vectors of sixteen numbers, everything else, grid types with one token too, as with AVX2.
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx512_lanes.h"

#include "runtime/kernels/group_types.h"

namespace tierpack::kernels {
const KernelTable& avx512() {
  static const KernelTable table = [] {
    KernelTable t = avx2();
    t.name = "avx512";
    t.matmul = vnni_matmul;
    t.delta_rule = avx512_ops::delta_rule;
    t.attention = avx512_ops::attention;
    return t;
  }();
  return table;
}

}  // namespace tierpack::kernels
