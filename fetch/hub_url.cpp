// Plain URLs: one file, or the files of a SHA256SUMS list; http(s) or local. Sizes come from a one-byte range request,
// because HEAD is answered by fewer servers, and wrongly by more.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "fetch/hubs.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxSumsBytes = uint64_t{4} << 20;
constexpr size_t kMaxProbes = 64;  // of a list; further sizes are learnt when downloading

bool is_sums_name(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name == "sha256sums" || name == "sha256sums.txt" || name == "sha256sum.txt" || name == "checksums.sha256";
}

[[noreturn]] void refuse(const HttpAnswer& answer) {
  const int status = answer.head.status;
  const char* meaning = status == 404 || status == 410 ? "does not exist there"
                        : status == 401 || status == 403 ? "may not be read without a token, or not with this one"
                                                         : "cannot be had";
  fail(ErrorKind::kRefused, "{} {} (the server answers {})", answer.url.redacted(), meaning, status);
}

// Fills in size, validator and a published digest from the answer to a request for the first byte.
void probe(HttpClient& client, RemoteFile& file) {
  const HttpAnswer answer = client.get(file.urls.front(), {.headers = {"Range: bytes=0-0"}, .enough_bytes = 1});
  const ResponseHead& head = answer.head;
  const bool direct = answer.url.text() == file.urls.front().text();
  if (head.status == 416) {
    const auto range = parse_content_range(head.value("content-range"));
    if (range && range->total && *range->total == 0) file.size = 0;
    return;
  }
  if (head.status != 200 && head.status != 206) refuse(answer);
  if (head.status == 206 && head.count("content-range") == 1) {
    const auto range = parse_content_range(head.value("content-range"));
    if (range && range->satisfied) file.size = range->total;
  } else if (head.status == 200 && head.find("content-range") == nullptr) {
    file.size = content_length(head);
  }
  if (!file.sha256) {
    file.sha256 = representation_sha256(head);
    if (file.sha256) file.hash_origin = "hub";
  }
  const bool wants_page = file.path.ends_with(".html") || file.path.ends_with(".htm");
  if (!wants_page && !file.sha256 && head.value("content-type").starts_with("text/html")) {
    fail(ErrorKind::kRefused, "{} answers with an HTML page, not with the file {}: a login or error page, perhaps; open it "
         "in a browser, or give --sha256", answer.url.redacted(), file.path);
  }
  // A validator is good only for the server that will see it again.
  if (direct) file.validator = strong_etag(head).value_or("");
}

// NAME.sha256 beside the file: "hex" or "hex  name".
void read_sidecar(HttpClient& client, RemoteFile& file) {
  const Url& url = file.urls.front();
  if (!url.query().empty()) return;
  HttpAnswer answer{{}, {}, url};
  try {
    answer = client.get(url.with_path_suffix(".sha256"), {.max_bytes = 64 << 10});
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInterrupted) throw;
    return;
  }
  if (answer.head.status != 200 || answer.body.size() < 64) return;
  const std::string hex = answer.body.substr(0, 64);
  Sha256Digest digest;
  if (!from_hex(hex, digest.bytes)) return;
  const std::string rest = answer.body.substr(64);
  const bool alone = rest.find_first_not_of(" \t\r\n") == std::string::npos;
  if (!alone && rest.find(file.path) == std::string::npos) return;
  file.sha256 = digest;
  file.hash_origin = "sums";
}

std::vector<RemoteFile> from_sums(const std::string& text, const Url& base, const std::string& where) {
  std::vector<RemoteFile> out;
  for (const LockFile& line : parse_sha256sums(text, where)) {
    const auto url = base.resolve("./" + percent_encode(line.path, "/"));
    if (!url || !(url->origin() == base.origin())) {
      fail(ErrorKind::kCorrupt, "{}: '{}' does not name a file beside the list", where, printable(line.path));
    }
    RemoteFile file;
    file.path = line.path;
    file.sha256 = line.sha256;
    file.hash_origin = "sums";
    file.urls.push_back(*url);
    out.push_back(std::move(file));
  }
  return out;
}

Url file_url(const fs::path& path) {
  return Url::require("file://" + percent_encode(fs::absolute(path).lexically_normal().string(), "/"), path.string());
}

void add_local(const fs::path& path, const std::string& name, Listing& listing) {
  RemoteFile file;
  file.path = name;
  file.size = fs::file_size(path);
  file.urls.push_back(file_url(path));
  listing.files.push_back(std::move(file));
}

void list_local(const Reference& reference, Listing& listing) {
  fs::path path = reference.url->decoded_path();
  std::error_code code;
  if (!fs::exists(path, code)) fail(ErrorKind::kRefused, "{} does not exist", path.string());
  fs::path sums = is_sums_name(path.filename().string()) ? path : path / "SHA256SUMS";
  if (fs::is_regular_file(sums, code) && (sums == path || fs::is_directory(path, code))) {
    const std::string text = read_text_file(sums, kMaxSumsBytes);
    listing.files = from_sums(text, file_url(sums), sums.string());
    for (RemoteFile& file : listing.files) {
      const fs::path target = file.urls.front().decoded_path();
      if (fs::is_regular_file(target, code)) file.size = fs::file_size(target);
    }
    return;
  }
  if (!fs::is_directory(path, code)) {
    add_local(path, path.filename().string(), listing);
    return;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const fs::path relative = entry.path().lexically_relative(path);
    if (!entry.is_regular_file() || relative == kLockFileName || relative.begin()->string() == kStateDirectory) continue;
    add_local(entry.path(), relative.generic_string(), listing);
  }
}

}  // namespace

Listing list_url(HttpClient& client, const Reference& reference, const std::optional<Sha256Digest>& sha256) {
  Listing listing;
  listing.source = reference.text;
  const Url& url = *reference.url;
  if (url.is_file()) {
    list_local(reference, listing);
  } else if (is_sums_name(url.file_name()) || url.path().ends_with("/")) {
    const Url sums = url.path().ends_with("/") ? url.with_path_suffix("SHA256SUMS") : url;
    const HttpAnswer answer = client.get(sums, {.max_bytes = kMaxSumsBytes});
    if (answer.head.status != 200) refuse(answer);
    listing.files = from_sums(answer.body, sums, sums.redacted());
    check_listing(listing);  // before anything in it is asked for
    for (size_t i = 0; i < std::min(kMaxProbes, listing.files.size()); ++i) probe(client, listing.files[i]);
  } else {
    RemoteFile file;
    file.path = url.file_name();
    file.urls.push_back(url);
    file.sha256 = sha256;
    if (sha256) file.hash_origin = "user";
    if (file.path.empty()) fail(ErrorKind::kUsage, "{} does not end in a file name", url.redacted());
    probe(client, file);
    if (!file.sha256) read_sidecar(client, file);
    listing.files.push_back(std::move(file));
  }
  if (sha256) {
    if (listing.files.size() != 1) {
      fail(ErrorKind::kUsage, "--sha256 promises the content of one file, but {} has {}", reference.text,
           listing.files.size());
    }
    RemoteFile& file = listing.files.front();
    if (file.sha256 && *file.sha256 != *sha256 && file.hash_origin != "user") {
      fail(ErrorKind::kCorrupt, "{}: --sha256 says {}, the publisher's list says {}", file.path, sha256->hex(),
           file.sha256->hex());
    }
    file.sha256 = sha256;
    file.hash_origin = "user";
  }
  if (listing.files.empty()) fail(ErrorKind::kRefused, "{} lists no files", reference.text);
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
  return listing;
}

}  // namespace tierpack::fetch
