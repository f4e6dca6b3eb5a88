// What this machine can do at most, measured in this process with the threads that compute: the ceilings that `bench`
// prints beside its figures. A probe shares nothing with the kernels it is compared to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/threads.h"

namespace tierpack {

// A buffer larger than the caches, read over and over by a plain loop of 32-byte loads (8-byte ones without AVX2).
class ReadProbe {
 public:
  // Touched by the team's threads. Throws kCapacity when there is no such memory.
  ReadProbe(ThreadTeam& team, uint64_t bytes);
  ~ReadProbe();
  ReadProbe(const ReadProbe&) = delete;
  ReadProbe& operator=(const ReadProbe&) = delete;

  uint64_t bytes() const { return bytes_; }
  // Bytes per second over whole passes that take at least `seconds` together.
  double measure(double seconds);

 private:
  ThreadTeam& team_;
  uint64_t bytes_;
  std::byte* data_;
};

// Products of 8-bit integers added up per second, all threads together, operands in registers: one multiply instruction and
// one addition where the instruction does not add by itself. `isa` is the name of a kernel table: those of AVX-512 and "avx_vnni" use VNNI,
// "avx2" maddubs, anything else plain C++.
double measure_int8_rate(ThreadTeam& team, std::string_view isa, double seconds);

// Most memory this process has held at once, in bytes (VmHWM); 0 when the system does not say.
uint64_t peak_resident_bytes();

struct MachineInfo {
  std::string cpu;            // "" when unknown
  int cores = 0;              // usable by this process
  uint64_t memory_bytes = 0;  // of the machine
  double load = 0;            // other work: the load average of the last minute
};
MachineInfo machine_info();

}  // namespace tierpack
