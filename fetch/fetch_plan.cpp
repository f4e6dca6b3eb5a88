#include "fetch/fetch_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <regex>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "fetch/journal.h"
#include "fetch/part_file.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

// Bytes of a file that are on the disk already and need no more room.
uint64_t held_bytes(const fs::path& target, const DownloadTask& task) {
  struct stat info {};
  const fs::path final_path = target / task.final_path;
  if (::lstat(final_path.c_str(), &info) == 0) {
    return S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == task.file.size.value_or(0)
               ? static_cast<uint64_t>(info.st_size)
               : 0;
  }
  const fs::path state = target / kStateDirectory;
  const std::string name = state_name(task.file.path);
  const fs::path part = state / (name + ".part");
  if (::lstat(part.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return 0;
  const fs::path journal_path = state / (name + ".journal");
  struct stat journal_info {};
  // A FIFO would never end.
  if (::lstat(journal_path.c_str(), &journal_info) != 0 || !S_ISREG(journal_info.st_mode)) return 0;
  try {
    const auto journal = parse_journal(read_text_file(journal_path, kMaxJournalBytes));
    const uint64_t allocated = static_cast<uint64_t>(info.st_blocks) * 512;
    return journal ? std::min(journal->extents.bytes(), allocated) : 0;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

// Keeps what is selected; an include pattern that matches nothing is a mistake worth stopping for.
void select_files(const Selection& selection, Listing& listing) {
  // What the hub's client leaves in directories people upload; it does not fetch it either.
  std::erase_if(listing.files, [](const RemoteFile& file) { return file.path.starts_with(".cache/huggingface/"); });
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files) names.push_back(file.path);
  for (const std::string& pattern : selection.include) {
    const Selection one{.include = {pattern}, .exclude = {}};
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return one.selects(name); })) continue;
    std::vector<std::string> nearest = nearest_names(pattern, names, 5);
    for (std::string& name : nearest) name = printable(name);  // not checked yet
    fail(ErrorKind::kUsage, "--include '{}' matches none of the {} files of {}; the nearest names are: {}", pattern,
         names.size(), listing.source, fmt::join(nearest, ", "));
  }
  if (listing.files.empty()) fail(ErrorKind::kRefused, "{} holds no file", listing.source);
  std::erase_if(listing.files, [&](const RemoteFile& file) { return !selection.selects(file.path); });
  if (listing.files.empty()) fail(ErrorKind::kUsage, "--exclude leaves no file of {}", listing.source);
}

// "x-00001-of-00003.gguf" without its siblings is of no use to anybody.
void warn_incomplete_sets(const Listing& listing) {
  static const std::regex kShard(R"((.*)-(\d{5})-of-(\d{5})(\..*)?)");
  std::map<std::string, std::pair<size_t, size_t>> sets;  // name of the set -> found, expected
  for (const RemoteFile& file : listing.files) {
    std::smatch match;
    if (!std::regex_match(file.path, match, kShard)) continue;
    auto& [found, expected] = sets[match[1].str() + "-*-of-" + match[3].str() + match[4].str()];
    ++found;
    expected = std::stoul(match[3].str());
  }
  for (const auto& [name, counts] : sets) {
    if (counts.first < counts.second) {
      log_warning(fmt::format("{}: only {} of {} shards are selected", name, counts.first, counts.second));
    }
  }
}

void warn_of_pickles(const Listing& listing) {
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files) {
    for (const char* end : {".pt", ".pth", ".pkl", ".pickle", ".ckpt", "pytorch_model.bin"}) {
      if (file.path.ends_with(end)) names.push_back(file.path);
    }
  }
  if (names.empty()) return;
  log_warning(fmt::format("{}{}: such files can run code when other tools load them; --exclude leaves them out", names.front(),
                          names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : ""));
}

