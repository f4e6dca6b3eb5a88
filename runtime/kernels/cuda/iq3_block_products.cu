// Products with packed blocks of 256 elements with grids of four elements, and ternary ones.
#include "runtime/kernels/cuda/device_grid_decoders.cuh"
#include "runtime/kernels/cuda/many_tokens_kernel.cuh"

namespace tierpack::kernels::cuda {

bool launch_iq3_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kIQ3_XXS: return launch_blocks<DeviceIQ3_XXS>(stream, kernel, batch), true;
    case DType::kIQ3_S: return launch_blocks<DeviceIQ3_S>(stream, kernel, batch), true;
    case DType::kIQ1_S: return launch_blocks<DeviceIQ1_S>(stream, kernel, batch), true;
    case DType::kIQ1_M: return launch_blocks<DeviceIQ1_M>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
