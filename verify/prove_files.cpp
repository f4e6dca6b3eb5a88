#include "verify/prove_files.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256_lanes.h"

namespace tierpack::verify {

namespace {

// Two of them fit in a small core's second-level cache: what the system copies in is hashed while it is still there. Reading
// rather than mapping, because a bad disk block must be an error that can be reported, not a signal.
constexpr uint64_t kPieceBytes = uint64_t{128} << 10;
// A cold file is asked for this far ahead, so that the disk works while a piece is hashed.
constexpr uint64_t kAheadBytes = uint64_t{16} << 20;

const char* promiser(const std::string& origin) {
  if (origin == "hub") return "promised by the hub";
  if (origin == "sums") return "promised by a checksum file";
  if (origin == "user") return "given by the user at download";
  if (origin == "cache") return "in the name of the cached blob";
  return "observed at download, promised by nobody";
}

// A file on its way through the hashes.
class OpenProof {
 public:
  OpenProof(size_t index, const ProofTask& task)
      : index_(index), promise_(*task.promise), file_(File::open(task.path, File::Mode::kRead)), size_(file_.size()) {
    const bool is_promised = promise_.sha256 && promise_.hash_origin != "observed";
    if (promise_.git_sha1 && !is_promised) {
      git_.emplace();
      const std::string head = fmt::format("blob {}", size_);
      git_->update(as_bytes({head.c_str(), head.size() + 1}));  // with its NUL
    }
    ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  size_t index() const { return index_; }
  bool is_done() const { return at_ == size_; }
  Sha256Lane& lane() { return lane_; }
  bool wants_sha256() const { return promise_.sha256.has_value(); }

  // The next piece, in `buffer`. Everything but the SHA-256 is done with it.
  Bytes read(MutableBytes buffer) {
    if (asked_ < size_ && at_ + kAheadBytes / 2 >= asked_) {
      ::posix_fadvise(file_.fd(), static_cast<off_t>(asked_), kAheadBytes, POSIX_FADV_WILLNEED);
      asked_ += kAheadBytes;
    }
    const MutableBytes piece = buffer.first(std::min<uint64_t>(buffer.size(), size_ - at_));
    file_.read_at(at_, piece);
    at_ += piece.size();
    if (git_) git_->update(piece);
    return piece;
  }

  FileProof finish() {
    FileProof out;
    if (promise_.sha256) {
      const Sha256Digest found = lane_.finish();
      if (found != *promise_.sha256) {
        out.problem = fmt::format("has SHA-256 {}, {} promises {}", found.hex(), promise_.origin, promise_.sha256->hex());
        return out;
      }
      out.proof = fmt::format("SHA-256, {}", promiser(promise_.hash_origin));
    }
    if (git_) {
      const std::string found = git_->finish().hex();
      if (found != *promise_.git_sha1) {
        out.problem = fmt::format("has git blob id {}, {} promises {}", found, promise_.origin, *promise_.git_sha1);
        return out;
      }
      const char* const who = promise_.hash_origin == "cache" ? "in the name of the cached blob" : "promised by the hub";
      out.proof = fmt::format("git blob id (SHA-1), {}{}", who, promise_.sha256 ? "; SHA-256, observed at download" : "");
    }
    TIERPACK_CHECK(!out.proof.empty());
    out.equal = true;
    return out;
  }

 private:
  size_t index_;
  const PromisedFile& promise_;
  File file_;
  uint64_t size_;
  uint64_t at_ = 0;
  uint64_t asked_ = 0;
  Sha256Lane lane_;
  std::optional<Sha1> git_;
};

// One thread's two files.
class ProofWorker {
 public:
  ProofWorker(const std::vector<ProofTask>& tasks, std::atomic<size_t>& next, std::vector<FileProof>& proofs,
              const std::function<void(uint64_t)>& on_bytes)
      : tasks_(tasks), next_(next), proofs_(proofs), on_bytes_(on_bytes), buffer_(std::make_unique_for_overwrite<std::byte[]>(2 * kPieceBytes)) {}

  // Begins with the file `first`; takes others from the queue as places become free.
  void run(size_t first) {
    open(0, first);
    for (;;) {
      for (auto& place : open_) {
        while (!place) {
          const size_t index = next_++;
          if (index >= tasks_.size()) break;
          open(static_cast<size_t>(&place - open_.data()), index);
        }
      }
      if (!open_[0] && !open_[1]) return;
      step();
    }
  }

 private:
  void open(size_t place, size_t index) {
    guarded(index, place, [&] { open_[place].emplace(index, tasks_[index]); });
  }

  // A file that cannot be read has its proof at once and leaves its place.
  template <typename Body>
  void guarded(size_t index, size_t place, Body&& body) {
    try {
      body();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInterrupted || e.kind() == ErrorKind::kInternal) throw;
      proofs_[index] = {.equal = false, .problem = e.what(), .unreadable = true, .proof = {}};
      open_[place].reset();
    }
  }

  void step() {
    std::array<Bytes, 2> pieces;
    for (size_t i = 0; i < 2; ++i) {
      if (!open_[i]) continue;
      guarded(open_[i]->index(), i, [&] { pieces[i] = open_[i]->read({buffer_.get() + i * kPieceBytes, kPieceBytes}); });
    }
    const bool both = open_[0] && open_[1] && open_[0]->wants_sha256() && open_[1]->wants_sha256() &&
                      pieces[0].size() == kPieceBytes && pieces[1].size() == kPieceBytes;
    if (both) Sha256Lane::update_pair(open_[0]->lane(), pieces[0], open_[1]->lane(), pieces[1]);
    for (size_t i = 0; i < 2; ++i) {
      if (!open_[i]) continue;
      if (!both && open_[i]->wants_sha256()) open_[i]->lane().update(pieces[i]);
      on_bytes_(pieces[i].size());
      if (!open_[i]->is_done()) continue;
      proofs_[open_[i]->index()] = open_[i]->finish();
      open_[i].reset();
    }
  }

  const std::vector<ProofTask>& tasks_;
  std::atomic<size_t>& next_;
  std::vector<FileProof>& proofs_;
  const std::function<void(uint64_t)>& on_bytes_;
  std::unique_ptr<std::byte[]> buffer_;
  std::array<std::optional<OpenProof>, 2> open_;
};

}  // namespace

std::vector<FileProof> prove_files(const std::vector<ProofTask>& tasks, ThreadTeam& team, const std::function<void(uint64_t)>& on_bytes) {
  std::vector<FileProof> proofs(tasks.size());
  // Every thread has a file before any has two.
  const size_t workers = std::min<size_t>(static_cast<size_t>(team.size()), tasks.size());
  std::atomic<size_t> next{workers};
  team.for_each(workers, [&](size_t first) { ProofWorker(tasks, next, proofs, on_bytes).run(first); });
  return proofs;
}

}  // namespace tierpack::verify
