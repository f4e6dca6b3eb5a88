// How files begin, are proved, and end: the part of the download engine that deals with content rather than connections.
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include <algorithm>

#include "base/interrupt.h"
#include "fetch/download_engine.h"

namespace tierpack::fetch {

namespace {

constexpr uint64_t kFirstStructureCheck = uint64_t{64} << 10;
constexpr uint64_t kSmallFile = uint64_t{1} << 20;
constexpr uint64_t kCopyPiece = uint64_t{16} << 20;

std::string describe_other(const std::string& path, const std::string& found, const std::string& expected) {
  return fmt::format("{} exists with other content ({}, expected {}); it was left alone, --force replaces it", path,
                     found, expected);
}

bool is_lfs_pointer(const File& file) {
  constexpr std::string_view kHead = "version https://git-lfs.github.com/spec/";
  const uint64_t size = file.size();
  if (size < kHead.size() || size > 1024) return false;
  std::array<std::byte, kHead.size()> head{};
  file.read_at(0, head);
  return as_text(head) == kHead;
}

// Copies a whole file, sharing blocks where the file system can. Returns false when told to stop.
bool copy_content(const File& from, File& to, uint64_t size, std::atomic<uint64_t>& done, const std::atomic<bool>& stop) {
  if (::ioctl(to.fd(), FICLONE, from.fd()) == 0) {
    done = size;
    return true;
  }
  off_t in = 0;
  off_t out = 0;
  std::vector<std::byte> buffer;
  while (done < size) {
    if (stop || interrupted()) return false;
    const size_t step = std::min<uint64_t>(kCopyPiece, size - done);
    const ssize_t copied = ::copy_file_range(from.fd(), &in, to.fd(), &out, step, 0);
    if (copied > 0) {
      done += static_cast<uint64_t>(copied);
      continue;
    }
    // Across file systems or where it is not supported: by hand.
    buffer.resize(step);
    from.read_at(done, buffer);
    to.write_at(done, buffer);
    done += step;
    in = out = static_cast<off_t>(done.load());
  }
  return true;
}

// Why the file failed matters more than that its last bytes could not be kept as well.
void keep_part(PartFile& part) {
  try {
    part.checkpoint(part.snapshot());
  } catch (const Error&) {
  }
}

}  // namespace

void DownloadEngine::in_background(Background& where, std::function<void()> work, std::function<void()> then) {
  where.run([this, work = std::move(work), then = std::move(then)] {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    mailbox_.post([this, error, then] {
      if (error && !background_error_) background_error_ = error;
      if (!error) then();
    });
  });
}

void DownloadEngine::begin_file(FileDownload& file) {
  try {
    const auto directory = target_.find_below(file.final_directory);
    const EntryKind kind = directory ? directory->kind(file.final_name) : EntryKind::kAbsent;
    switch (kind) {
      case EntryKind::kAbsent:
        if (options_.offline) {
          return fail_file(file, ErrorKind::kCorrupt, fmt::format("{} is missing", target_.path_of(file.task.final_path)));
        }
        return begin_download(file);
      case EntryKind::kRegular: return check_existing(file, std::move(*directory->open_file(file.final_name, false)));
      case EntryKind::kLink:
        return fail_file(file, ErrorKind::kIo,
                         fmt::format("{} is a symbolic link; it was left alone", directory->path_of(file.final_name)));
      case EntryKind::kDirectory:
      case EntryKind::kOther:
        return fail_file(file, ErrorKind::kIo,
                         fmt::format("{} exists and is not a regular file", directory->path_of(file.final_name)));
    }
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kCapacity) throw;
    fail_file(file, e.kind(), e.what());
  }
}

void DownloadEngine::check_existing(FileDownload& file, File existing) {
  const uint64_t size = existing.size();
  if (file.total && *file.total != size) {
    if (options_.replace) return begin_download(file);
    return fail_file(file, ErrorKind::kCorrupt,
                     describe_other(existing.name(), fmt::format("{} bytes", size), fmt::format("{}", *file.total)));
  }
  if (!file.remote.sha256 && !file.remote.git_sha1 && !file.task.observed_before) {
    if (options_.offline) {
      return fail_file(file, ErrorKind::kCorrupt, existing.name() + " has no known hash to be held against");
    }
    return begin_download(file);
  }
  file.phase = FilePhase::kChecking;
  file.outcome.size = size;
  observer_.on_file_start(file.remote, size);
  const uint64_t generation = ++file.hash_generation;
  const auto blob = file.remote.git_sha1 ? std::optional(size) : std::nullopt;
  file.hash = hasher_.start(std::make_shared<File>(std::move(existing)), blob, [this, &file, generation](HashResult r) {
    mailbox_.post([this, &file, generation, r = std::move(r)] { on_hashed(file, generation, r); });
  });
  hasher_.close(file.hash, size);
}

