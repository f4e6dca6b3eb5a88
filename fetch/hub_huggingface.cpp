// Hugging Face: resolve a revision to a commit, list the tree at that commit, page by page.
//
// Facts: GET {endpoint}/api/models/{repo}/revision/{rev} -> {"sha": commit}; GET .../tree/{commit}?recursive=True ->
// [{"type", "path", "size", "oid", "lfs": {"oid", "size"}}] with Link: <...>; rel="next". lfs.oid is the SHA-256 of the
// content; oid of a plain file is its git blob id; xetHash is something else and is ignored.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "fetch/hub_answers.h"
#include "fetch/hubs.h"

namespace tierpack::fetch {

namespace {

constexpr int kMaxPages = 2000;

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const char* type_folder(RepoType type) {
  switch (type) {
    case RepoType::kModel: return "models";
    case RepoType::kDataset: return "datasets";
    case RepoType::kSpace: return "spaces";
  }
  return "models";
}

std::string error_of(const HttpAnswer& answer) {
  if (const std::string* message = answer.head.find("x-error-message")) return printable(*message, 300);
  try {
    const Json body = parse_json(answer.body, "answer", {.max_bytes = 1 << 16, .max_depth = 8});
    if (body.is_object() && body.contains("error") && body["error"].is_string()) {
      return printable(body["error"].get<std::string>(), 300);
    }
  } catch (const Error&) {
  }
  return {};
}

// Says what the hub's refusal means and what can be done about it.
[[noreturn]] void refuse(const HttpAnswer& answer, const Reference& reference, const Credentials& credentials,
                         const Origin& origin) {
  const bool has_token = credentials.has(origin);
  const int status = answer.head.status;
  const std::string code = answer.head.value("x-error-code");
  const std::string message = error_of(answer);
  std::string meaning;
  if (code == "RevisionNotFound") {
    meaning = fmt::format("revision '{}' does not exist", reference.revision.empty() ? "main" : reference.revision);
  } else if (code == "GatedRepo") {
    meaning = "the repository is gated: accept its terms on its page, and give a token of that account (HF_TOKEN or "
              "--token-file)";
  } else if (message.find("Invalid credentials") != std::string::npos) {
    meaning = "the token is not valid";
  } else if (message.find("Access to this resource is disabled") != std::string::npos) {
    meaning = "the repository has been disabled";
  } else if (code == "RepoNotFound" || status == 401 || status == 404) {
    meaning = has_token ? "the repository does not exist, or it is private and this token may not see it"
                        : "the repository does not exist, or it is private or gated and needs a token (HF_TOKEN or "
                          "--token-file)";
  } else if (status == 403) {
    meaning = "the token lacks permission for this repository";
  } else {
    meaning = fmt::format("unexpected answer {}", status);
  }
  std::string text = fmt::format("{} at {}: {}", reference.text, answer.url.origin().text(), meaning);
  if (!message.empty()) text += fmt::format(" (hub says: {})", message);
  if (const std::string* id = answer.head.find("x-request-id")) text += fmt::format(" [request {}]", printable(*id, 80));
  fail(ErrorKind::kRefused, "{}", credentials.redact(text));
}

HttpAnswer get_answer(HttpClient& client, const Url& url, const Reference& reference) {
  HttpAnswer answer = client.get(url, {.headers = {"Accept: application/json"}, .json = true});
  if (answer.head.status != 200) refuse(answer, reference, client.credentials(), url.origin());
  return answer;
}

std::optional<RemoteFile> parse_entry(const Json& entry, const std::string& where) {
  if (!entry.is_object()) fail(ErrorKind::kCorrupt, "{}: an entry of the file list is not an object", where);
  if (json_string(entry, "type", where) != "file") return std::nullopt;
  RemoteFile file;
  file.path = json_string(entry, "path", where);
  file.size = json_u64(entry, "size", where);
  if (entry.contains("lfs") && !entry["lfs"].is_null()) {
    const Json& lfs = entry["lfs"];
    if (!lfs.is_object()) fail(ErrorKind::kCorrupt, "{}: {}: lfs is not an object", where, file.path);
    const std::string oid = json_string(lfs, "oid", where);
    if (!is_hex(oid, 64)) fail(ErrorKind::kCorrupt, "{}: {}: '{}' is not a SHA-256", where, printable(file.path), printable(oid, 80));
    file.sha256 = Sha256Digest::from_hex(oid);
    file.hash_origin = "hub";
    const uint64_t size = json_u64(lfs, "size", where);
    if (size != *file.size) {
      fail(ErrorKind::kCorrupt, "{}: {}: two sizes, {} and {}", where, printable(file.path), *file.size, size);
    }
  } else if (entry.contains("oid") && entry["oid"].is_string() && is_hex(entry["oid"].get<std::string>(), 40)) {
    file.git_sha1 = entry["oid"].get<std::string>();
  }
  return file;
}

}  // namespace

std::vector<RemoteFile> parse_huggingface_tree(std::string_view body, const std::string& where) {
  const Json entries = parse_json(body, where);
  if (!entries.is_array()) fail(ErrorKind::kCorrupt, "{}: the file list is not an array", where);
  std::vector<RemoteFile> out;
  for (const Json& entry : entries) {
    if (auto file = parse_entry(entry, where)) out.push_back(std::move(*file));
  }
  return out;
}

Url huggingface_file_url(const Url& endpoint, const std::string& source, const std::string& revision,
                         const std::string& path) {
  const std::string repo = source.substr(source.find(':') + 1);  // "org/name" or "datasets/org/name"
  return endpoint.with_path_suffix(fmt::format("/{}/resolve/{}/{}", repo, percent_encode(revision), percent_encode(path, "/")));
}

Listing list_huggingface(HttpClient& client, const Reference& reference, const Url& endpoint) {
  const std::string api = fmt::format("/api/{}/{}", type_folder(reference.type), reference.repo);
  const std::string wanted = reference.revision.empty() ? "main" : reference.revision;
  const Url info_url = endpoint.with_path_suffix(api + "/revision/" + percent_encode(wanted));
  const Json info = parse_json(get_answer(client, info_url, reference).body, info_url.redacted());

  Listing listing;
  listing.source = reference.text;
  listing.endpoint = endpoint.origin().text() + (endpoint.path() == "/" ? "" : endpoint.path());
  listing.has_hub_headers = true;
  listing.revision = json_string(info, "sha", info_url.redacted());
  if (!is_hex(listing.revision, 40)) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is not a commit", info_url.redacted(), printable(listing.revision, 80));
  }
  if (is_hex(wanted, 40) && wanted != listing.revision) {
    fail(ErrorKind::kCorrupt, "{}: asked for commit {}, the hub answers with {}", info_url.redacted(), wanted,
         listing.revision);
  }

  Url page = endpoint.with_path_suffix(fmt::format("{}/tree/{}?recursive=True&expand=False", api, listing.revision));
  std::set<std::string> seen;
  for (int pages = 1;; ++pages) {
    const std::string where = page.redacted();
    if (!seen.insert(page.text()).second) fail(ErrorKind::kCorrupt, "{}: the pages of the file list go in a circle", where);
    const HttpAnswer answer = get_answer(client, page, reference);
    for (RemoteFile& file : parse_huggingface_tree(answer.body, where)) listing.files.push_back(std::move(file));
    check_count(listing);
    const auto link = next_link(answer.head);
    if (!link) break;
    const auto next = page.resolve(*link);
    if (!next || !(next->origin() == endpoint.origin())) {
      fail(ErrorKind::kCorrupt, "{}: the next page of the file list is at another host; refused", where);
    }
    if (pages >= kMaxPages) fail(ErrorKind::kCorrupt, "{}: more than {} pages of files", where, kMaxPages);
    page = *next;
  }
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
  for (RemoteFile& file : listing.files) {
    file.urls.push_back(huggingface_file_url(endpoint, listing.source, listing.revision, file.path));
  }
  return listing;
}

}  // namespace tierpack::fetch
