// Products with packed blocks of 256 elements with grids of eight elements.
#include "runtime/kernels/cuda/device_grid_decoders.cuh"
#include "runtime/kernels/cuda/many_tokens_kernel.cuh"

namespace tierpack::kernels::cuda {

bool launch_iq2_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch) {
  switch (type) {
    case DType::kIQ2_XXS: return launch_blocks<DeviceIQ2_XXS>(stream, kernel, batch), true;
    case DType::kIQ2_XS: return launch_blocks<DeviceIQ2_XS>(stream, kernel, batch), true;
    case DType::kIQ2_S: return launch_blocks<DeviceIQ2_S>(stream, kernel, batch), true;
    default: return false;
  }
}

}  // namespace tierpack::kernels::cuda
