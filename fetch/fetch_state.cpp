#include "fetch/fetch_state.h"

#include "base/error.h"
#include "base/log.h"
#include "fetch/http_client.h"
#include "fetch/part_file.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

// Three lines: the reference, the revision asked for (may be empty), the commit.
constexpr const char* kPinName = "pinned";
constexpr uint64_t kMaxPinBytes = 4096;

std::string pin_head(const Reference& asked) { return asked.text + "\n" + asked.revision + "\n"; }

}  // namespace

LockedState acquire_state(const Directory& target, bool wait) {
  std::string holder;
  for (bool told = false;;) {
    Directory state = target.below(kStateDirectory, true);
    if (auto lock = DirectoryLock::try_acquire(state, holder)) return {std::move(state), std::move(*lock)};
    if (holder.empty()) continue;
    if (!wait) {
      fail(ErrorKind::kIo, "another fetch is working in {} ({}); wait for it, or give --wait", target.path(), holder);
    }
    if (!told) log_info(fmt::format("waiting for another fetch in {} ({})", target.path(), holder));
    told = true;
    sleep_interruptibly(0.5);
  }
}

std::optional<std::string> read_pin(const fs::path& target, const Reference& asked) {
  std::error_code code;
  if (!fs::is_directory(target, code)) return std::nullopt;
  const auto state = Directory::open(target, false).find_below(kStateDirectory);
  const auto text = state ? state->read_small(kPinName, kMaxPinBytes) : std::nullopt;
  const std::string head = pin_head(asked);
  if (!text || !text->starts_with(head) || !text->ends_with("\n")) return std::nullopt;
  std::string commit = text->substr(head.size(), text->size() - head.size() - 1);
  const bool is_commit = commit.size() == 40 && commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_commit ? std::optional(std::move(commit)) : std::nullopt;
}

void write_pin(const Directory& state, const Reference& asked, const std::string& commit) {
  state.write_atomically(kPinName, pin_head(asked) + commit + "\n", 0600);
}

void clear_state(const Directory& target, LockedState& locked, const std::vector<DownloadTask>& tasks) {
  const Directory& state = locked.state;
  state.remove(kPinName);
  for (const DownloadTask& task : tasks) {
    for (const char* kind : {".part", ".journal", ".corrupt"}) state.remove(state_name(task.file.path) + kind);
  }
  for (const std::string& name : state.names()) {
    if (name.find(".tmp-") != std::string::npos) state.remove(name);
  }
  locked.lock.release_and_remove(state);
  target.remove_directory(kStateDirectory);
}

void write_by_state(const Directory& target, const Directory& state, const std::string& name, const std::string& content) {
  state.write_atomically(name, content, 0644);
  state.rename_into(name, target, name, true);
}

}  // namespace tierpack::fetch
