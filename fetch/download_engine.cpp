#include "fetch/download_engine.h"

#include <curl/curl.h>

#include <algorithm>

#include "base/interrupt.h"

namespace tierpack::fetch {

namespace {

constexpr double kWindowSeconds = 2;     // one measurement for the number of connections
constexpr double kReportSeconds = 0.1;
constexpr uint64_t kMinRange = uint64_t{16} << 20;
constexpr uint64_t kMaxRange = uint64_t{256} << 20;
constexpr int kMaxResolves = 4;  // hubs count requests for file locations
constexpr uint64_t kMinSplit = uint64_t{4} << 20;  // a connection is not worth starting for less

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct DownloadEngine::MultiHandle {
  CURLM* multi = curl_multi_init();
  MultiHandle() { TIERPACK_CHECK(multi != nullptr); }
  ~MultiHandle() { curl_multi_cleanup(multi); }
  MultiHandle(const MultiHandle&) = delete;
  MultiHandle& operator=(const MultiHandle&) = delete;
};

DownloadEngine::DownloadEngine(const Directory& target, const std::vector<DownloadTask>& tasks,
                               const DownloadOptions& options, const Credentials& credentials,
                               DownloadObserver& observer)
    : target_(target),
      options_(options),
      credentials_(credentials),
      observer_(observer),
      state_(options.offline ? target.below("", false) : target.below(kStateDirectory, true)),
      multi_(std::make_unique<MultiHandle>()),
      control_(options.connections > 0 ? options.connections : options.first_connections,
               options.connections > 0 ? options.connections : options.most_connections),
      limit_(options.limit_bytes_per_s),
      window_start_(Clock::now()),
      random_(std::random_device{}()),
      mailbox_([this] { curl_multi_wakeup(multi_->multi); }),
      hasher_(options.hash_threads) {
  for (size_t i = 0; i < tasks.size(); ++i) files_.push_back(std::make_unique<FileDownload>(i, tasks[i]));
}

DownloadEngine::~DownloadEngine() {
  stop_copying_ = true;
  stop_all_transfers();
}

std::vector<FileOutcome> DownloadEngine::run() {
  try {
    while (files_done_ < files_.size()) step();
  } catch (...) {
    // Whatever ends the run, what has arrived is kept.
    stop_copying_ = true;
    stop_all_transfers();
    save_journals(true);
    throw;
  }
  report(true);
  std::vector<FileOutcome> outcomes;
  for (const auto& file : files_) outcomes.push_back(file->outcome);
  return outcomes;
}

void DownloadEngine::step() {
  throw_if_interrupted();
  mailbox_.run_all();
  if (background_error_) std::rethrow_exception(background_error_);
  activate_files();
  start_transfers();
  resume_paused();
  int running = 0;
  curl_multi_perform(multi_->multi, &running);
  collect_finished();
  feed_hashers();
  save_journals(false);
  measure();
  report(false);
  std::erase_if(active_, [](const FileDownload* file) { return file->is_finished(); });
  if (files_done_ < files_.size()) curl_multi_poll(multi_->multi, nullptr, 0, poll_timeout_ms(), nullptr);
}

int DownloadEngine::poll_timeout_ms() const {
  double wait = 0.1;
  const auto now = Clock::now();
  const bool paused = std::any_of(transfers_.begin(), transfers_.end(), [](const auto& t) { return t->is_paused(); });
  if (paused) wait = std::min(wait, limit_.wait());
  for (const FileDownload* file : active_) {
    if (file->phase != FilePhase::kDownloading) continue;
    if (const auto at = file->next_ready(now)) wait = std::min(wait, seconds_between(now, *at));
  }
  return std::max(1, static_cast<int>(wait * 1000));
}

void DownloadEngine::activate_files() {
  while (next_file_ < files_.size() && active_.size() < static_cast<size_t>(std::max(1, options_.files_at_once))) {
    FileDownload& file = *files_[next_file_++];
    active_.push_back(&file);
    begin_file(file);
    if (file.is_finished()) active_.pop_back();
  }
}

uint64_t DownloadEngine::range_bytes(const FileDownload& file) const {
  if (options_.range_bytes > 0) return options_.range_bytes;
  return std::clamp(file.total.value_or(0) / 32, kMinRange, kMaxRange);
}

void DownloadEngine::start_transfers() {
  while (static_cast<int>(transfers_.size()) < control_.target()) {
    // The file with the fewest connections first; among equals the earliest, which completes soonest.
    std::vector<FileDownload*> candidates;
    for (FileDownload* file : active_) {
      if (file->phase == FilePhase::kDownloading) candidates.push_back(file);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const FileDownload* a, const FileDownload* b) {
      return a->transfers.size() < b->transfers.size();
    });
    const bool started = std::any_of(candidates.begin(), candidates.end(),
                                     [this](FileDownload* file) { return start_transfer(*file); });
    if (!started && !split_transfer()) {
      window_was_full_ = false;
      break;
    }
  }
}

int DownloadEngine::resolves_under_way() const {
  return static_cast<int>(std::count_if(transfers_.begin(), transfers_.end(), [](const auto& transfer) {
    return transfer->is_resolver() && transfer->source().resolving;
  }));
}

bool DownloadEngine::start_transfer(FileDownload& file) {
  const auto choice = file.pick_source(Clock::now());
  if (!choice) return false;
  Source& source = file.sources[*choice];
  if (options_.has_hub_headers && !source.located && resolves_under_way() >= kMaxResolves) return false;
  if (!source.ranges) file.one_stream = true;
  if (file.one_stream || !file.total) {
    if (!file.transfers.empty()) return false;
    if (file.one_stream && !file.is_promised() && !file.part->extents().extents().empty()) restart_part(file);
    const uint64_t from = file.one_stream ? 0 : file.part->extents().prefix_end();
    launch(file, *choice, {from, from}, true, false);
    return true;
  }
  const Extent range = next_range(file.part->extents(), file.in_flight(), *file.total, range_bytes(file));
  if (range.size() == 0) return false;
  launch(file, *choice, range, false, std::exchange(source.probe_next, false));
  return true;
}

// Nothing is left to begin: the largest range under way gives its second half to a further connection.
bool DownloadEngine::split_transfer() {
  if (next_file_ < files_.size()) return false;
  const uint64_t least = std::min(kMinSplit, std::max<uint64_t>(options_.range_bytes, 1));
  RangeTransfer* largest = nullptr;
  for (const auto& transfer : transfers_) {
    const FileDownload& file = transfer->file();
    if (file.one_stream || transfer->is_open_ended() || transfer->is_abandoned() || transfer->is_probe()) continue;
    if (transfer->remaining().size() < 2 * least) continue;
    if (largest == nullptr || transfer->remaining().size() > largest->remaining().size()) largest = transfer.get();
  }
  if (largest == nullptr) return false;
  FileDownload& file = largest->file();
  const auto choice = file.pick_source(Clock::now());
  if (!choice || !file.sources[*choice].ranges) return false;
  const Extent whole = largest->remaining();
  const uint64_t middle = whole.begin + whole.size() / 2;
  largest->shorten(middle);
  launch(file, *choice, {middle, whole.end}, false, false);
  return true;
}

void DownloadEngine::launch(FileDownload& file, size_t source, Extent range, bool open_ended, bool probe) {
  std::unique_ptr<RangeTransfer> transfer;
  if (idle_.empty()) {
    transfer = std::make_unique<RangeTransfer>(options_, credentials_, limit_);
  } else {
    transfer = std::move(idle_.back());
    idle_.pop_back();
  }
  transfer->begin(file, source, range, open_ended, probe);
  file.transfers.push_back(transfer.get());
  CURL* const easy = transfer->exchange().handle();
  curl_easy_setopt(easy, CURLOPT_PRIVATE, static_cast<void*>(transfer.get()));
  curl_multi_add_handle(multi_->multi, easy);
  transfers_.push_back(std::move(transfer));
}

void DownloadEngine::collect_finished() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    CURL* const easy = message->easy_handle;
    char* self = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &self);
    auto* const transfer = reinterpret_cast<RangeTransfer*>(self);
    curl_multi_remove_handle(multi_->multi, easy);
    note_rate_limit(*transfer);
    if (transfer->judged() && transfer->decision().verdict == Verdict::kRedirect && !transfer->is_abandoned() &&
        transfer->follow()) {
      CURL* const next = transfer->exchange().handle();
      curl_easy_setopt(next, CURLOPT_PRIVATE, static_cast<void*>(transfer));
      curl_multi_add_handle(multi_->multi, next);
      continue;
    }
    const auto at = std::find_if(transfers_.begin(), transfers_.end(),
                                 [&](const auto& owned) { return owned.get() == transfer; });
    std::unique_ptr<RangeTransfer> owned = std::move(*at);
    transfers_.erase(at);
    std::erase(owned->file().transfers, transfer);
    received_bytes_ += owned->received();
    owned->file().outcome.downloaded_bytes += owned->received();
    on_transfer_end(*owned, code);
    idle_.push_back(std::move(owned));
  }
}

