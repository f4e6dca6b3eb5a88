#include "tests/support/cuda_on_cpu/shared_shadow.h"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

namespace tierpack::cuda_on_cpu {
namespace {

size_t piece_of(size_t element_bytes) { return std::min<size_t>(16, size_t{1} << std::countr_zero(element_bytes)); }

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

bool Shadow::read(const Launch& launch, Piece& piece) {
  const Stamp& now = current.now;
  if (piece.write.epoch < launch.block_epoch() || piece.write.pending || !ordered(launch, piece.write)) return false;
  Stamp& last = piece.read;
  if (last.epoch != now.epoch) {
    piece.others_too = false;
  } else if (last.thread == now.thread) {
    piece.others_too = piece.others_too && last.full == now.full;
  } else if (same_warp(last, now)) {
    piece.others_too = last.full == now.full;
  } else {
    piece.other_read = last;
    piece.others_too = false;
  }
  last = now;
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
  if (piece.others_too && piece.read.epoch == now.epoch && piece.read.full == now.full && piece.read.thread == now.thread &&
      !launch.warp(now.thread).partial) {
    return false;
  }
  piece.write = now;
  piece.write.atomic = atomic;
  piece.write.pending = access == Access::kCopy;
  piece.read.epoch = piece.other_read.epoch = 0;
  piece.others_too = false;
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
  for (size_t i = offset / piece_bytes_; i < (offset + bytes) / piece_bytes_; ++i) pieces_[i].write = current.now;
}

}  // namespace tierpack::cuda_on_cpu
