// Kernels that are broken on purpose, each with its healthy twin. Everything works on one block of 64 threads unless said otherwise.
#pragma once

#include <cstdint>

#include "runtime/device/device.h"

namespace tierpack::kernels::cuda {

using device::Stream;

inline constexpr uint32_t kBrokenThreads = 64;

// out[i] = in[63 - i] through shared memory; broken: without the barrier.
void reverse(Stream& s, const int* in, int* out, bool broken);
// The same inside each warp (31 - lane); broken: without __syncwarp.
void reverse_warps(Stream& s, const int* in, int* out, bool broken);
// out[i] = in[i] through an array of 64, element i + broken.
void shift(Stream& s, const int* in, int* out, bool broken);
// out[i] = in[i]; the barrier lies where all threads pass or (broken) inside a condition.
void barrier_for_some(Stream& s, const int* in, int* out, bool broken);
// A barrier behind which threads of the second warp have returned (broken) or not.
void barrier_of_the_rest(Stream& s, const int* in, int* out, bool broken);
// out[i] = sum of its warp; broken: the last lane of each warp stays away.
void warp_sum(Stream& s, const int* in, int* out, bool broken);
// Even and odd lanes exchange in two groups, or (broken) different collectives with one mask meet.
void split_warp(Stream& s, const int* in, int* out, bool broken);
// Lanes of one half read a lane of their own half, or (broken) of the other.
void read_other_half(Stream& s, const int* in, int* out, bool broken);
// 16 bytes a thread through copy_async_16; broken: without the wait.
void copy_in_background(Stream& s, const int* in, int* out, bool broken);
// Two groups of copies, the older of which is read; broken: the younger, too.
void copy_two_groups(Stream& s, const int* in, int* out, bool broken);
// Sums shared values; broken: element 0 is never written.
void sum_unwritten(Stream& s, const int* in, int* out, bool broken);
// The second barrier of a loop that reads and writes one buffer; broken: left out.
void reuse_buffer(Stream& s, const int* in, int* out, bool broken);
// Counts in shared memory by atomicAdd; broken: by +=.
void count_values(Stream& s, const int* in, int* out, bool broken);
// Vectors of shared memory at multiples of 4 elements; broken: at one more.
void shared_vectors(Stream& s, const int* in, int* out, bool broken);
// Vectors of device memory; `in` is shifted by one element when broken.
void device_vectors(Stream& s, const int* in, int* out, bool broken);
// out[i] = in[i] for i < count in one block of count threads.
void copy_elements(Stream& s, const int* in, int* out, uint32_t count);
// The same; the arrays are named inside a structure, where the launch does not look for addresses.
struct Arrays {
  const int* in;
  int* out;
};
void copy_arrays(Stream& s, Arrays arrays, uint32_t count);
// Bytes of dynamic shared memory, read as words.
void dynamic_views(Stream& s, const int* in, int* out, bool broken);

}  // namespace tierpack::kernels::cuda
