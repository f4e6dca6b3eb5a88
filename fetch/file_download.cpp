#include "fetch/file_download.h"

#include <algorithm>

#include "fetch/range_transfer.h"
#include "formats/gguf.h"

namespace tierpack::fetch {

const char* phase_name(FilePhase phase) {
  switch (phase) {
    case FilePhase::kWaiting: return "waiting";
    case FilePhase::kChecking: return "checking";
    case FilePhase::kCopying: return "copying";
    case FilePhase::kDownloading: return "downloading";
    case FilePhase::kHashing: return "verifying";
    case FilePhase::kRereading: return "rereading";
    case FilePhase::kComparing: return "comparing";
    case FilePhase::kPublishing: return "flushing";
    case FilePhase::kDone: return "done";
    case FilePhase::kFailed: return "failed";
  }
  return "failed";
}

FileDownload::FileDownload(size_t number, const DownloadTask& wanted)
    : index(number), task(wanted), remote(wanted.file), total(wanted.file.size) {
  for (const Url& url : remote.urls) sources.emplace_back(url);
  if (!sources.empty()) {
    sources.front().is_origin = true;
    if (!remote.validator.empty()) sources.front().etag[1] = remote.validator;
  }
  std::tie(final_directory, final_name) = split_path(task.final_path);
  structure_pending = remote.path.ends_with(".gguf");
}

uint64_t FileDownload::have_bytes() const {
  if (phase == FilePhase::kDone) return outcome.size;
  if (phase == FilePhase::kCopying) return copied_bytes;
  return part ? part->extents().bytes() : 0;
}

std::vector<Extent> FileDownload::in_flight() const {
  std::vector<Extent> out;
  for (const RangeTransfer* transfer : transfers) {
    if (transfer->remaining().size() > 0) out.push_back(transfer->remaining());
  }
  return out;
}

std::optional<size_t> FileDownload::pick_source(Clock::time_point now) const {
  if (one_source) {
    const auto live = std::find_if(sources.begin(), sources.end(), [](const Source& s) { return !s.dead; });
    if (live == sources.end() || live->ready_at > now || live->resolving) return std::nullopt;
    return static_cast<size_t>(live - sources.begin());
  }
  for (const bool ranged : {true, false}) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const Source& source = sources[i];
      if (source.dead || source.ranges != ranged || source.ready_at > now) continue;
      if (source.resolving) return std::nullopt;  // better than any after it, and about to be known
      return i;
    }
    // A ranged source that is only waiting is better than giving up what is there for a whole body.
    if (ranged && std::any_of(sources.begin(), sources.end(), [](const Source& s) { return !s.dead && s.ranges; })) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

bool FileDownload::drop_foreign_bytes() {
  const auto origin = std::find_if(sources.begin(), sources.end(), [](const Source& s) { return s.is_origin && !s.dead; });
  if (one_source || origin == sources.end() || origin->wrote.extents().empty()) return false;
  for (Source& source : sources) {
    if (source.is_origin || source.wrote.extents().empty()) continue;
    part->forget(source.wrote);
    source.wrote.clear();
    suspects.push_back(source.url.origin());
  }
  if (suspects.empty()) return false;
  one_source = true;
  std::rotate(sources.begin(), origin, origin + 1);
  return true;
}

bool FileDownload::all_sources_dead() const {
  return std::all_of(sources.begin(), sources.end(), [](const Source& source) { return source.dead; });
}

std::optional<Clock::time_point> FileDownload::next_ready(Clock::time_point now) const {
  std::optional<Clock::time_point> first;
  for (const Source& source : sources) {
    if (source.dead) continue;
    if (source.ready_at <= now) {
      if (one_source) break;
      continue;
    }
    if (!first || source.ready_at < *first) first = source.ready_at;
    if (one_source) break;
  }
  return first;
}

namespace {

struct NotThereYet {};

// The file as it will be: full size, but only its first bytes can be read.
class GrowingSource final : public ByteSource {
 public:
  GrowingSource(const File& file, uint64_t available, uint64_t promised)
      : file_(file), available_(available), promised_(promised) {}
  uint64_t size() const override { return promised_; }
  void read_at(uint64_t offset, MutableBytes out) const override {
    if (offset > available_ || out.size() > available_ - offset) throw NotThereYet{};
    file_.read_at(offset, out);
  }
  const std::string& name() const override { return file_.name(); }

 private:
  const File& file_;
  uint64_t available_;
  uint64_t promised_;
};

}  // namespace

std::optional<std::string> check_gguf_prefix(const File& file, uint64_t available, uint64_t promised, bool& undecided) {
  undecided = false;
  try {
    const GrowingSource source(file, available, promised);
    std::array<std::byte, 4> magic{};
    source.read_at(0, magic);
    if (as_text(magic) != "GGUF") return std::nullopt;
    read_gguf_header(source);
    return std::nullopt;
  } catch (const NotThereYet&) {
    undecided = true;
    return std::nullopt;
  } catch (const Error& e) {
    // What we cannot read yet may still be a good file; only a contradiction in it is a reason to stop.
    if (e.kind() == ErrorKind::kCorrupt) return e.what();
    return std::nullopt;
  }
}

}  // namespace tierpack::fetch
