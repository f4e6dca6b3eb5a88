// The table of AVX-VNNI with the instructions of AVX-512 VL.
#define TIERPACK_AVX_VNNI_TABLE avx_vnni_twin
namespace tierpack::kernels {
struct KernelTable;
const KernelTable& avx_vnni_twin();
}  // namespace tierpack::kernels
#include "runtime/kernels/avx_vnni.cpp"