void DownloadEngine::stop_all_transfers() {
  for (const auto& transfer : transfers_) {
    curl_multi_remove_handle(multi_->multi, transfer->exchange().handle());
    std::erase(transfer->file().transfers, transfer.get());
  }
  transfers_.clear();
}

void DownloadEngine::cancel_transfers(FileDownload& file) {
  for (RangeTransfer* transfer : file.transfers) {
    curl_multi_remove_handle(multi_->multi, transfer->exchange().handle());
    if (transfer->is_resolver()) transfer->source().resolving = false;
    const auto at = std::find_if(transfers_.begin(), transfers_.end(),
                                 [&](const auto& owned) { return owned.get() == transfer; });
    received_bytes_ += transfer->received();
    file.outcome.downloaded_bytes += transfer->received();
    idle_.push_back(std::move(*at));
    transfers_.erase(at);
  }
  file.transfers.clear();
}

void DownloadEngine::feed_hashers() {
  for (FileDownload* file : active_) {
    if (file->phase != FilePhase::kDownloading || !file->part) continue;
    hasher_.extend(file->hash, file->part->extents().prefix_end());
    check_structure(*file);
  }
}

void DownloadEngine::save_journals(bool all) {
  const auto now = Clock::now();
  for (FileDownload* file : active_) {
    if (!file->part || file->is_finished() || file->phase == FilePhase::kPublishing) continue;
    if (all) {
      // The run is ending; a failure here must not hide why.
      try {
        file->part->checkpoint(file->part->snapshot());
      } catch (const Error&) {
      }
      continue;
    }
    const bool due = file->unsaved_bytes >= options_.journal_bytes ||
                     (file->unsaved_bytes > 0 && seconds_between(file->saved_at, now) >= options_.journal_s);
    if (file->phase != FilePhase::kDownloading || !due || file->checkpoint_running) continue;
    file->checkpoint_running = true;
    file->unsaved_bytes = 0;
    file->saved_at = now;
    in_background(flusher_, [part = file->part, snapshot = file->part->snapshot()] { part->checkpoint(snapshot); },
                  [file] { file->checkpoint_running = false; });
  }
}

