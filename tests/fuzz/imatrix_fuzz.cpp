// Importance matrices from arbitrary bytes: an Error, or entries whose numbers fit together and can be asked for.
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "formats/imatrix.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes{reinterpret_cast<const std::byte*>(data), size};
  Imatrix imatrix;
  try {
    imatrix = read_imatrix(MemorySource(bytes, "fuzz"));
  } catch (const Error&) {
    return 0;
  }
  uint64_t values = 0;
  for (const Imatrix::Entry& entry : imatrix.entries) {
    if (entry.sum2.size() != entry.columns * entry.matrices || entry.counts.size() != entry.matrices) std::abort();
    if (imatrix.find(entry.tensor) != &entry) std::abort();
    values += entry.sum2.size();
    for (uint64_t matrix = 0; matrix < entry.matrices && matrix < 4; ++matrix) {
      const auto means = imatrix.importance(entry.tensor, entry.columns, entry.matrices, matrix);
      if (means.size() != entry.columns) std::abort();
      for (const float mean : means) {
        if (!(mean >= 0) || !std::isfinite(mean)) std::abort();
      }
    }
  }
  if (values * sizeof(float) > size) std::abort();
  return 0;
}
