// The types that CUDA C++ brings along, for plain C++: grid dimensions and vectors with CUDA's alignment.
#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3() = default;
  constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define TIERPACK_VECTORS(T, name)                                                        \
  struct alignas(2 * sizeof(T)) name##2 {                                                \
    T x, y;                                                                              \
  };                                                                                     \
  struct name##3 {                                                                       \
    T x, y, z;                                                                           \
  };                                                                                     \
  struct alignas(4 * sizeof(T)) name##4 {                                                \
    T x, y, z, w;                                                                        \
  };                                                                                     \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                             \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                     \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TIERPACK_VECTORS(unsigned, uint)
TIERPACK_VECTORS(int, int)
TIERPACK_VECTORS(float, float)
TIERPACK_VECTORS(short, short)
TIERPACK_VECTORS(unsigned short, ushort)
TIERPACK_VECTORS(signed char, char)
TIERPACK_VECTORS(unsigned char, uchar)
#undef TIERPACK_VECTORS
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
struct alignas(16) double2 {
  double x, y;
};
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
