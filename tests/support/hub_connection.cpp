#include "tests/support/hub_connection.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <ctime>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "fetch/url.h"

namespace tierpack::support {

namespace fs = std::filesystem;
using fetch::percent_encode;
using nlohmann::json;

std::string quote(const std::string& text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 206: return "Partial Content";
    case 302: return "Found";
    case 307: return "Temporary Redirect";
    case 404: return "Not Found";
    case 416: return "Range Not Satisfiable";
    case 429: return "Too Many Requests";
    default: return "Status";
  }
}

namespace {

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at) out.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, size_t from) {
  std::string out;
  for (size_t i = from; i < parts.size(); ++i) out += (out.empty() ? "" : "/") + parts[i];
  return out;
}

// An entry as the tree and paths-info show it.
template <typename Entry>
json entry_json(const Entry& entry) {
  json item = {{"type", "file"}, {"oid", entry.lfs ? std::string(40, 'a') : entry.git_sha1}, {"size", entry.size}, {"path", entry.path}};
  if (entry.lfs) item["lfs"] = {{"oid", entry.sha256}, {"size", entry.size}, {"pointerSize", 132}};
  return item;
}

}  // namespace

HubConnection::HubConnection(HubServer& hub, int socket, bool on_cdn) : hub_(hub), socket_(socket), on_cdn_(on_cdn) {
  if (!hub.tls_ || (on_cdn && hub.options_.plain_cdn)) return;
  SSL* const tls = SSL_new(static_cast<SSL_CTX*>(hub.tls_.get()));
  tls_ = tls;
  SSL_set_fd(tls, socket);
  if (SSL_accept(tls) != 1) open_ = false;
}

HubConnection::~HubConnection() { SSL_free(static_cast<SSL*>(tls_)); }

ssize_t HubConnection::receive(char* data, size_t size) {
  if (tls_ == nullptr) return ::recv(socket_, data, size, 0);
  return SSL_read(static_cast<SSL*>(tls_), data, static_cast<int>(size));
}

void HubConnection::serve() {
  HubRequest request;
  while (open_ && !hub_.stopping_ && read_request(request)) {
    {
      const std::lock_guard lock(hub_.mutex_);
      if (request.target.rfind("/__control/", 0) != 0) hub_.requests_.push_back(request);
    }
    head_only_ = request.method == "HEAD";
    handle(request);
  }
}

bool HubConnection::read_request(HubRequest& request) {
  request = HubRequest();
  request.on_cdn = on_cdn_;
  size_t end = 0;
  while ((end = pending_.find("\r\n\r\n")) == std::string::npos) {
    char buffer[16384];
    const ssize_t got = receive(buffer, sizeof buffer);
    if (got <= 0 || pending_.size() > (1 << 20)) return false;
    pending_.append(buffer, static_cast<size_t>(got));
  }
  std::string head = pending_.substr(0, end + 2);
  pending_.erase(0, end + 4);
  const size_t line_end = head.find("\r\n");
  const std::string line = head.substr(0, line_end);
  const size_t a = line.find(' ');
  const size_t b = line.rfind(' ');
  if (a == std::string::npos || b <= a) return false;
  request.method = line.substr(0, a);
  request.target = line.substr(a + 1, b - a - 1);
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t stop = head.find("\r\n", at);
    const std::string field = head.substr(at, stop - at);
    const size_t colon = field.find(':');
    if (colon != std::string::npos) {
      std::string name = field.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const size_t value = field.find_first_not_of(" \t", colon + 1);
      request.headers.emplace_back(name, value == std::string::npos ? "" : field.substr(value));
    }
    at = stop + 2;
  }
  const std::string length = request.header("content-length");
  const size_t wanted = length.empty() ? 0 : std::min<size_t>(std::stoul(length), 1 << 24);
  while (pending_.size() < wanted) {
    char buffer[16384];
    const ssize_t got = receive(buffer, sizeof buffer);
    if (got <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(got));
  }
  request.body = pending_.substr(0, wanted);
  pending_.erase(0, wanted);
  return true;
}

