// Kernels are compiled with -fsanitize=alignment; this is what the compiler calls for an address that is no multiple of its type's
// alignment. Where the whole build has sanitizers, their own library takes this place.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <fmt/core.h>

#include "tests/support/cuda_on_cpu/block_run.h"

namespace {

// As GCC lays it out.
struct TypeMismatch {
  const char* file;
  uint32_t line;
  uint32_t column;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;
};

}  // namespace

extern "C" [[noreturn]] __attribute__((used)) void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch* data, uintptr_t address) {
  using namespace tierpack::cuda_on_cpu;
  Launch& launch = launch_state();
  const std::string_view file = data->file;
  const std::string text = fmt::format("address {:#x} is no multiple of {} ({}:{})", address, 1u << data->log_alignment,
                                       file.substr(file.rfind('/') + 1), data->line);
  if (launch.running()) launch.give_up(fmt::format("{}, thread {}: {}", launch.place(), launch.thread().number, text));
  fmt::print(stderr, "{}\n", text);
  std::abort();
}
