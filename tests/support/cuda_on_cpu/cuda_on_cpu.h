// CUDA C++ as runtime/kernels/cuda/dialect.cuh defines it, for the C++ compiler: the same kernels, their threads run as fibers and
// what they do checked. docs/cuda_on_cpu.md says what is seen and what is not. Only dialect.cuh includes this.
#pragma once

#include "tests/support/cuda_on_cpu/device_functions.h"
#include "tests/support/cuda_on_cpu/device_memory.h"
#include "tests/support/cuda_on_cpu/device_values.h"
#include "tests/support/cuda_on_cpu/fiber_engine.h"
#include "tests/support/cuda_on_cpu/shared_memory.h"
#include "tests/support/cuda_on_cpu/work_queue.h"
