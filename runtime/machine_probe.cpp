#include "runtime/machine_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tierpack {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Keeps the compiler from dropping a loop whose only result is `value`.
void keep(uint64_t value) {
  static std::atomic<uint64_t> sink{0};
  if (value == 0x5bd1e995u) sink.store(value, std::memory_order_relaxed);
}

uint64_t read_plain(const std::byte* data, uint64_t bytes) {
  std::array<uint64_t, 8> sums{};
  for (uint64_t at = 0; at < bytes; at += 64) {
    for (size_t i = 0; i < 8; ++i) sums[i] ^= load<uint64_t>(data + at + 8 * i);
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

void multiply_plain(uint64_t rounds) {
  std::array<int32_t, 16> sums{};
  int8_t a = 3;
  for (uint64_t r = 0; r < rounds; ++r) {
    for (int32_t& sum : sums) {
      sum += a * static_cast<int8_t>(r);
      asm volatile("" : "+r"(sum));
    }
  }
  keep(static_cast<uint64_t>(static_cast<uint32_t>(sums[0])));
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* data, uint64_t bytes) {
  __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  const auto* at = reinterpret_cast<const __m256i*>(data);
  for (const __m256i* const end = at + bytes / 32; at != end; at += 8) {
    s0 = _mm256_xor_si256(s0, _mm256_load_si256(at));
    s1 = _mm256_xor_si256(s1, _mm256_load_si256(at + 1));
    s2 = _mm256_xor_si256(s2, _mm256_load_si256(at + 2));
    s3 = _mm256_xor_si256(s3, _mm256_load_si256(at + 3));
    s4 = _mm256_xor_si256(s4, _mm256_load_si256(at + 4));
    s5 = _mm256_xor_si256(s5, _mm256_load_si256(at + 5));
    s6 = _mm256_xor_si256(s6, _mm256_load_si256(at + 6));
    s7 = _mm256_xor_si256(s7, _mm256_load_si256(at + 7));
  }
  s0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3)),
                        _mm256_xor_si256(_mm256_xor_si256(s4, s5), _mm256_xor_si256(s6, s7)));
  return static_cast<uint64_t>(_mm256_extract_epi64(s0, 0) ^ _mm256_extract_epi64(s0, 2));
}

// The empty asm makes each operand look changed, so that no product can be moved out of the loop.
__attribute__((target("avx2"))) void multiply_avx2(uint64_t rounds) {
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
  __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  const auto step = [&](__m256i& sum) __attribute__((target("avx2"), always_inline)) {
    asm volatile("" : "+x"(a));
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
  };
  for (uint64_t r = 0; r < rounds; ++r) {
    step(s0), step(s1), step(s2), step(s3), step(s4), step(s5), step(s6), step(s7);
  }
  s0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3)),
                        _mm256_xor_si256(_mm256_xor_si256(s4, s5), _mm256_xor_si256(s6, s7)));
  keep(static_cast<uint64_t>(_mm256_extract_epi64(s0, 0)));
}

__attribute__((target("avx2,avxvnni"))) void multiply_avx_vnni(uint64_t rounds) {
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
  __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  const auto step = [&](__m256i& sum) __attribute__((target("avx2,avxvnni"), always_inline)) {
    asm volatile("" : "+x"(a));
    sum = _mm256_dpbusd_avx_epi32(sum, a, b);
  };
  for (uint64_t r = 0; r < rounds; ++r) {
    step(s0), step(s1), step(s2), step(s3), step(s4), step(s5), step(s6), step(s7);
  }
  s0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_xor_si256(s0, s1), _mm256_xor_si256(s2, s3)),
                        _mm256_xor_si256(_mm256_xor_si256(s4, s5), _mm256_xor_si256(s6, s7)));
  keep(static_cast<uint64_t>(_mm256_extract_epi64(s0, 0)));
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_avx512(uint64_t rounds) {
  __m512i a = _mm512_set1_epi32(0x03030303), b = _mm512_set1_epi32(0x05050505);
  __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  const auto step = [&](__m512i& sum) __attribute__((target("avx512f,avx512vnni"), always_inline)) {
    asm volatile("" : "+v"(a));
    sum = _mm512_dpbusd_epi32(sum, a, b);
  };
  for (uint64_t r = 0; r < rounds; ++r) {
    step(s0), step(s1), step(s2), step(s3), step(s4), step(s5), step(s6), step(s7);
  }
  s0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_xor_si512(s0, s1), _mm512_xor_si512(s2, s3)),
                        _mm512_xor_si512(_mm512_xor_si512(s4, s5), _mm512_xor_si512(s6, s7)));
  std::array<uint64_t, 8> sums;
  _mm512_storeu_si512(sums.data(), s0);
  keep(sums[0]);
}

