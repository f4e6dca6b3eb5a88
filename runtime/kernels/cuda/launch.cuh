// Starts a kernel on a stream. Only *.cu includes this.
#pragma once

#include <type_traits>

#include "runtime/device/device.h"
#include "runtime/kernels/cuda/dialect.cuh"
#ifndef TIERPACK_CUDA_ON_CPU
#include "runtime/device/cuda_error.h"
#endif

namespace tierpack::kernels::cuda {

// `what` names the operation in errors. `shared_bytes` of dynamic shared memory beside what the kernel declares; more than
// 48 KiB are asked for where needed.
template <typename... Parameters>
void launch(device::Stream& stream, const char* what, dim3 grid, unsigned threads, size_t shared_bytes, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
#ifdef TIERPACK_CUDA_ON_CPU
  cuda_on_cpu::check_arguments(what, arguments...);
  cuda_on_cpu::queue_of(stream).add(what, [=] { cuda_on_cpu::run_grid(what, grid, dim3(threads), shared_bytes, [=] { kernel(arguments...); }); });
#else
  if (shared_bytes > (48u << 10)) {
    device::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)), what);
  }
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream.handle())>>>(arguments...);
  device::check_cuda(cudaPeekAtLastError(), what);
#endif
}

}  // namespace tierpack::kernels::cuda
