// How failed calls of the CUDA runtime become errors. For device_cuda.cpp and *.cu.
#pragma once

#include <cuda_runtime_api.h>

namespace tierpack::device {

// Throws kCapacity when memory ran out, else kCuda: what was attempted, then CUDA's own words. Does nothing on success.
void check_cuda(cudaError_t status, const char* what);

}  // namespace tierpack::device
