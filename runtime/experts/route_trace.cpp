#include "runtime/experts/route_trace.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tierpack::experts {

namespace {

constexpr std::string_view kMagic("TPTRACE\0", 8);
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBeginsText = uint32_t{1} << 31;
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kExpertsMax = 65536;
constexpr uint32_t kCellsMax = uint32_t{1} << 21;  // layers * experts
constexpr uint32_t kUsedMax = 1024;

template <typename T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

RouteTraceWriter::RouteTraceWriter(const RouteTraceHeader& header, std::function<void(Bytes)> sink)
    : sink_(std::move(sink)), ids_per_token_(header.layers.size() * header.used) {
  TIERPACK_CHECK(!header.layers.empty() && header.used > 0 && header.used <= header.experts);
  write(tierpack::as_bytes(kMagic));
  write(bytes_of(kVersion));
  write(bytes_of(static_cast<uint32_t>(header.layers.size())));
  write(bytes_of(header.experts));
  write(bytes_of(header.used));
  write(header.routing_id.bytes);
  for (const RouteTraceLayer& layer : header.layers) {
    write(bytes_of(layer.block));
    write(bytes_of(layer.experts));
    write(bytes_of(layer.record_bytes));
  }
}

void RouteTraceWriter::write(Bytes data) {
  hash_.update(data);
  sink_(data);
}

void RouteTraceWriter::add(const RouteChunk& chunk) {
  TIERPACK_CHECK(chunk.tokens > 0 && chunk.tokens <= kTraceTokensMax && chunk.ids.size() == chunk.tokens * ids_per_token_);
  write(bytes_of(chunk.tokens | (chunk.begins_text ? kBeginsText : 0)));
  write(std::as_bytes(chunk.ids));
  ++chunks_;
  tokens_ += chunk.tokens;
}

void RouteTraceWriter::finish() {
  write(bytes_of(uint32_t{0}));
  write(bytes_of(chunks_));
  write(bytes_of(tokens_));
  const Xxh128 digest = hash_.digest();
  sink_(bytes_of(digest.low));
  sink_(bytes_of(digest.high));
}

RouteTraceReader::RouteTraceReader(const ByteSource& source) : source_(source) {
  std::array<char, 8> magic;
  uint32_t version = 0;
  uint32_t layers = 0;
  read(magic.data(), magic.size(), "magic");
  if (std::string_view(magic.data(), magic.size()) != kMagic) {
    fail(ErrorKind::kCorrupt, "{}: not a recording of `tierpack trace`; it does not begin with TPTRACE", source_.name());
  }
  read(&version, sizeof version, "version");
  if (version != kVersion) {
    fail(ErrorKind::kUnsupported, "{}: version {} of the trace format; this program reads version {}", source_.name(), version, kVersion);
  }
  read(&layers, sizeof layers, "layers");
  read(&header_.experts, sizeof header_.experts, "experts");
  read(&header_.used, sizeof header_.used, "used experts");
  read(header_.routing_id.bytes.data(), header_.routing_id.bytes.size(), "routing id");
  if (layers == 0 || layers > kLayersMax || header_.experts == 0 || header_.experts > kExpertsMax ||
      layers * header_.experts > kCellsMax || header_.used == 0 || header_.used > std::min(header_.experts, kUsedMax)) {
    fail(ErrorKind::kCorrupt, "{}: {} layers of {} experts with {} used is not a model", source_.name(), layers, header_.experts,
         header_.used);
  }
  uint32_t most = 0;
  for (uint32_t i = 0; i < layers; ++i) {
    RouteTraceLayer layer;
    read(&layer.block, sizeof layer.block, "block number");
    read(&layer.experts, sizeof layer.experts, "experts of a layer");
    read(&layer.record_bytes, sizeof layer.record_bytes, "record size");
    const bool ascending = i == 0 || layer.block > header_.layers.back().block;
    if (!ascending || layer.experts < header_.used || layer.experts > header_.experts || layer.record_bytes == 0 ||
        layer.record_bytes > uint64_t{1} << 40) {
      fail(ErrorKind::kCorrupt, "{}: layer {}: block {} with {} experts of {} bytes does not fit the rest", source_.name(), i,
           layer.block, layer.experts, layer.record_bytes);
    }
    most = std::max(most, layer.experts);
    header_.layers.push_back(layer);
  }
  if (most != header_.experts) {
    fail(ErrorKind::kCorrupt, "{}: no layer has the {} experts that the head promises", source_.name(), header_.experts);
  }
  ids_per_token_ = size_t{layers} * header_.used;
  seen_.resize(header_.experts);
}

void RouteTraceReader::read(void* to, uint64_t bytes, const char* what) {
  if (source_.size() - at_ < bytes) {
    fail(ErrorKind::kCorrupt, "{}: ends at byte {} within its {}; record the trace again", source_.name(), source_.size(), what);
  }
  const MutableBytes out(static_cast<std::byte*>(to), bytes);
  source_.read_at(at_, out);
  hash_.update(out);
  at_ += bytes;
}

bool RouteTraceReader::next(RouteChunk& chunk) {
  if (ended_) return false;
  uint32_t word = 0;
  read(&word, sizeof word, "chunks");
  const uint32_t tokens = word & ~kBeginsText;
  if (word == 0) {
    check_end();
    ended_ = true;
    return false;
  }
  if (tokens == 0 || tokens > kTraceTokensMax) {
    fail(ErrorKind::kCorrupt, "{}: a chunk of {} tokens at byte {}; expected 1 to {}", source_.name(), tokens, at_ - sizeof word,
         kTraceTokensMax);
  }
  const uint64_t count = uint64_t{tokens} * ids_per_token_;
  if ((source_.size() - at_) / sizeof(uint16_t) < count) {
    fail(ErrorKind::kCorrupt, "{}: ends at byte {} within a chunk; record the trace again", source_.name(), source_.size());
  }
  ids_.resize(count);
  read(ids_.data(), count * sizeof(uint16_t), "chunk");
  check_ids(tokens);
  ++chunks_;
  tokens_ += tokens;
  chunk = {tokens, (word & kBeginsText) != 0, ids_};
  return true;
}

void RouteTraceReader::check_ids(uint32_t tokens) const {
  const uint16_t* at = ids_.data();
  for (const RouteTraceLayer& layer : header_.layers) {
    std::fill(seen_.begin(), seen_.end(), 0u);
    for (uint32_t t = 1; t <= tokens; ++t, at += header_.used) {
      for (uint32_t i = 0; i < header_.used; ++i) {
        if (at[i] >= layer.experts || seen_[at[i]] == t) {
          fail(ErrorKind::kCorrupt, "{}: expert {} of block {} {}, in chunk {}", source_.name(), at[i], layer.block,
               at[i] >= layer.experts ? "does not exist" : "was chosen twice by a token", chunks_);
        }
        seen_[at[i]] = t;
      }
    }
  }
}

void RouteTraceReader::check_end() {
  uint64_t chunks = 0;
  uint64_t tokens = 0;
  read(&chunks, sizeof chunks, "end");
  read(&tokens, sizeof tokens, "end");
  const Xxh128 expected = hash_.digest();
  Xxh128 found;
  read(&found.low, sizeof found.low, "checksum");
  read(&found.high, sizeof found.high, "checksum");
  if (found != expected) {
    fail(ErrorKind::kCorrupt, "{}: its checksum is {}, its content has {}; record the trace again", source_.name(), found.hex(),
         expected.hex());
  }
  if (chunks != chunks_ || tokens != tokens_ || at_ != source_.size()) {
    fail(ErrorKind::kCorrupt, "{}: {} chunks of {} tokens were promised, {} of {} found, and {} bytes follow", source_.name(), chunks,
         tokens, chunks_, tokens_, source_.size() - at_);
  }
}

}  // namespace tierpack::experts