void DownloadEngine::measure() {
  const auto now = Clock::now();
  const double seconds = seconds_between(window_start_, now);
  if (seconds < kWindowSeconds) return;
  uint64_t received = received_bytes_;
  for (const auto& transfer : transfers_) received += transfer->received();
  const double rate = static_cast<double>(received - std::min(received, window_bytes_)) / seconds;
  if (window_was_full_) {
    control_.on_window(rate);
  }
  window_bytes_ = received;
  window_start_ = now;
  window_was_full_ = true;
}

void DownloadEngine::resume_paused() {
  if (!limit_.is_limited()) return;
  limit_.advance(seconds_between(start_, Clock::now()));
  // Each turn begins with another one, so that none starves.
  for (size_t i = 0; i < transfers_.size() && limit_.has_room(); ++i) {
    RangeTransfer& transfer = *transfers_[(i + resume_turn_) % transfers_.size()];
    if (transfer.is_paused()) transfer.resume();
  }
  ++resume_turn_;
}

void DownloadEngine::report(bool now) {
  const auto time = Clock::now();
  if (!now && seconds_between(last_report_, time) < kReportSeconds) return;
  last_report_ = time;
  DownloadProgress progress;
  progress.files = files_.size();
  progress.files_done = files_done_;
  progress.connections = static_cast<int>(transfers_.size());
  progress.received_bytes = received_bytes_;
  for (const auto& transfer : transfers_) progress.received_bytes += transfer->received();
  std::vector<FileProgress> active;
  for (const auto& file : files_) {
    progress.total_bytes += file->total.value_or(0);
    progress.have_bytes += file->have_bytes();
  }
  for (const FileDownload* file : active_) {
    active.push_back({.path = &file->remote.path,
                      .phase = file->phase,
                      .size = file->total,
                      .have_bytes = file->have_bytes(),
                      .hashed_bytes = file->hash ? hasher_.hashed(file->hash) : 0,
                      .connections = static_cast<int>(file->transfers.size())});
  }
  progress.active = active;
  observer_.on_progress(progress);
}

std::vector<FileOutcome> download_files(const Directory& target, const std::vector<DownloadTask>& tasks,
                                        const DownloadOptions& options, const Credentials& credentials,
                                        DownloadObserver& observer) {
  DownloadEngine engine(target, tasks, options, credentials, observer);
  return engine.run();
}

}  // namespace tierpack::fetch
