// A recording of which experts a model chose: written by `tierpack trace`, replayed by `tierpack simulate`.
//
// Layout, little-endian:
//   "TPTRACE\0"  u32 version = 1  u32 layers  u32 experts (of the layer that has most)  u32 used (a token, in every layer)
//   routing_id (32 bytes, see formats/profile.h)
//   for each layer: u32 block  u32 experts  u64 record_bytes            ascending block numbers
//   for each chunk: u32 tokens, with kBeginsText set on the first chunk of a text; then u16 expert[layers][tokens][used]
//   u32 0  u64 chunks  u64 tokens  u64 low, u64 high: XXH3-128 of everything before
//
// Ids of one token are distinct and below their layer's experts. A layer is one with experts; numbers of layers count
// these, block numbers are the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file.h"

namespace tierpack::experts {

struct RouteTraceLayer {
  uint32_t block = 0;
  uint32_t experts = 0;
  uint64_t record_bytes = 0;  // of one expert
  bool operator==(const RouteTraceLayer&) const = default;
};

struct RouteTraceHeader {
  Sha256Digest routing_id;
  uint32_t experts = 0;
  uint32_t used = 0;
  std::vector<RouteTraceLayer> layers;
  bool operator==(const RouteTraceHeader&) const = default;
};

// Tokens computed together.
struct RouteChunk {
  uint32_t tokens = 0;
  bool begins_text = false;
  std::span<const uint16_t> ids;  // (layers, tokens, used)
};

inline constexpr uint32_t kTraceTokensMax = 65536;  // in a chunk

class RouteTraceWriter {
 public:
  // Writes the header to `sink`, which takes all bytes in order.
  RouteTraceWriter(const RouteTraceHeader& header, std::function<void(Bytes)> sink);
  void add(const RouteChunk& chunk);
  // After the last chunk; without it the recording is not valid.
  void finish();
  uint64_t tokens() const { return tokens_; }

 private:
  void write(Bytes data);
  std::function<void(Bytes)> sink_;
  Xxh3Stream hash_;
  size_t ids_per_token_;
  uint64_t chunks_ = 0;
  uint64_t tokens_ = 0;
};

// Reads chunk by chunk; memory is bounded by a chunk, and a chunk by what the source still holds. Throws kCorrupt for
// anything else than such a recording, kUnsupported for another version.
class RouteTraceReader {
 public:
  explicit RouteTraceReader(const ByteSource& source);
  const RouteTraceHeader& header() const { return header_; }
  // The next chunk, valid until the next call; false at the end, after everything has been proved.
  bool next(RouteChunk& chunk);

 private:
  void read(void* to, uint64_t bytes, const char* what);
  void check_ids(uint32_t tokens) const;
  void check_end();

  const ByteSource& source_;
  RouteTraceHeader header_;
  Xxh3Stream hash_;
  size_t ids_per_token_ = 0;
  uint64_t at_ = 0;
  uint64_t chunks_ = 0;
  uint64_t tokens_ = 0;
  bool ended_ = false;
  std::vector<uint16_t> ids_;
  mutable std::vector<uint32_t> seen_;  // by expert: the token that chose it last
};

}  // namespace tierpack::experts