void DownloadEngine::begin_download(FileDownload& file) {
  file.phase = FilePhase::kDownloading;
  file.part = std::make_shared<PartFile>(
      state_, file.remote.path,
      PartIdentity{.size = file.total, .sha256 = file.remote.sha256, .validator = file.remote.validator});
  if (!file.total) file.total = file.part->size();
  file.outcome.resumed_bytes = file.part->resumed_bytes();
  file.saved_at = Clock::now();
  observer_.on_file_start(file.remote, file.part->resumed_bytes());
  start_hash(file);
  if (file.part->resumed_bytes() == 0 && try_local_copy(file)) return;
  maybe_complete(file);
  fail_if_hopeless(file);
}

bool DownloadEngine::try_local_copy(FileDownload& file) {
  while (file.local_copies_tried < file.task.local_copies.size()) {
    const auto& path = file.task.local_copies[file.local_copies_tried++];
    std::shared_ptr<File> from;
    try {
      from = std::make_shared<File>(File::open(path, File::Mode::kRead));
    } catch (const Error& e) {
      if (file.sources.empty()) observer_.on_trouble(file.remote, e.what(), 0);
      continue;
    }
    const uint64_t size = from->size();
    if (file.total && *file.total != size) continue;
    file.phase = FilePhase::kCopying;
    file.copied_bytes = 0;
    auto copied = std::make_shared<bool>(false);
    auto problem = std::make_shared<std::string>();
    in_background(copier_,
                  [this, &file, from, part = file.part, size, copied, problem] {
                    try {
                      *copied = copy_content(*from, part->file(), size, file.copied_bytes, stop_copying_);
                    } catch (const Error& e) {
                      if (e.kind() == ErrorKind::kCapacity) throw;
                      *problem = e.what();
                    }
                  },
                  [this, &file, size, copied, problem] {
                    if (file.is_finished()) return;
                    if (!problem->empty()) return on_copy_failed(file, *problem);
                    if (!*copied) return;
                    file.total = size;
                    file.part->set_size(size);
                    file.part->adopt_bytes(size);
                    file.unsaved_bytes += size;
                    file.phase = FilePhase::kDownloading;
                    maybe_complete(file);
                  });
    return true;
  }
  return false;
}

// A copy that cannot be read is a source like any other: the next one is tried, then the network.
void DownloadEngine::on_copy_failed(FileDownload& file, const std::string& problem) {
  observer_.on_trouble(file.remote, problem, 0);
  file.phase = FilePhase::kDownloading;
  if (!try_local_copy(file)) fail_if_hopeless(file);
}

void DownloadEngine::start_hash(FileDownload& file) {
  const uint64_t generation = ++file.hash_generation;
  const auto blob = file.remote.git_sha1 ? file.total : std::nullopt;
  file.hash = hasher_.start(file.part->reader(), blob, [this, &file, generation](HashResult r) {
    mailbox_.post([this, &file, generation, r = std::move(r)] { on_hashed(file, generation, r); });
  });
}

void DownloadEngine::restart_part(FileDownload& file) {
  cancel_transfers(file);
  hasher_.cancel(file.hash);
  file.part->begin_anew();
  file.unsaved_bytes = 0;
  file.structure_pending = file.remote.path.ends_with(".gguf");
  file.structure_next = 0;
  for (Source& source : file.sources) {
    for (auto& etag : source.etag) etag.reset();
    for (auto& modified : source.last_modified) modified.reset();
    source.wrote.clear();
  }
  file.phase = FilePhase::kDownloading;
  start_hash(file);
  maybe_complete(file);  // an empty file has all its bytes again
}

void DownloadEngine::check_structure(FileDownload& file) {
  if (!options_.check_structure || !file.structure_pending || file.structure_running || !file.total) return;
  const uint64_t prefix = file.part->extents().prefix_end();
  if (prefix < std::min(*file.total, std::max(file.structure_next, kFirstStructureCheck))) return;
  file.structure_running = true;
  auto problem = std::make_shared<std::optional<std::string>>();
  auto undecided = std::make_shared<bool>(false);
  in_background(flusher_,
                [reader = file.part->reader(), prefix, total = *file.total, problem, undecided] {
                  *problem = check_gguf_prefix(*reader, prefix, total, *undecided);
                },
                [this, &file, prefix, problem, undecided, generation = file.hash_generation] {
                  file.structure_running = false;
                  if (file.is_finished() || generation != file.hash_generation) return;
                  file.structure_pending = *undecided && prefix < *file.total;
                  file.structure_next = prefix * 2;
                  if (*problem) return on_mismatch(file, **problem);
                  if (file.phase == FilePhase::kPublishing) publish(file);  // it was waiting for this
                });
}

