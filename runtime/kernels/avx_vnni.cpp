// The table of CPUs with AVX-VNNI and no AVX-512 (Intel's 12th to 14th generation): products with quantised weights use vpdpbusd on
// vectors of eight rows, everything else, grid types with one token too, is as with AVX2. The tests compile this file for
// AVX-512 VL as well, which has the same instruction in another encoding: so it is tested on CPUs that have only that.
#include "runtime/kernels/avx2.h"
#define TIERPACK_VNNI
#include "runtime/kernels/avx2_lanes.h"

#include "runtime/kernels/group_types.h"

#ifndef TIERPACK_AVX_VNNI_TABLE
#define TIERPACK_AVX_VNNI_TABLE avx_vnni
#endif

namespace tierpack::kernels {
const KernelTable& TIERPACK_AVX_VNNI_TABLE() {
  static const KernelTable table = [] {
    KernelTable t = avx2();
    t.name = "avx_vnni";
    t.matmul = vnni_matmul;
    return t;
  }();
  return table;
}

}  // namespace tierpack::kernels
