// Products with packed blocks of 32 to 128 elements.
#include "runtime/kernels/cuda/device_decoders.cuh"
#include "runtime/kernels/cuda/many_tokens_kernel.cuh"

namespace tierpack::kernels::cuda {

bool launch_small_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kQ4_0: return launch_blocks<DeviceQ4_0>(stream, kernel, batch), true;
    case DType::kQ4_1: return launch_blocks<DeviceQ4_1>(stream, kernel, batch), true;
    case DType::kQ5_0: return launch_blocks<DeviceQ5_0>(stream, kernel, batch), true;
    case DType::kQ5_1: return launch_blocks<DeviceQ5_1>(stream, kernel, batch), true;
    case DType::kQ8_0: return launch_blocks<DeviceQ8_0>(stream, kernel, batch), true;
    case DType::kIQ4_NL: return launch_blocks<DeviceIQ4_NL>(stream, kernel, batch), true;
    case DType::kMXFP4: return launch_blocks<DeviceMXFP4>(stream, kernel, batch), true;
    case DType::kNVFP4: return launch_blocks<DeviceNVFP4>(stream, kernel, batch), true;
    case DType::kQ2_0: return launch_blocks<DeviceQ2_0>(stream, kernel, batch), true;
    case DType::kQ1_0: return launch_blocks<DeviceQ1_0>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
