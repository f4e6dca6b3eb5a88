// Products with packed blocks of 256 elements without grids.
#include "runtime/kernels/cuda/device_k_decoders.cuh"
#include "runtime/kernels/cuda/many_tokens_kernel.cuh"

namespace tierpack::kernels::cuda {

bool launch_k_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kQ2_K: return launch_blocks<DeviceQ2_K>(stream, kernel, batch), true;
    case DType::kQ3_K: return launch_blocks<DeviceQ3_K>(stream, kernel, batch), true;
    case DType::kQ4_K: return launch_blocks<DeviceQ4_K>(stream, kernel, batch), true;
    case DType::kQ5_K: return launch_blocks<DeviceQ5_K>(stream, kernel, batch), true;
    case DType::kQ6_K: return launch_blocks<DeviceQ6_K>(stream, kernel, batch), true;
    case DType::kTQ1_0: return launch_blocks<DeviceTQ1_0>(stream, kernel, batch), true;
    case DType::kTQ2_0: return launch_blocks<DeviceTQ2_0>(stream, kernel, batch), true;
    case DType::kIQ4_XS: return launch_blocks<DeviceIQ4_XS>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
