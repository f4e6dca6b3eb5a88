#include "tests/support/cuda_on_cpu/shared_shadow.h"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

namespace tierpack::cuda_on_cpu {
namespace {

// Pieces are the largest power of two, up to 16 bytes, that divides an element.
unsigned shift_of(size_t element_bytes) { return static_cast<unsigned>(std::min(4, std::countr_zero(element_bytes))); }
size_t pieces_of(size_t bytes, unsigned shift) { return (bytes + (size_t{1} << shift) - 1) >> shift; }

bool same_warp(const Stamp& a, const Stamp& b) { return a.thread / kWarpLanes == b.thread / kWarpLanes; }

// Whether the running thread knows that an access of its epoch is over.
bool ordered_in_warp(const Launch& launch, const Stamp& stamp) {
  const Stamp& now = current.now;
  if (!same_warp(stamp, now)) return false;
  return stamp.full < now.full || launch.warp(now.thread).known[now.thread % kWarpLanes][stamp.thread % kWarpLanes] > stamp.time;
}
bool ordered(const Launch& launch, const Stamp& stamp) {
  return stamp.epoch != current.now.epoch || stamp.thread == current.now.thread || ordered_in_warp(launch, stamp);
}

}  // namespace

void Shadow::resize(size_t bytes, size_t element_bytes) {
  shift_ = shift_of(element_bytes);
  bytes_ = bytes;
  const size_t pieces = pieces_of(bytes, shift_);
  if (pieces_.size() < pieces) pieces_.resize(pieces);
}

void Shadow::refine(size_t element_bytes) {
  const unsigned shift = shift_of(element_bytes);
  if (shift >= shift_) return;
  const unsigned parts = shift_ - shift;
  std::vector<Piece> pieces(pieces_of(bytes_, shift_) << parts);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = pieces_[i >> parts];
  pieces_ = std::move(pieces);
  shift_ = shift;
}

bool Shadow::read(const Launch& launch, Piece& piece) {
  const Stamp& now = current.now;
  if (piece.write.epoch < launch.block_epoch() || piece.write.pending || !ordered(launch, piece.write)) return false;
  Stamp& last = piece.read;
  bool others_too = false;
  if (last.epoch == now.epoch) {
    if (last.thread == now.thread) {
      others_too = last.others_too && last.full == now.full;
    } else if (same_warp(last, now)) {
      others_too = last.full == now.full;
    } else {
      piece.other_read = last;
    }
  }
  last = now;
  last.others_too = others_too;
  return true;
}

bool Shadow::write(const Launch& launch, Access access, Piece& piece) {
  const Stamp& now = current.now;
  const bool atomic = access == Access::kUpdate;
  if (piece.write.epoch >= launch.block_epoch()) {
    if (piece.write.pending || (!(atomic && piece.write.atomic) && !ordered(launch, piece.write))) return false;
  } else if (atomic) {
    return false;
  }
  if (!ordered(launch, piece.read) || !ordered(launch, piece.other_read)) return false;
  // Collectives of some lanes may have ordered the others; which ones did is not kept.
  if (piece.read.others_too && piece.read.epoch == now.epoch && piece.read.full == now.full && piece.read.thread == now.thread &&
      !launch.warp(now.thread).partial) {
    return false;
  }
  piece.write = now;
  piece.write.atomic = atomic;
  piece.write.pending = access == Access::kCopy;
  piece.read.epoch = piece.other_read.epoch = 0;
  return true;
}

std::string Shadow::complaint(const Launch& launch, Access access) const {
  const Piece& piece = pieces_[wrong_];
  const Stamp& now = current.now;
  const char* const doing = access == Access::kRead ? "reads" : access == Access::kUpdate ? "updates" : "writes";
  const auto race = [&](const Stamp& other, const char* did) {
    return fmt::format("a race: thread {} {} what thread {} {}, and no {} lies between", now.thread, doing, other.thread, did,
                       same_warp(other, now) ? "collective of their warp" : "__syncthreads");
  };
  if (piece.write.epoch < launch.block_epoch()) return fmt::format("thread {} {} what no thread of the block has written", now.thread, doing);
  if (piece.write.pending) {
    return fmt::format("thread {} {} what copy_async_16 of thread {} brings, which has not been waited for", now.thread, doing, piece.write.thread);
  }
  if (!ordered(launch, piece.write)) return race(piece.write, piece.write.atomic ? "updates" : "writes");
  if (!ordered(launch, piece.read)) return race(piece.read, "reads");
  if (!ordered(launch, piece.other_read)) return race(piece.other_read, "reads");
  return fmt::format("a race: thread {} {} what other lanes of its warp read, and no collective of the warp lies between", now.thread, doing);
}

void Shadow::land(size_t offset, size_t bytes) {
  for (size_t i = offset >> shift_; i < (offset + bytes) >> shift_; ++i) pieces_[i].write = current.now;
}

}  // namespace tierpack::cuda_on_cpu
