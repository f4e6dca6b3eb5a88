#include "verify/prove_file.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"

namespace tierpack::verify {

namespace {

// Half of a small core's second-level cache: what the system copies in is hashed while it is still there. Reading rather
// than mapping, because a bad disk block must be an error that can be reported, not a signal.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
// A cold file is asked for this far ahead, so that the disk works while a piece is hashed.
constexpr uint64_t kAheadBytes = uint64_t{16} << 20;

const char* promiser(const std::string& origin) {
  if (origin == "hub") return "promised by the hub";
  if (origin == "sums") return "promised by a checksum file";
  if (origin == "user") return "given by the user at download";
  if (origin == "cache") return "in the name of the cached blob";
  return "observed at download, promised by nobody";
}

}  // namespace

FileProof prove_file(const File& file, const PromisedFile& promise, const std::function<void(uint64_t)>& on_bytes) {
  const uint64_t size = file.size();
  const bool is_promised = promise.sha256 && promise.hash_origin != "observed";
  Sha256 sha256;
  std::optional<Sha1> git;
  if (promise.git_sha1 && !is_promised) {
    git.emplace();
    const std::string head = fmt::format("blob {}", size);
    git->update(as_bytes({head.c_str(), head.size() + 1}));  // with its NUL
  }
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
  for (uint64_t at = 0, asked = 0; at < size;) {
    if (asked < size && at + kAheadBytes / 2 >= asked) {
      ::posix_fadvise(file.fd(), static_cast<off_t>(asked), kAheadBytes, POSIX_FADV_WILLNEED);
      asked += kAheadBytes;
    }
    const MutableBytes piece{buffer.get(), std::min(kPieceBytes, size - at)};
    file.read_at(at, piece);
    if (promise.sha256) sha256.update(piece);
    if (git) git->update(piece);
    at += piece.size();
    on_bytes(piece.size());
  }

  FileProof out;
  if (promise.sha256) {
    const Sha256Digest found = sha256.finish();
    if (found != *promise.sha256) {
      out.problem = fmt::format("has SHA-256 {}, {} promises {}", found.hex(), promise.origin, promise.sha256->hex());
      return out;
    }
    out.proof = fmt::format("SHA-256, {}", promiser(promise.hash_origin));
  }
  if (git) {
    const std::string found = git->finish().hex();
    if (found != *promise.git_sha1) {
      out.problem = fmt::format("has git blob id {}, {} promises {}", found, promise.origin, *promise.git_sha1);
      return out;
    }
    const char* who = promise.hash_origin == "cache" ? "in the name of the cached blob" : "promised by the hub";
    out.proof = fmt::format("git blob id (SHA-1), {}{}", who, promise.sha256 ? "; SHA-256, observed at download" : "");
  }
  TIERPACK_CHECK(!out.proof.empty());
  out.equal = true;
  return out;
}

}  // namespace tierpack::verify