void DownloadEngine::maybe_complete(FileDownload& file) {
  if (file.phase != FilePhase::kDownloading || !file.has_all_bytes()) return;
  cancel_transfers(file);
  file.phase = FilePhase::kHashing;
  check_structure(file);
  hasher_.close(file.hash, *file.total);
}

std::string DownloadEngine::mismatch_text(const FileDownload& file, const HashResult& result) const {
  if (file.remote.sha256 && result.sha256 != *file.remote.sha256) {
    return fmt::format("SHA-256 is {}, expected {} (from {})", result.sha256.hex(), file.remote.sha256->hex(),
                       file.remote.hash_origin);
  }
  if (file.remote.git_sha1 && result.git_sha1 && *result.git_sha1 != *file.remote.git_sha1) {
    return fmt::format("git blob id is {}, expected {}", *result.git_sha1, *file.remote.git_sha1);
  }
  return {};
}

void DownloadEngine::on_hashed(FileDownload& file, uint64_t generation, HashResult result) {
  if (generation != file.hash_generation || file.is_finished()) return;
  if (!result.error.empty()) return fail_file(file, ErrorKind::kIo, result.error);
  std::string problem = mismatch_text(file, result);
  switch (file.phase) {
    case FilePhase::kChecking: {
      const bool promised = file.remote.sha256 || file.remote.git_sha1;
      const bool equal = promised ? problem.empty() : result.sha256 == *file.task.observed_before;
      if (equal) {
        file.outcome.sha256 = result.sha256;
        return finish_file(file, FileOutcome::Status::kAlreadyThere);
      }
      if ((promised || options_.offline) && !options_.replace) {
        return fail_file(file, ErrorKind::kCorrupt,
                         fmt::format("{} exists with other content: {}; it was left alone, --force replaces it",
                                     target_.path_of(file.task.final_path), problem));
      }
      return begin_download(file);
    }
    case FilePhase::kComparing:
      if (result.sha256 == file.hash_result.sha256) {
        file.part->discard();
        return finish_file(file, FileOutcome::Status::kAlreadyThere);
      }
      return fail_file(file, ErrorKind::kCorrupt,
                       describe_other(target_.path_of(file.task.final_path), "SHA-256 " + result.sha256.hex(),
                                      file.hash_result.sha256.hex()));
    case FilePhase::kRereading:
      if (result.sha256 != file.hash_result.sha256) {
        return on_mismatch(file, fmt::format("the disk returns other bytes (SHA-256 {}) than were written ({})",
                                             result.sha256.hex(), file.hash_result.sha256.hex()));
      }
      return publish(file);
    default: break;
  }
  if (!problem.empty()) return on_mismatch(file, problem);
  if (!file.is_promised() && is_lfs_pointer(file.part->file())) {
    file.part->discard();
    return fail_file(file, ErrorKind::kCorrupt,
                     file.remote.path + " is only a Git LFS pointer, not the file; a hub gives files at /resolve/, not at /raw/");
  }
  file.hash_result = std::move(result);
  on_content_proved(file);
}

void DownloadEngine::on_content_proved(FileDownload& file) {
  file.outcome.sha256 = file.hash_result.sha256;
  file.outcome.size = *file.total;
  demote_suspects(file);
  if (options_.reread) return reread(file);
  publish(file);
}

