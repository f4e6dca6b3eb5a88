#include "formats/lock.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace tierpack {
namespace {

constexpr const char* kFormat = "tierpack-lock";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kLockBytesMax = uint64_t{16} << 20;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 62;

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
         });
}

// Values that end up in requests and on terminals.
bool is_printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// A refused value for an error message.
std::string shown(const std::string& text) {
  constexpr size_t kLongest = 200;
  const std::string quoted = Json(text.substr(0, kLongest)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kLongest ? quoted + "..." : quoted;
}

std::string printable_string(const Json& object, const char* key, const std::string& source) {
  std::string value = json_string(object, key, source);
  if (!is_printable(value)) fail(ErrorKind::kCorrupt, "{}: '{}' holds control characters", source, key);
  return value;
}

LockFile parse_file(const Json& entry, const std::string& source) {
  LockFile file;
  file.path = json_string(entry, "path", source);
  if (!is_safe_relative_path(file.path)) {
    fail(ErrorKind::kCorrupt, "{}: {} is not a path that may be used below a directory", source, shown(file.path));
  }
  file.size = json_u64(entry, "size", source);
  if (file.size > kFileBytesMax) {
    fail(ErrorKind::kCorrupt, "{}: '{}' has the impossible size of {} bytes", source, file.path, file.size);
  }
  const std::string sha256 = json_string(entry, "sha256", source);
  if (!from_hex(sha256, file.sha256.bytes)) {
    fail(ErrorKind::kCorrupt, "{}: the sha256 of '{}' is not 64 hex digits", source, file.path);
  }
  file.hash_origin = json_string(entry, "hash_origin", source);
  constexpr std::string_view kOrigins[] = {"hub", "sums", "user", "observed"};
  if (std::find(std::begin(kOrigins), std::end(kOrigins), file.hash_origin) == std::end(kOrigins)) {
    fail(ErrorKind::kCorrupt, "{}: the hash_origin of '{}' is {}; known are hub, sums, user and observed", source,
         file.path, shown(file.hash_origin));
  }
  if (entry.contains("git_sha1")) {
    file.git_sha1 = json_string(entry, "git_sha1", source);
    if (!is_hex(*file.git_sha1, 40)) {
      fail(ErrorKind::kCorrupt, "{}: the git_sha1 of '{}' is not 40 hex digits", source, file.path);
    }
  }
  file.url = printable_string(entry, "url", source);
  return file;
}

// Sorts by path; refuses two entries for one path and a file where another needs a directory.
void sort_and_check(std::vector<LockFile>& files, const std::string& source) {
  std::sort(files.begin(), files.end(), [](const LockFile& a, const LockFile& b) { return a.path < b.path; });
  std::set<std::string_view> paths;
  for (const LockFile& file : files) {
    if (!paths.insert(file.path).second) fail(ErrorKind::kCorrupt, "{}: '{}' is listed twice", source, file.path);
  }
  for (const LockFile& file : files) {
    for (size_t slash = file.path.find('/'); slash != std::string::npos; slash = file.path.find('/', slash + 1)) {
      const std::string_view parent = std::string_view(file.path).substr(0, slash);
      if (paths.contains(parent)) {
        fail(ErrorKind::kCorrupt, "{}: '{}' is listed as a file and as the folder of '{}'", source, parent, file.path);
      }
    }
  }
}

}  // namespace

Lock parse_lock(std::string_view text, const std::string& source) {
  JsonLimits limits;
  limits.max_bytes = kLockBytesMax;
  limits.max_depth = 8;
  const Json root = parse_json(text, source, limits);
  if (json_string(root, "format", source) != kFormat) {
    fail(ErrorKind::kCorrupt, "{}: this is not a tierpack lock file: 'format' is not '{}'", source, kFormat);
  }
  if (const uint64_t version = json_u64(root, "version", source); version != kVersion) {
    fail(ErrorKind::kUnsupported, "{}: lock file version {}; this program reads version {}", source, version, kVersion);
  }
  Lock lock;
  lock.source = printable_string(root, "source", source);
  lock.endpoint = printable_string(root, "endpoint", source);
  lock.revision = printable_string(root, "revision", source);
  const Json& files = json_member(root, "files", source);
  if (!files.is_array()) fail(ErrorKind::kCorrupt, "{}: 'files' is not an array", source);
  for (const Json& entry : files) lock.files.push_back(parse_file(entry, source));
  sort_and_check(lock.files, source);
  return lock;
}

std::string encode_lock(const Lock& lock) {
  std::vector<LockFile> sorted = lock.files;
  sort_and_check(sorted, lock.source);
  Json files = Json::array();
  for (const LockFile& file : sorted) {
    Json entry = {
        {"path", file.path}, {"size", file.size}, {"sha256", file.sha256.hex()}, {"hash_origin", file.hash_origin}};
    if (file.git_sha1) entry["git_sha1"] = *file.git_sha1;
    entry["url"] = file.url;
    files.push_back(std::move(entry));
  }
  return dump_json({{"format", kFormat},
                    {"version", kVersion},
                    {"source", lock.source},
                    {"endpoint", lock.endpoint},
                    {"revision", lock.revision},
                    {"files", std::move(files)}});
}

Lock read_lock(const std::filesystem::path& path) {
  return parse_lock(read_text_file(path, kLockBytesMax), path.string());
}

void write_lock(const std::filesystem::path& path, const Lock& lock) {
  write_file_atomically(path, as_bytes(encode_lock(lock)));
}

std::vector<LockFile> parse_sha256sums(std::string_view text, const std::string& source) {
  std::vector<LockFile> files;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;

    // "<64 hex> <space or *><path>", as sha256sum writes it, or "SHA256 (<path>) = <64 hex>", as sha256sum --tag and BSD's
    // sha256 do; "./" in front of the path is dropped.
    LockFile file;
    std::string_view hex = line.substr(0, std::min<size_t>(64, line.size()));
    std::string_view path;
    const size_t close = line.rfind(") = ");
    if (line.starts_with("SHA256 (") && close != std::string_view::npos && close > 8) {
      hex = line.substr(close + 4);
      path = line.substr(8, close - 8);
    } else if (line.size() > 66 && line[64] == ' ' && (line[65] == ' ' || line[65] == '*')) {
      path = line.substr(66);
    }
    if (path.empty() || !from_hex(hex, file.sha256.bytes)) {
      fail(ErrorKind::kCorrupt, "{}: line {} is not '<64 hex digits>  <path>'", source, number);
    }
    while (path.starts_with("./")) path.remove_prefix(2);
    if (!is_safe_relative_path(path)) {
      fail(ErrorKind::kCorrupt, "{}: line {} names a path that may not be used below a directory", source, number);
    }
    file.path = std::string(path);
    file.hash_origin = "sums";
    files.push_back(std::move(file));
  }
  sort_and_check(files, source);
  return files;
}

bool is_safe_relative_path(std::string_view path) {
  if (path.empty() || path.size() > 4096) return false;
  if (!is_printable(path) || path.find('\\') != std::string_view::npos) return false;
  if (path.size() >= 2 && path[1] == ':') return false;  // a drive prefix
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    if (component.empty() || component == "." || component == ".." || component.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace tierpack