#endif

using ReadLoop = uint64_t (*)(const std::byte*, uint64_t);
struct MultiplyLoop {
  void (*run)(uint64_t rounds);
  double products;  // of a round
};

ReadLoop read_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_plain;
}

MultiplyLoop multiply_loop([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa.starts_with("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) return {multiply_avx512, 8 * 64};
  // Only a CPU that has the instructions has a table of that name.
  if (isa == "avx_vnni") return {multiply_avx_vnni, 8 * 32};
  if ((isa.starts_with("avx512") || isa == "avx2") && __builtin_cpu_supports("avx2")) return {multiply_avx2, 8 * 32};
#endif
  return {multiply_plain, 16};
}

// The text after "key:" in a file of such lines, without white space around it; "" when there is none.
std::string field(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view name(line.data(), std::min(line.find_last_not_of(" \t", colon - 1) + 1, colon));
    if (name != key) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
  }
  return "";
}

// "12345 kB" -> bytes; 0 for anything else.
uint64_t kib_field(const char* path, std::string_view key) {
  return std::strtoull(field(path, key).c_str(), nullptr, 10) * 1024;
}

}  // namespace

ReadProbe::ReadProbe(ThreadTeam& team, uint64_t bytes) : team_(team), bytes_(align_up(bytes, kPieceBytes)) {
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorKind::kCapacity, "cannot allocate {} to measure the read bandwidth with", format_size(bytes_));
  }
  // Large pages where the system gives them: the ceiling should not be that of the address translation.
  ::madvise(memory, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
  team_.for_each(bytes_ / kPieceBytes, [&](size_t piece) {
    std::memset(data_ + piece * kPieceBytes, static_cast<int>(piece % 251 + 1), kPieceBytes);
  });
}

ReadProbe::~ReadProbe() { ::munmap(data_, bytes_); }

double ReadProbe::measure(double seconds) {
  const ReadLoop loop = read_loop();
  const double start = now();
  for (uint64_t passes = 1;; ++passes) {
    team_.for_each(bytes_ / kPieceBytes, [&](size_t piece) { keep(loop(data_ + piece * kPieceBytes, kPieceBytes)); });
    const double took = now() - start;
    if (took >= seconds) return static_cast<double>(bytes_) * static_cast<double>(passes) / took;
  }
}

double measure_int8_rate(ThreadTeam& team, std::string_view isa, double seconds) {
  const MultiplyLoop loop = multiply_loop(isa);
  constexpr uint64_t kRounds = 20'000;
  const auto pieces = static_cast<size_t>(team.size()) * 16;
  double made = 0;
  const double start = now();
  for (;;) {
    team.for_each(pieces, [&](size_t) { loop.run(kRounds); });
    made += loop.products * static_cast<double>(kRounds) * static_cast<double>(pieces);
    const double took = now() - start;
    if (took >= seconds) return made / took;
  }
}

uint64_t peak_resident_bytes() { return kib_field("/proc/self/status", "VmHWM"); }

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = field("/proc/cpuinfo", "model name");
  info.cores = usable_cores();
  info.memory_bytes = kib_field("/proc/meminfo", "MemTotal");
  std::ifstream("/proc/loadavg") >> info.load;
  return info;
}

}  // namespace tierpack