bool HubConnection::write_all(std::string_view text) {
  size_t done = 0;
  while (done < text.size() && open_) {
    const ssize_t put = tls_ != nullptr ? SSL_write(static_cast<SSL*>(tls_), text.data() + done, static_cast<int>(text.size() - done))
                                        : ::send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (put <= 0) return open_ = false;
    done += static_cast<size_t>(put);
  }
  return true;
}

void HubConnection::write_head(int status, const Headers& headers) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  if (fault_ && fault_->action == "header") {
    for (const auto& [name, value] : fault_->headers) head += name + ": " + value + "\r\n";
  }
  head += "\r\n";
  write_all(head);
}

void HubConnection::respond(int status, const Headers& headers, const std::string& body) {
  Headers all = headers;
  all.emplace_back("Content-Length", std::to_string(body.size()));
  write_head(status, all);
  if (!head_only_) write_all(body);
}

void HubConnection::respond_json(int status, const std::string& body, Headers headers) {
  headers.emplace_back("Content-Type", "application/json; charset=utf-8");
  respond(status, headers, body);
}

void HubConnection::close_now(bool reset) {
  if (reset) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  ::shutdown(socket_, reset ? SHUT_RD : SHUT_RDWR);
  open_ = false;
}

void HubConnection::sleep_unless_stopped(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!hub_.stopping_ && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    char byte = 0;
    if (::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
      open_ = false;
      return;
    }
  }
}

bool HubConnection::write_file(const fs::path& file, uint64_t first, uint64_t last, uint64_t limit, double rate) {
  if (tls_ != nullptr) {
    constexpr uint64_t kPiece = 1 << 20;
    const uint64_t end = first + std::min(last - first + 1, limit);
    for (uint64_t begin = first; begin < end && open_; begin += kPiece) {
      write_all(read_file(file, begin, std::min(end, begin + kPiece) - 1));
    }
    return open_;
  }
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return open_ = false;
  uint64_t left = std::min(last - first + 1, limit);
  auto at = static_cast<off_t>(first);
  while (left > 0 && open_ && !hub_.stopping_) {
    const uint64_t step = rate > 0 ? std::min<uint64_t>(left, static_cast<uint64_t>(rate / 50) + 1) : left;
    const ssize_t put = ::sendfile(socket_, fd, &at, static_cast<size_t>(std::min<uint64_t>(step, 1 << 30)));
    if (put <= 0) open_ = false;
    else left -= static_cast<uint64_t>(put);
    if (rate > 0) sleep_unless_stopped(0.02);
  }
  ::close(fd);
  return open_;
}

