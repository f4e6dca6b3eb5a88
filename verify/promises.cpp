#include "verify/promises.h"

#include <algorithm>

#include "base/error.h"
#include "formats/lock.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kReferenceBytesMax = uint64_t{64} << 20;

void sort_by_path(std::vector<PromisedFile>& files) {
  std::sort(files.begin(), files.end(), [](const PromisedFile& a, const PromisedFile& b) { return a.path < b.path; });
}

// Adds the promises of `more`; two that name the same file must agree.
void merge(Reference& into, const Reference& more) {
  into.origins.insert(into.origins.end(), more.origins.begin(), more.origins.end());
  std::vector<PromisedFile> added;
  for (const PromisedFile& file : more.files) {
    const PromisedFile* same = into.find(file.path);
    if (same == nullptr) {
      added.push_back(file);
    } else if (same->sha256 != file.sha256) {
      fail(ErrorKind::kCorrupt, "{}: {} promises SHA-256 {}, {} promises {}; remove the one that is out of date", file.path,
           same->origin, same->sha256->hex(), file.origin, file.sha256->hex());
    }
  }
  into.files.insert(into.files.end(), added.begin(), added.end());
  sort_by_path(into.files);
}

}  // namespace

const PromisedFile* Reference::find(const std::string& path) const {
  const auto found = std::lower_bound(files.begin(), files.end(), path,
                                      [](const PromisedFile& item, const std::string& value) { return item.path < value; });
  return found != files.end() && found->path == path ? &*found : nullptr;
}

Reference read_reference(const fs::path& path) {
  const std::string text = read_text_file(path, kReferenceBytesMax);
  const std::string name = path.string();
  const bool json = text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '{';
  Reference out;
  out.origins.push_back(name);
  const std::vector<LockFile> files = json ? parse_lock(text, name).files : parse_sha256sums(text, name);
  if (files.empty()) fail(ErrorKind::kCorrupt, "{}: names no file", name);
  for (const LockFile& file : files) {
    out.files.push_back({.path = file.path,
                         .bytes = json ? std::optional(file.size) : std::nullopt,
                         .sha256 = file.sha256,
                         .git_sha1 = file.git_sha1,
                         .hash_origin = file.hash_origin,
                         .origin = name});
  }
  sort_by_path(out.files);
  return out;
}

Reference reference_of(const PromisedList& list) {
  Reference out;
  out.origins.push_back(list.files.empty() ? list.reference : list.files.front().origin);
  out.files = list.files;
  sort_by_path(out.files);
  const bool any = std::any_of(out.files.begin(), out.files.end(),
                               [](const PromisedFile& file) { return file.sha256 || file.git_sha1; });
  if (!any) fail(ErrorKind::kCorrupt, "{}: publishes no checksums, so it cannot prove anything", list.reference);
  return out;
}

bool is_remote_reference(const std::string& text) {
  constexpr std::string_view kSchemes[] = {"hf:", "ms:", "ollama:", "oci:", "http://", "https://", "file://"};
  return std::any_of(std::begin(kSchemes), std::end(kSchemes),
                     [&](std::string_view scheme) { return text.starts_with(scheme); });
}

std::optional<Reference> find_reference(const fs::path& directory) {
  std::optional<Reference> out;
  for (const char* name : {kLockFileName, kSumsFileName}) {
    const fs::path path = directory / name;
    if (!fs::is_regular_file(path)) continue;
    const Reference found = read_reference(path);
    if (!out) out.emplace();
    merge(*out, found);
  }
  return out;
}

std::optional<PlacedReference> find_reference_above(const fs::path& directory, int levels) {
  fs::path at = fs::absolute(directory).lexically_normal();
  for (int level = 0; level <= levels; ++level) {
    if (std::optional<Reference> found = find_reference(at)) return PlacedReference{std::move(*found), at};
    if (!at.has_relative_path()) break;
    at = at.parent_path();
  }
  return std::nullopt;
}

}  // namespace tierpack::verify
