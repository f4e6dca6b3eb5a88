// Lock files and SHA256SUMS from arbitrary bytes: an Error, or content that survives being written and holds only paths
// that may be used below a directory.
#include <cstdlib>

#include "base/error.h"
#include "formats/lock.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const Lock lock = parse_lock(text, "fuzz");
    for (const LockFile& file : lock.files) {
      if (!is_safe_relative_path(file.path)) std::abort();
    }
    const std::string written = encode_lock(lock);
    if (encode_lock(parse_lock(written, "again")) != written) std::abort();
  } catch (const Error& e) {
    if (std::string(e.what()).starts_with("again")) std::abort();
  }
  try {
    for (const LockFile& file : parse_sha256sums(text, "fuzz")) {
      if (!is_safe_relative_path(file.path)) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