std::vector<DownloadTask> make_tasks(const Listing& listing, const std::optional<Lock>& earlier) {
  std::map<std::string, const LockFile*> locked;
  if (earlier && earlier->source == recorded_source(listing.source)) {
    for (const LockFile& file : earlier->files) locked[file.path] = &file;
  }
  std::vector<DownloadTask> tasks;
  for (const RemoteFile& file : listing.files) {
    DownloadTask task{.file = file, .final_path = file.path, .local_copies = {}, .observed_before = {}};
    for (const Url& url : file.urls) {
      if (url.is_file()) task.local_copies.emplace_back(url.decoded_path());
    }
    std::erase_if(task.file.urls, [](const Url& url) { return url.is_file(); });
    // Bytes of different servers may be joined only if a hash proves the result.
    if (!file.sha256 && !file.git_sha1 && task.file.urls.size() > 1) {
      task.file.urls.erase(task.file.urls.begin() + 1, task.file.urls.end());
    }
    if (const auto at = locked.find(file.path); at != locked.end()) task.observed_before = at->second->sha256;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

SpaceNeed space_need(const fs::path& target, const std::vector<DownloadTask>& tasks) {
  SpaceNeed need;
  for (const DownloadTask& task : tasks) {
    if (!task.file.size) {
      ++need.unknown;
      continue;
    }
    need.total += *task.file.size;
    need.missing += *task.file.size - std::min(*task.file.size, held_bytes(target, task));
  }
  need.margin = std::min(need.missing / 100, uint64_t{1} << 30);
  need.available = free_disk_bytes(target);
  return need;
}

std::string space_text(const SpaceNeed& need, const fs::path& target) {
  return fmt::format("{} to fetch, {} free in {}", format_size(need.missing), format_size(need.available), target.string());
}

void print_plan(const Listing& listing, const std::vector<DownloadTask>& tasks, const fs::path& target,
                const SpaceNeed& need, bool json) {
  if (json) {
    Json files = Json::array();
    for (const DownloadTask& task : tasks) {
      files.push_back({{"path", task.file.path},
                       {"size", task.file.size ? Json(*task.file.size) : Json()},
                       {"sha256", task.file.sha256 ? Json(task.file.sha256->hex()) : Json()},
                       {"held_bytes", held_bytes(target, task)}});
    }
    const Json event = {{"event", "plan"},          {"source", listing.source},        {"revision", listing.revision},
                        {"total_bytes", need.total}, {"missing_bytes", need.missing},   {"free_bytes", need.available},
                        {"fits", need.fits()},       {"files", std::move(files)}};
    fmt::print("{}\n", event.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}{}\n", listing.source, listing.revision.empty() ? "" : " at " + listing.revision);
    for (const DownloadTask& task : tasks) {
      const uint64_t held = held_bytes(target, task);
      fmt::print("  {:>10}  {}  {}{}\n", task.file.size ? format_size(*task.file.size) : "?",
                 task.file.sha256 ? task.file.sha256->hex().substr(0, 16) : task.file.git_sha1 ? "git " + task.file.git_sha1->substr(0, 12)
                                                                                               : "no known hash   ",
                 task.file.path, held > 0 ? fmt::format("  ({} there)", format_size(held)) : "");
    }
    fmt::print("{} file{}, {}; {}{}\n", tasks.size(), tasks.size() == 1 ? "" : "s", format_size(need.total),
               space_text(need, target), need.fits() ? "" : ": DOES NOT FIT");
  }
}

Lock make_lock(const Listing& listing, const std::function<const FileOutcome&(const RemoteFile&)>& outcome_of,
               const std::optional<Lock>& earlier) {
  Lock lock{.source = recorded_source(listing.source), .endpoint = listing.endpoint, .revision = listing.revision, .files = {}};
  for (const RemoteFile& file : listing.files) {
    const FileOutcome& outcome = outcome_of(file);
    // A signature is worthless tomorrow and nobody's business.
    const Url& url = file.urls.front();
    const bool is_signed = signed_until(url).has_value();
    lock.files.push_back({.path = file.path,
                          .size = outcome.size,
                          .sha256 = outcome.sha256,
                          .hash_origin = file.sha256 ? file.hash_origin : "observed",
                          .git_sha1 = file.git_sha1,
                          .url = is_signed ? url.origin().text() + url.path() : url.without_secrets()});
  }
  // Another selection of the same revision into the same directory adds to the lock.
  if (earlier && earlier->source == lock.source && earlier->revision == lock.revision) {
    for (const LockFile& old : earlier->files) {
      const bool renewed = std::any_of(lock.files.begin(), lock.files.end(),
                                       [&](const LockFile& file) { return file.path == old.path; });
      if (!renewed) lock.files.push_back(old);
    }
  }
  std::sort(lock.files.begin(), lock.files.end(), [](const LockFile& a, const LockFile& b) { return a.path < b.path; });
  return lock;
}

}  // namespace tierpack::fetch
