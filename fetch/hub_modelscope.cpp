// ModelScope: the file list of a revision, with a SHA-256 for every file, small ones included.
//
// Facts: GET {endpoint}/api/v1/models/{owner}/{name}/repo/files?Revision=&Recursive=True -> {"Code": 200, "Success": true,
// "Data": {"Files": [{"Path", "Type": "blob"|"tree", "Size", "Sha256", "Revision"}]}}; datasets: .../repo/tree, paged by
// PageNumber and PageSize. The list gives no commit of the repository; the hashes pin the content instead.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "fetch/hub_answers.h"
#include "fetch/hubs.h"

namespace tierpack::fetch {

namespace {

constexpr uint64_t kPageSize = 200;
constexpr uint64_t kMaxPages = 2000;

std::string folder_of(const std::string& source) { return source.starts_with("ms:datasets/") ? "datasets" : "models"; }

std::string repo_of(const std::string& source) {
  return source.substr(source.starts_with("ms:datasets/") ? 12 : 3);
}

bool says_success(const Json& body) {
  return body.is_object() && (!body.contains("Success") || body["Success"] == true) &&
         (!body.contains("Code") || body["Code"] == 200) && body.contains("Data");
}

// Throws unless the answer is a successful envelope.
void require_success(const HttpAnswer& answer, const Reference& reference, const Credentials& credentials,
                     const Origin& origin) {
  const bool has_token = credentials.has(origin);
  Json body;
  try {
    body = parse_json(answer.body, answer.url.redacted());
  } catch (const Error&) {
    if (answer.head.status == 200) throw;
  }
  if (answer.head.status == 200 && says_success(body)) return;
  std::string message = body.is_object() && body.contains("Message") && body["Message"].is_string()
                            ? printable(body["Message"].get<std::string>(), 300)
                            : std::string();
  fail(ErrorKind::kRefused, "{} at {}: {} (status {}{}{}){}", reference.text, answer.url.origin().text(),
       "the repository or revision does not exist, or it needs a token", answer.head.status,
       message.empty() ? "" : ", hub says: ", credentials.redact(message), has_token ? "" : "; MODELSCOPE_API_TOKEN or --token-file gives one");
}

std::optional<RemoteFile> parse_entry(const Json& entry, const std::string& where) {
  if (!entry.is_object()) fail(ErrorKind::kCorrupt, "{}: an entry of the file list is not an object", where);
  if (json_string(entry, "Type", where) != "blob") return std::nullopt;
  RemoteFile file;
  file.path = json_string(entry, "Path", where);
  file.size = json_u64(entry, "Size", where);
  for (const char* key : {"Sha256", "sha256"}) {
    if (!entry.contains(key) || !entry[key].is_string() || entry[key].get<std::string>().empty()) continue;
    const std::string hex = entry[key].get<std::string>();
    Sha256Digest digest;
    if (!from_hex(hex, digest.bytes)) {
      fail(ErrorKind::kCorrupt, "{}: {}: '{}' is not a SHA-256", where, printable(file.path), printable(hex, 80));
    }
    file.sha256 = digest;
    file.hash_origin = "hub";
    break;
  }
  return file;
}

}  // namespace

std::vector<RemoteFile> parse_modelscope_files(std::string_view body, const std::string& where, size_t& entries) {
  const Json answer = parse_json(body, where);
  if (!says_success(answer)) fail(ErrorKind::kCorrupt, "{}: the answer does not say success", where);
  const Json& files = json_member(answer["Data"], "Files", where);
  if (!files.is_array()) fail(ErrorKind::kCorrupt, "{}: Files is not an array", where);
  entries = files.size();
  std::vector<RemoteFile> out;
  for (const Json& entry : files) {
    if (auto file = parse_entry(entry, where)) out.push_back(std::move(*file));
  }
  return out;
}

Url modelscope_file_url(const Url& endpoint, const std::string& source, const std::string& revision,
                        const std::string& path) {
  return endpoint.with_path_suffix(fmt::format("/api/v1/{}/{}/repo?Revision={}&FilePath={}", folder_of(source),
                                               repo_of(source), percent_encode(revision), percent_encode(path)));
}

Listing list_modelscope(HttpClient& client, const Reference& reference, const Url& endpoint) {
  Listing listing;
  listing.source = reference.text;
  listing.endpoint = endpoint.origin().text() + (endpoint.path() == "/" ? "" : endpoint.path());
  listing.revision = reference.revision.empty() ? "master" : reference.revision;
  const bool is_dataset = reference.type == RepoType::kDataset;
  const std::string base = fmt::format("/api/v1/{}/{}/repo/{}?Revision={}&Recursive=True", folder_of(listing.source),
                                       reference.repo, is_dataset ? "tree" : "files", percent_encode(listing.revision));
  for (uint64_t page = 1;; ++page) {
    const std::string paging = is_dataset ? fmt::format("&PageNumber={}&PageSize={}", page, kPageSize) : "";
    const Url url = endpoint.with_path_suffix(base + paging);
    const HttpAnswer answer = client.get(url, {.headers = {"Accept: application/json"}, .json = true});
    require_success(answer, reference, client.credentials(), endpoint.origin());
    const std::string where = url.redacted();
    size_t entries = 0;
    for (RemoteFile& file : parse_modelscope_files(answer.body, where, entries)) listing.files.push_back(std::move(file));
    check_count(listing);
    if (!is_dataset || entries < kPageSize) break;
    if (page >= kMaxPages) fail(ErrorKind::kCorrupt, "{}: more than {} pages of files", where, kMaxPages);
  }
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
  for (RemoteFile& file : listing.files) {
    file.urls.push_back(modelscope_file_url(endpoint, listing.source, listing.revision, file.path));
  }
  return listing;
}

}  // namespace tierpack::fetch
