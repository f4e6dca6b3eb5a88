#include "tests/support/hub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file.h"
#include "fetch/url.h"
#include "tests/support/hub_connection.h"

namespace tierpack::support {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

int listen_on(int port, int& bound) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, 256) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("hub_server: cannot listen on port " + std::to_string(port));
  }
  bound = ntohs(address.sin_port);
  return fd;
}

bool is_weight(const std::string& path) {
  for (const char* end : {".gguf", ".safetensors", ".bin", ".model"}) {
    if (path.ends_with(end)) return true;
  }
  return false;
}

std::string git_blob_id(const fs::path& path, uint64_t size) {
  Sha1 hash;
  const std::string head = "blob " + std::to_string(size);
  hash.update({reinterpret_cast<const std::byte*>(head.c_str()), head.size() + 1});
  const File file = File::open(path, File::Mode::kRead);
  std::vector<std::byte> buffer(1 << 20);
  for (uint64_t at = 0; at < size;) {
    const MutableBytes piece{buffer.data(), std::min<uint64_t>(buffer.size(), size - at)};
    file.read_at(at, piece);
    hash.update(piece);
    at += piece.size();
  }
  return hash.finish().hex();
}

}  // namespace

std::string HubRequest::header(const std::string& name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string HubRequest::path() const {
  // As a proxy, the hub is given whole URLs.
  const size_t host = target.rfind("http://", 0) == 0 ? 7 : 0;
  const size_t begin = host > 0 ? std::min(target.find('/', host), target.size()) : 0;
  return fetch::percent_decode(target.substr(begin, target.find('?') - begin));
}

std::string HubRequest::parameter(const std::string& name) const {
  const auto url = fetch::Url::parse("http://hub" + target);
  std::string value = url ? url->parameter(name).value_or("") : "";
  std::replace(value.begin(), value.end(), '+', ' ');
  return value;
}

HubServer::HubServer(HubOptions options) : options_(std::move(options)) {
  if (!options_.certificate.empty()) {
    SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
    tls_ = std::shared_ptr<void>(context, [](void* c) { SSL_CTX_free(static_cast<SSL_CTX*>(c)); });
    if (context == nullptr || SSL_CTX_use_certificate_file(context, options_.certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, options_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
      throw std::runtime_error("hub_server: cannot use the certificate");
    }
  }
  listener_ = listen_on(options_.port, port_);
  cdn_listener_ = listen_on(0, cdn_port_);
  acceptors_.emplace_back([this] { accept_loop(listener_, false); });
  acceptors_.emplace_back([this] { accept_loop(cdn_listener_, true); });
}

HubServer::~HubServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  ::shutdown(cdn_listener_, SHUT_RDWR);
  for (std::thread& thread : acceptors_) thread.join();
  ::close(listener_);
  ::close(cdn_listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }
  while (live_connections_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void HubServer::accept_loop(int listener, bool on_cdn) {
  while (!stopping_) {
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    const int yes = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    {
      const std::lock_guard lock(mutex_);
      sockets_.insert(socket);
    }
    ++live_connections_;
    std::thread([this, socket, on_cdn] {
      HubConnection(*this, socket, on_cdn).serve();
      {
        const std::lock_guard lock(mutex_);
        sockets_.erase(socket);
        ::close(socket);
      }
      --live_connections_;
    }).detach();
  }
}

void HubServer::add_fault(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.emplace_back(std::move(fault), 0);
}

void HubServer::clear_faults() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
}

std::vector<HubRequest> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HubServer::clear_requests() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
}

void HubServer::refresh() {
  const std::lock_guard lock(mutex_);
  repos_.clear();
}

std::string HubServer::commit(const std::string& name) {
  const auto found = repo(name);
  return found ? found->commit : "";
}

std::optional<Fault> HubServer::take_fault(const HubRequest& request) {
  const std::lock_guard lock(mutex_);
  for (auto& [fault, seen] : faults_) {
    if (request.target.find(fault.match) == std::string::npos) continue;
    if (!fault.range.empty() && request.header("range").find(fault.range) == std::string::npos) continue;
    const int number = seen++;
    if (number < fault.skip || (fault.times >= 0 && number >= fault.skip + fault.times)) continue;
    return fault;
  }
  return std::nullopt;
}

fs::path HubServer::repo_directory(const std::string& name) const {
  const fs::path below = options_.root / name;
  return fs::is_directory(below) ? below : options_.root;
}

std::shared_ptr<const HubServer::Repo> HubServer::repo(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = repos_.find(name); at != repos_.end()) return at->second;
  }
  if (name.find("..") != std::string::npos || name.ends_with("/missing")) return nullptr;
  const fs::path directory = repo_directory(name);
  auto out = std::make_shared<Repo>();
  out->name = name;
  for (const auto& item : fs::recursive_directory_iterator(directory, fs::directory_options::follow_directory_symlink)) {
    if (!item.is_regular_file()) continue;
    Entry entry;
    entry.path = item.path().lexically_relative(directory).generic_string();
    entry.file = item.path();
    entry.size = item.file_size();
    entry.lfs = is_weight(entry.path) || entry.size >= options_.lfs_from_bytes;
    entry.sha256 = sha256_of(File::open(entry.file, File::Mode::kRead)).hex();
    if (!entry.lfs) entry.git_sha1 = git_blob_id(entry.file, entry.size);
    out->entries.push_back(std::move(entry));
  }
  std::sort(out->entries.begin(), out->entries.end(), [](const Entry& a, const Entry& b) { return a.path < b.path; });
  Sha1 hash;
  for (const Entry& entry : out->entries) hash.update(as_bytes(entry.path + "\n" + entry.sha256 + "\n"));
  out->commit = hash.finish().hex();
  const std::lock_guard lock(mutex_);
  return repos_.emplace(name, std::move(out)).first->second;
}