void DownloadEngine::on_mismatch(FileDownload& file, const std::string& problem) {
  if (file.is_finished()) return;
  cancel_transfers(file);
  hasher_.cancel(file.hash);
  if (file.drop_foreign_bytes()) {
    observer_.on_trouble(file.remote, problem + "; fetching again from the origin what mirrors brought", 0);
    file.best_bytes = 0;
    file.unsaved_bytes = std::max<uint64_t>(file.unsaved_bytes, 1);
    file.phase = FilePhase::kDownloading;
    return start_hash(file);
  }
  ++file.mismatches;
  file.best_bytes = 0;
  // Another try for every further source, for bytes left by an earlier run or copied from elsewhere, and one for luck, or
  // a few if that costs little.
  const int tries = (file.total.value_or(0) <= kSmallFile ? 3 : 1) + static_cast<int>(std::max<size_t>(file.sources.size(), 1) - 1) +
                    (file.outcome.resumed_bytes > 0 || file.local_copies_tried > 0 ? 1 : 0);
  if (file.mismatches > tries || file.all_sources_dead()) {
    file.part->quarantine();
    file.part.reset();
    return fail_file(file, ErrorKind::kCorrupt,
                     fmt::format("{}; the bytes were kept as {}.corrupt", problem,
                                 state_.path_of(state_name(file.remote.path))));
  }
  observer_.on_trouble(file.remote, problem + "; fetching it again from the start", 0);
  // Which source lied cannot be told from mixed bytes. From now on one source at a time, the origin first.
  if (!file.one_source) {
    file.one_source = file.sources.size() > 1;
    std::stable_partition(file.sources.begin(), file.sources.end(), [](const Source& s) { return s.is_origin; });
  } else {
    std::rotate(file.sources.begin(), file.sources.begin() + 1, file.sources.end());
  }
  restart_part(file);
}

void DownloadEngine::reread(FileDownload& file) {
  file.phase = FilePhase::kRereading;
  in_background(flusher_,
                [part = file.part] { part->flush_from_cache(); },
                [this, &file, generation = file.hash_generation] {
                  if (file.is_finished() || generation != file.hash_generation) return;  // its structure is wrong
                  start_hash(file);
                  hasher_.close(file.hash, *file.total);
                });
}

void DownloadEngine::publish(FileDownload& file) {
  file.phase = FilePhase::kPublishing;
  if (options_.check_structure && file.structure_pending) {
    check_structure(file);
    if (file.structure_running) return;  // comes back here
  }
  if (file.structure_running) return;
  auto renamed = std::make_shared<bool>(false);
  auto problem = std::make_shared<std::optional<Error>>();
  in_background(flusher_,
                [this, &file, part = file.part, content = file.outcome.sha256, renamed, problem] {
                  try {
                    const Directory directory = target_.below(file.final_directory, true);
                    *renamed = part->publish(directory, file.final_name, options_.file_mode, options_.replace, content);
                  } catch (const Error& e) {
                    if (e.kind() == ErrorKind::kCapacity) throw;
                    *problem = e;
                  }
                },
                [this, &file, renamed, problem] {
                  if (*problem) return fail_file(file, (*problem)->kind(), (*problem)->what());
                  on_published(file, *renamed);
                });
}

void DownloadEngine::on_published(FileDownload& file, bool renamed) {
  if (renamed) return finish_file(file, FileOutcome::Status::kFetched);
  // The name is taken by something nobody could judge before: the same content is fine.
  try {
    const Directory directory = target_.below(file.final_directory, false);
    auto existing = directory.open_file(file.final_name, false);
    if (!existing) return publish(file);
    const uint64_t size = existing->size();
    if (size != *file.total) {
      return fail_file(file, ErrorKind::kCorrupt,
                       describe_other(existing->name(), fmt::format("{} bytes", size), fmt::format("{}", *file.total)));
    }
    file.phase = FilePhase::kComparing;
    const uint64_t generation = ++file.hash_generation;
    file.hash = hasher_.start(std::make_shared<File>(std::move(*existing)), std::nullopt,
                              [this, &file, generation](HashResult r) {
                                mailbox_.post([this, &file, generation, r = std::move(r)] { on_hashed(file, generation, r); });
                              });
    hasher_.close(file.hash, size);
  } catch (const Error& e) {
    fail_file(file, e.kind(), e.what());
  }
}

void DownloadEngine::finish_file(FileDownload& file, FileOutcome::Status status) {
  file.phase = FilePhase::kDone;
  file.outcome.status = status;
  if (!file.total) file.total = file.outcome.size;
  file.part.reset();
  file.hash.reset();
  ++files_done_;
  observer_.on_file_end(file.remote, file.outcome);
}

void DownloadEngine::fail_file(FileDownload& file, ErrorKind kind, const std::string& message) {
  if (file.is_finished()) return;
  cancel_transfers(file);
  if (file.hash) hasher_.cancel(file.hash);
  if (file.part) keep_part(*file.part);
  file.phase = FilePhase::kFailed;
  file.outcome.status = FileOutcome::Status::kFailed;
  file.outcome.kind = kind;
  file.outcome.message = redacted(message);
  file.part.reset();
  file.hash.reset();
  ++files_done_;
  observer_.on_file_end(file.remote, file.outcome);
}

}  // namespace tierpack::fetch
