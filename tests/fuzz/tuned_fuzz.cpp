// Tuned settings from arbitrary bytes: an Error, or ones that survive being written.
#include <cstdlib>

#include "base/error.h"
#include "formats/tuned.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const TunedFile file = parse_tuned({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string written = encode_tuned(file);
    if (encode_tuned(parse_tuned(written, "again")) != written) std::abort();
  } catch (const Error& e) {
    if (std::string(e.what()).starts_with("again")) std::abort();
  }
  return 0;
}
