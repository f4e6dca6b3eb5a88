// Which tables this CPU can run.
#include <string>

#include "base/error.h"
#include "runtime/kernels/kernels.h"
#ifdef TIERPACK_AVX2
#include <cpuid.h>

#include "runtime/kernels/avx2.h"
#endif

namespace tierpack::kernels {

#ifdef TIERPACK_AVX2
// Here, because the files of the tables may not run before this was asked. The builtins also check that the operating
// system saves the registers; clang's do not know f16c.
bool cpu_has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool cpu_has_avx_vnni() {
  constexpr unsigned kAvxVnni = 1u << 4;  // EAX of leaf 7, subleaf 1
  unsigned a = 0, b = 0, c = 0, d = 0;
  return cpu_has_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
         (a & kAvxVnni) != 0;
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

bool cpu_has_avx512_vbmi() {
  return cpu_has_avx512() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg") &&
         __builtin_cpu_supports("gfni");
}
#endif

std::vector<const KernelTable*> available() {
  std::vector<const KernelTable*> tables = {&reference()};
#ifdef TIERPACK_AVX2
  if (cpu_has_avx2()) tables.push_back(&avx2());
  if (cpu_has_avx_vnni()) tables.push_back(&avx_vnni());
  if (cpu_has_avx512()) tables.push_back(&avx512());
  if (cpu_has_avx512_vbmi()) tables.push_back(&avx512_vbmi());
#endif
  return tables;
}

const KernelTable& best() { return *available().back(); }

const KernelTable& by_name(std::string_view name) {
  std::string names;
  for (const KernelTable* table : available()) {
    if (table->name == name) return *table;
    names += names.empty() ? table->name : std::string(", ") + table->name;
  }
  fail(ErrorKind::kUsage, "no kernels named '{}' run on this CPU; available: {}", std::string(name), names);
}

}  // namespace tierpack::kernels
