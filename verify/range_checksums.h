// Checksums of ranges of a file that streams by: the records of a segment, or the runs a writer has copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/digest.h"
#include "base/error.h"

namespace tierpack::verify {

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Fed a file from byte 0 in pieces of any size, reports the XXH3-128 of each range when its end has gone by, and the
// stretches outside all ranges that are not zeros.
class RangeChecksums {
 public:
  // Ranges are ascending and disjoint, none empty.
  explicit RangeChecksums(std::vector<ByteRange> ranges) : ranges_(std::move(ranges)) {}

  // on_range(index, Xxh128); on_stray(offset of the piece's first byte that should be zero).
  template <typename OnRange, typename OnStray>
  void feed(Bytes data, OnRange&& on_range, OnStray&& on_stray) {
    while (!data.empty()) {
      if (next_ == ranges_.size() || at_ < ranges_[next_].offset) {
        const uint64_t left = next_ == ranges_.size() ? data.size() : ranges_[next_].offset - at_;
        const Bytes outside = data.first(std::min<uint64_t>(left, data.size()));
        const auto stray = std::find_if(outside.begin(), outside.end(), [](std::byte b) { return b != std::byte{0}; });
        if (stray != outside.end()) on_stray(at_ + static_cast<uint64_t>(stray - outside.begin()));
        advance(data, outside.size());
        continue;
      }
      const ByteRange& range = ranges_[next_];
      const Bytes inside = data.first(std::min<uint64_t>(range.offset + range.bytes - at_, data.size()));
      if (inside.size() == range.bytes) {
        on_range(next_++, xxh3_128(inside));
      } else {
        if (!stream_) stream_.emplace();
        stream_->update(inside);
        if (at_ + inside.size() == range.offset + range.bytes) {
          on_range(next_++, stream_->digest());
          stream_.reset();
        }
      }
      advance(data, inside.size());
    }
  }

 private:
  void advance(Bytes& data, uint64_t bytes) {
    data = data.subspan(bytes);
    at_ += bytes;
  }

  std::vector<ByteRange> ranges_;
  size_t next_ = 0;
  uint64_t at_ = 0;
  std::optional<Xxh3Stream> stream_;
};

}  // namespace tierpack::verify