std::optional<HubServer::Entry> HubServer::find_by_digest(const std::string& repo_name, const std::string& hex) {
  const auto found = repo(repo_name);
  if (!found) return std::nullopt;
  for (const Entry& entry : found->entries) {
    if (entry.sha256 == hex) return entry;
  }
  return std::nullopt;
}

std::string HubServer::sign(const std::string& path, int64_t expires) const {
  return Sha256::of(as_bytes(path + std::to_string(expires) + std::to_string(signature_epoch_) + "secret of this hub")).hex();
}

void HubServer::handle_control(HubConnection& connection, const HubRequest& request) {
  const std::string path = request.path();
  if (path == "/__control/requests") {
    json out = json::array();
    for (const HubRequest& seen : requests()) {
      json headers = json::object();
      for (const auto& [name, value] : seen.headers) headers[name] = value;
      out.push_back({{"method", seen.method}, {"target", seen.target}, {"on_cdn", seen.on_cdn}, {"headers", headers}});
    }
    return connection.respond_json(200, out.dump());
  }
  if (path == "/__control/reset") {
    clear_faults();
    clear_requests();
    refresh();
    return connection.respond_json(200, "{}");
  }
  if (path == "/__control/expire") {
    expire_urls();
    return connection.respond_json(200, "{}");
  }
  if (path == "/__control/faults") {
    try {
      for (const json& item : json::parse(request.body)) {
        Fault fault;
        fault.match = item.value("match", "");
        fault.range = item.value("range", "");
        fault.action = item.at("action");
        fault.skip = item.value("skip", 0);
        fault.times = item.value("times", 1);
        fault.bytes = item.value("bytes", int64_t{0});
        fault.status = item.value("status", 0);
        fault.seconds = item.value("seconds", 0.0);
        fault.text = item.value("text", "");
        for (const auto& [name, value] : item.value("headers", json::object()).items()) {
          fault.headers.emplace_back(name, value.get<std::string>());
        }
        add_fault(std::move(fault));
      }
    } catch (const json::exception& e) {
      return connection.respond_json(400, json{{"error", e.what()}}.dump());
    }
    return connection.respond_json(200, "{}");
  }
  connection.respond_json(404, R"({"error":"no such control"})");
}

}  // namespace tierpack::support
