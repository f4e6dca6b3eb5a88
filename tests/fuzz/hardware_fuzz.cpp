// Descriptions of machines from arbitrary bytes: an Error, or one that survives being written.
#include <cstdlib>

#include "base/error.h"
#include "formats/hardware.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const HardwareProfile hardware = parse_hardware({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string written = encode_hardware(hardware);
    if (encode_hardware(parse_hardware(written, "again")) != written) std::abort();
    for (const KernelRate& kernel : hardware.kernels) {
      if (hardware.kernel(kernel.dtype) == nullptr) std::abort();
    }
  } catch (const Error& e) {
    if (std::string(e.what()).starts_with("again")) std::abort();
  }
  return 0;
}