std::string HubConnection::read_file(const fs::path& file, uint64_t first, uint64_t last) const {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::string out(last - first + 1, '\0');
  size_t done = 0;
  while (fd >= 0 && done < out.size()) {
    const ssize_t got = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(first + done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  if (fd >= 0) ::close(fd);
  return out;
}

bool HubConnection::is_authorised(const HubRequest& request) {
  return hub_.options_.token.empty() || request.header("authorization") == "Bearer " + hub_.options_.token;
}

void HubConnection::handle(const HubRequest& request) {
  const std::string path = request.path();
  if (path.rfind("/__control/", 0) == 0) return hub_.handle_control(*this, request);
  fault_ = hub_.take_fault(request);
  if (fault_ && answer_fault(request, *fault_)) return;

  const std::vector<std::string> parts = split(path);
  if (on_cdn_) {
    if (parts.size() < 5 || parts[0] != "cdn") return respond(404, {}, "no such object\n");
    const std::string expires = request.parameter("Expires");
    const int64_t at = expires.empty() ? 0 : std::stoll(expires);
    if (at < std::time(nullptr) || request.parameter("Signature") != hub_.sign(path, at)) {
      return respond(403, {{"Content-Type", "application/xml"}}, "<Error><Code>AccessDenied</Code></Error>");
    }
    const fs::path file = hub_.repo_directory(parts[1] + "/" + parts[2]) / join(parts, 4);
    // Some delivery networks tag with a 64-digit value that is no SHA-256 of anything.
    return send_file(request, {.file = file, .etag = "\"" + Sha256::of(as_bytes(path)).hex() + "\"", .headers = {}});
  }
  if (parts.empty()) return respond(200, {{"Content-Type", "text/plain"}}, "tierpack test hub\n");
  if (parts[0] == "files") {
    const fs::path file = hub_.options_.root / join(parts, 1);
    if (!fs::is_regular_file(file)) return respond(404, {}, "no such file\n");
    const auto stamp = fs::last_write_time(file).time_since_epoch().count();
    return send_file(request, {.file = file, .etag = "\"" + std::to_string(fs::file_size(file)) + "-" + std::to_string(stamp) + "\"", .headers = {}});
  }
  if (parts[0] == "v2" || parts[0] == "token") return handle_registry(request, path);
  if (parts[0] == "api" && parts.size() > 1 && parts[1] == "v1") return handle_modelscope(request, parts);
  if (!is_authorised(request)) {
    return respond_json(401, R"({"error":"Access to this model is restricted."})",
                        {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Access to this model is restricted."}});
  }
  if (parts[0] == "api") return handle_hf_api(request, parts);
  const size_t base = parts[0] == "datasets" || parts[0] == "spaces" ? 1 : 0;
  if (parts.size() > base + 4 && parts[base + 2] == "resolve") {
    return handle_resolve(request, parts[base] + "/" + parts[base + 1], join(parts, base + 4));
  }
  respond_json(404, R"({"error":"Not found"})");
}

void HubConnection::handle_hf_api(const HubRequest& request, const std::vector<std::string>& parts) {
  if (parts.size() >= 7 && parts[1] == "resolve-cache") {  // /api/resolve-cache/models/ORG/NAME/SHA/PATH
    const auto repo = hub_.repo(parts[3] + "/" + parts[4]);
    const std::string path = join(parts, 6);
    for (const auto& entry : repo->entries) {
      if (entry.path == path) {
        return send_file(request, {.file = entry.file,
                                   .etag = "\"" + (entry.git_sha1.empty() ? entry.sha256 : entry.git_sha1) + "\"",
                                   .headers = {{"X-Repo-Commit", repo->commit}}});
      }
    }
    return respond_json(404, R"({"error":"Entry not found"})", {{"X-Error-Code", "EntryNotFound"}});
  }
  if (parts.size() < 4) return respond_json(404, R"({"error":"Not found"})");
  const std::string name = parts[2] + "/" + parts[3];
  const auto repo = hub_.repo(name);
  if (!repo) {
    return respond_json(404, R"({"error":"Repository not found"})",
                        {{"X-Error-Code", "RepoNotFound"}, {"X-Error-Message", "Repository not found"}});
  }
  if (parts.size() >= 6 && parts[4] == "tree") return handle_hf_tree(request, parts[1], name);
  if (parts.size() >= 6 && parts[4] == "paths-info") {
    json found = json::array();
    const json wanted = json::parse(request.body, nullptr, false);
    for (const auto& entry : repo->entries) {
      for (const json& path : wanted.value("paths", json::array())) {
        if (path == entry.path) found.push_back(entry_json(entry));
      }
    }
    return respond_json(200, found.dump());
  }
  if (parts.size() >= 5 && parts[4] == "refs") {
    return respond_json(200, json{{"branches", json::array({{{"name", "main"}, {"ref", "refs/heads/main"}, {"targetCommit", repo->commit}}})},
                                  {"tags", json::array()}, {"converts", json::array()}}.dump());
  }
  const std::string revision = parts.size() >= 6 && parts[4] == "revision" ? parts[5] : "main";
  if (revision != "main" && revision != repo->commit && revision != "v1.0" && revision != "refs") {
    return respond_json(404, R"({"error":"Invalid rev id"})",
                        {{"X-Error-Code", "RevisionNotFound"}, {"X-Error-Message", "Invalid rev id: " + revision}});
  }
  json siblings = json::array();
  for (const auto& entry : repo->entries) siblings.push_back({{"rfilename", entry.path}});
  respond_json(200, json{{"id", name}, {"sha", repo->commit}, {"private", false}, {"gated", false}, {"siblings", siblings}}.dump(),
               {{"X-Request-Id", "Root=1-test"}});
}

void HubConnection::handle_hf_tree(const HubRequest& request, const std::string& type, const std::string& repo_name) {
  const auto repo = hub_.repo(repo_name);
  json all = json::array();
  std::set<std::string> directories;
  for (const auto& entry : repo->entries) {
    for (size_t slash = entry.path.find('/'); slash != std::string::npos; slash = entry.path.find('/', slash + 1)) {
      const std::string directory = entry.path.substr(0, slash);
      if (directories.insert(directory).second) {
        all.push_back({{"type", "directory"}, {"oid", std::string(40, 'd')}, {"size", 0}, {"path", directory}});
      }
    }
    all.push_back(entry_json(entry));
  }
  const std::string cursor = request.parameter("cursor");
  const size_t from = std::min<size_t>(cursor.empty() ? 0 : std::stoul(cursor), all.size());
  const size_t to = std::min(from + hub_.options_.page_entries, all.size());
  json page = json::array();
  for (size_t i = from; i < to; ++i) page.push_back(all[i]);
  Headers headers = {{"X-Repo-Commit", repo->commit}};
  if (to < all.size()) {
    headers.emplace_back("Link", "<" + hub_.url() + "/api/" + type + "/" + repo_name + "/tree/" + repo->commit +
                                     "?recursive=True&expand=False&cursor=" + std::to_string(to) + ">; rel=\"next\"");
  }
  respond_json(200, page.dump(), headers);
}

void HubConnection::handle_resolve(const HubRequest&, const std::string& repo_name, const std::string& path) {
  const auto repo = hub_.repo(repo_name);
  if (!repo) return respond_json(404, R"({"error":"Repository not found"})", {{"X-Error-Code", "RepoNotFound"}});
  for (const auto& entry : repo->entries) {
    if (entry.path != path) continue;
    if (!entry.lfs) {
      const std::string location = "/api/resolve-cache/models/" + repo_name + "/" + repo->commit + "/" +
                                   percent_encode(path, "/") + "?etag=%22" + entry.git_sha1 + "%22";
      return respond(307, {{"Location", location}, {"X-Repo-Commit", repo->commit}}, "Temporary Redirect\n");
    }
    const int64_t expires = std::time(nullptr) + hub_.options_.url_seconds;
    const std::string target = "/cdn/" + repo_name + "/" + repo->commit + "/" + path;
    const std::string location = hub_.cdn_url() + percent_encode(target, "/") + "?Expires=" + std::to_string(expires) +
                                 "&Signature=" + hub_.sign(target, expires) + "&Key-Pair-Id=K1TEST";
    return respond(302, {{"Location", location},
                         {"X-Repo-Commit", repo->commit},
                         {"X-Linked-Size", std::to_string(entry.size)},
                         {"X-Linked-Etag", "\"" + entry.sha256 + "\""},
                         {"X-Xet-Hash", std::string(64, 'e')},
                         {"ETag", "\"" + entry.sha256 + "\""},
                         {"Accept-Ranges", "bytes"},
                         {"RateLimit", "\"resolvers\";r=2999;t=100"}},
                   "Found. Redirecting to " + location);
  }
  respond_json(404, R"({"error":"Entry not found"})", {{"X-Error-Code", "EntryNotFound"}, {"X-Error-Message", "Entry not found"}});
}

void HubConnection::handle_modelscope(const HubRequest& request, const std::vector<std::string>& parts) {
  if (parts.size() < 6 || parts[5] != "repo") return respond_json(404, R"({"Code":404,"Success":false,"Message":"not found"})");
  const std::string name = parts[3] + "/" + parts[4];
  const auto repo = hub_.repo(name);
  if (!repo || (!hub_.options_.token.empty() && request.header("authorization") != "Bearer " + hub_.options_.token)) {
    return respond_json(404, R"({"Code":10010205001,"Success":false,"Message":"record not found"})");
  }
  if (parts.size() == 6) {
    const std::string wanted = request.parameter("FilePath");
    for (const auto& entry : repo->entries) {
      if (entry.path == wanted) return send_file(request, {.file = entry.file, .etag = {}, .headers = {}});
    }
    return respond_json(404, R"({"Code":404,"Success":false,"Message":"file not found"})");
  }
  json files = json::array();
  for (const auto& entry : repo->entries) {
    files.push_back({{"Name", entry.path.substr(entry.path.rfind('/') + 1)}, {"Path", entry.path}, {"Type", "blob"},
                     {"Size", entry.size}, {"Sha256", entry.sha256}, {"IsLFS", entry.lfs}, {"Revision", repo->commit}});
  }
  if (parts[6] == "tree") {
    const size_t size = std::stoul("0" + request.parameter("PageSize"));
    const size_t from = size * (std::max<size_t>(1, std::stoul("0" + request.parameter("PageNumber"))) - 1);
    json page = json::array();
    for (size_t i = from; i < std::min(from + size, files.size()); ++i) page.push_back(files[i]);
    files = page;
  }
  respond_json(200, json{{"Code", 200}, {"Success", true}, {"Message", "success"}, {"Data", {{"Files", files}}}}.dump());
}

void HubConnection::handle_registry(const HubRequest& request, const std::string& path) {
  if (path == "/token") return respond_json(200, R"({"token":"anonymous-pass","expires_in":300})");
  if (hub_.options_.registry_auth && request.header("authorization") != "Bearer anonymous-pass") {
    return respond_json(401, R"({"errors":[{"code":"UNAUTHORIZED"}]})",
                        {{"WWW-Authenticate", "Bearer realm=\"" + hub_.url() + "/token\",service=\"hub\",scope=\"repository:x:pull\""}});
  }
  const size_t manifests = path.find("/manifests/");
  const size_t blobs = path.find("/blobs/sha256:");
  if (manifests != std::string::npos) {
    const std::string name = path.substr(4, manifests - 4);
    const auto repo = hub_.repo(name);
    if (!repo) return respond_json(404, R"({"errors":[{"code":"MANIFEST_UNKNOWN"}]})");
    json layers = json::array();
    for (const auto& entry : repo->entries) {
      const bool model = entry.path.ends_with(".gguf");
      json layer = {{"mediaType", model ? "application/vnd.ollama.image.model" : "application/vnd.ollama.image.params"},
                    {"digest", "sha256:" + entry.sha256}, {"size", entry.size}};
      if (!model) layer["annotations"] = {{"org.opencontainers.image.title", entry.path}};
      layers.push_back(layer);
    }
    const std::string body = json{{"schemaVersion", 2}, {"mediaType", "application/vnd.docker.distribution.manifest.v2+json"}, {"layers", layers}}.dump();
    return respond(200, {{"Content-Type", "application/vnd.docker.distribution.manifest.v2+json"},
                         {"Docker-Content-Digest", "sha256:" + Sha256::of(as_bytes(body)).hex()}}, body);
  }
  if (blobs != std::string::npos) {
    const std::string name = path.substr(4, blobs - 4);
    const auto entry = hub_.find_by_digest(name, path.substr(blobs + 14));
    if (!entry) return respond_json(404, R"({"errors":[{"code":"BLOB_UNKNOWN"}]})");
    const int64_t expires = std::time(nullptr) + hub_.options_.url_seconds;
    const std::string target = "/cdn/" + name + "/blob/" + entry->path;
    return respond(307, {{"Location", hub_.cdn_url() + percent_encode(target, "/") + "?Expires=" + std::to_string(expires) +
                                          "&Signature=" + hub_.sign(target, expires)}}, "");
  }
  respond_json(404, R"({"errors":[{"code":"NOT_FOUND"}]})");
}

}  // namespace tierpack::support
