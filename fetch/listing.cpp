#include "fetch/listing.h"

#include <cctype>
#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "formats/lock.h"

namespace tierpack::fetch {

namespace {

constexpr size_t kMaxFiles = 1'000'000;
constexpr size_t kMaxPathBytes = 4096;

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size() || (length == 2 && lead < 0xc2)) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

// `path` in lower case: to a file system that ignores case .GIT is .git.
bool has_reserved_component(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (name == kStateDirectory || name == ".git" || name == ".cache") return true;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return false;
}

}  // namespace

void check_count(const Listing& listing) {
  if (listing.files.size() <= kMaxFiles) return;
  fail(ErrorKind::kCorrupt, "{} lists {} files, more than the {} that are believed", listing.source, listing.files.size(),
       kMaxFiles);
}

void check_listing(const Listing& listing) {
  check_count(listing);
  std::map<std::string, std::string> folded;  // lower case -> as listed
  std::map<std::string, std::string> directories;
  for (const RemoteFile& file : listing.files) {
    const std::string shown = printable(file.path);
    if (file.path.size() > kMaxPathBytes || !is_utf8(file.path) || !is_safe_relative_path(file.path)) {
      fail(ErrorKind::kCorrupt, "{} lists the name '{}', which could leave the target directory; nothing was written",
           listing.source, shown);
    }
    std::string key = file.path;
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (has_reserved_component(key) || key == kLockFileName) {
      fail(ErrorKind::kCorrupt, "{} lists the name '{}', which is reserved; leave it out with --exclude",
           listing.source, shown);
    }
    const auto [at, fresh] = folded.emplace(key, file.path);
    if (!fresh) {
      fail(ErrorKind::kCorrupt, "{} lists '{}' and '{}', which differ at most in case; leave one out with --exclude",
           listing.source, printable(at->second), shown);
    }
    for (size_t slash = key.find('/'); slash != std::string::npos; slash = key.find('/', slash + 1)) {
      directories.emplace(key.substr(0, slash), file.path);
    }
  }
  for (const auto& [key, path] : folded) {
    if (const auto at = directories.find(key); at != directories.end()) {
      fail(ErrorKind::kCorrupt, "{} lists '{}' as a file and '{}' below it", listing.source, printable(path),
           printable(at->second));
    }
  }
}

}  // namespace tierpack::fetch
