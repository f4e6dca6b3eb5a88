// Recordings of routing from arbitrary bytes: an Error, or chunks that give the same bytes when written again. The last 16 bytes are
// replaced by the checksum of those before, so that mutations reach what lies behind it; an input that begins with '!' is read as it is.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "runtime/experts/route_trace.h"

using namespace tierpack;
using namespace tierpack::experts;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> input(size);
  if (size > 0) std::memcpy(input.data(), data, size);
  if (size > 0 && data[0] == '!') {
    input.erase(input.begin());
  } else if (size >= 16) {
    const Xxh128 digest = xxh3_128(Bytes(input).first(size - 16));
    store(input.data() + size - 16, digest.low);
    store(input.data() + size - 8, digest.high);
  }
  const MemorySource source(input, "fuzz");
  try {
    RouteTraceReader reader(source);
    std::vector<std::byte> written;
    RouteTraceWriter writer(reader.header(), [&](Bytes bytes) { written.insert(written.end(), bytes.begin(), bytes.end()); });
    RouteChunk chunk;
    while (reader.next(chunk)) writer.add(chunk);
    writer.finish();
    if (written != input) std::abort();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kCorrupt && e.kind() != ErrorKind::kUnsupported) throw;
  }
  return 0;
}
