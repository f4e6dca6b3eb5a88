#include "tests/support/cuda_on_cpu/shared_shadow.h"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

namespace tierpack::cuda_on_cpu {
namespace {

size_t piece_of(size_t element_bytes) { return std::min<size_t>(16, size_t{1} << std::countr_zero(element_bytes)); }

// Whether the running thread knows that the access of `stamp` is over.
bool ordered(const Launch& launch, const Thread& self, const Stamp& stamp) {
  if (stamp.epoch != launch.epoch() || stamp.thread == self.number) return true;
  if (stamp.thread / kWarpLanes != self.number / kWarpLanes) return false;
  const Warp& warp = launch.warp_of(self);
  return stamp.full < warp.full || warp.known[self.number % kWarpLanes][stamp.thread % kWarpLanes] > stamp.time;
}

std::string race(const Thread& self, const char* doing, const Stamp& stamp, const char* did) {
  const bool same_warp = stamp.thread / kWarpLanes == self.number / kWarpLanes;
  return fmt::format("a race: thread {} {} what thread {} {}, and no {} lies between", self.number, doing, stamp.thread, did,
                     same_warp ? "collective of their warp" : "__syncthreads");
}

}  // namespace

void Shadow::resize(size_t bytes, size_t element_bytes) {
  piece_bytes_ = piece_of(element_bytes);
  bytes_ = bytes;
  const size_t pieces = (bytes + piece_bytes_ - 1) / piece_bytes_;
  if (pieces_.size() < pieces) pieces_.resize(pieces);
}

void Shadow::refine(size_t element_bytes) {
  const size_t piece = piece_of(element_bytes);
  if (piece >= piece_bytes_) return;
  const size_t parts = piece_bytes_ / piece, before = (bytes_ + piece_bytes_ - 1) / piece_bytes_;
  std::vector<Piece> pieces(before * parts);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = pieces_[i / parts];
  pieces_ = std::move(pieces);
  piece_bytes_ = piece;
}

std::string Shadow::access(Launch& launch, Access access, size_t offset, size_t bytes, size_t& wrong_offset) {
  const size_t part = (offset | bytes) & (piece_bytes_ - 1);
  if (part != 0) refine(size_t{1} << std::countr_zero(part));
  const size_t end = (offset + bytes) / piece_bytes_;
  for (size_t i = offset / piece_bytes_; i < end; ++i) {
    std::string wrong = check(launch, access, pieces_[i]);
    if (!wrong.empty()) {
      wrong_offset = i * piece_bytes_;
      return wrong;
    }
  }
  return {};
}

std::string Shadow::check(Launch& launch, Access access, Piece& piece) {
  const Thread& self = launch.thread();
  const Warp& warp = launch.warp_of(self);
  const uint32_t epoch = launch.epoch();
  const bool atomic = access == Access::kUpdate;
  const char* const doing = access == Access::kRead ? "reads" : atomic ? "updates" : "writes";
  const bool written = piece.write.epoch >= launch.block_epoch();
  if (written && piece.write.pending) {
    return fmt::format("thread {} {} what copy_async_16 of thread {} brings, which has not been waited for", self.number, doing, piece.write.thread);
  }
  if (!written && (access == Access::kRead || atomic)) {
    return fmt::format("thread {} {} what no thread of the block has written", self.number, doing);
  }
  if (written && !(atomic && piece.write.atomic) && !ordered(launch, self, piece.write)) {
    return race(self, doing, piece.write, piece.write.atomic ? "updates" : "writes");
  }
  const Stamp now{epoch, warp.full, self.time, static_cast<uint16_t>(self.number), atomic, access == Access::kCopy, false};
  if (access == Access::kRead) {
    Stamp& read = piece.read;
    bool others_too = false;
    if (read.epoch == epoch && read.thread != self.number) {
      if (read.thread / kWarpLanes == self.number / kWarpLanes) {
        others_too = read.full == warp.full;
      } else {
        piece.other_read = read;
      }
    } else if (read.epoch == epoch) {
      others_too = read.others_too && read.full == warp.full;
    }
    read = now;
    read.others_too = others_too;
    return {};
  }
  if (!ordered(launch, self, piece.read)) return race(self, doing, piece.read, "reads");
  if (!ordered(launch, self, piece.other_read)) return race(self, doing, piece.other_read, "reads");
  if (piece.read.others_too && piece.read.epoch == epoch && piece.read.full == warp.full && piece.read.thread == self.number &&
      !warp.partial) {
    return fmt::format("a race: thread {} {} what other lanes of its warp read, and no collective of the warp lies between", self.number, doing);
  }
  piece.write = now;
  piece.read.epoch = piece.other_read.epoch = 0;
  return {};
}

void Shadow::land(Launch& launch, size_t offset, size_t bytes) {
  const Thread& self = launch.thread();
  const Stamp now{launch.epoch(), launch.warp_of(self).full, self.time, static_cast<uint16_t>(self.number), false, false, false};
  for (size_t i = offset / piece_bytes_; i < (offset + bytes) / piece_bytes_; ++i) pieces_[i].write = now;
}

}  // namespace tierpack::cuda_on_cpu
