// A small hub for tests and the demo: serves a directory in the shapes of Hugging Face, ModelScope, a container registry
// and a plain file server, honestly by default, and wrongly on request.
//
// Two listeners on 127.0.0.1: the hub, and a "delivery network" on another port (hence another origin) to which large
// files are redirected with signed URLs that expire. A thread per connection; bodies go out with sendfile.
//
//   /api/models/ORG/NAME[/revision/REV], .../tree/REV, .../paths-info/REV, .../refs   Hugging Face API (also datasets, spaces)
//   /ORG/NAME/resolve/REV/PATH                                         302 to the delivery network, or 307 for small files
//   /api/v1/models/ORG/NAME/repo/files, .../repo?FilePath=             ModelScope (also datasets .../repo/tree)
//   /v2/REPO/manifests/TAG, /v2/REPO/blobs/DIGEST, /token              container registry
//   /files/PATH                                                        plain files below the root, with strong ETags
//   /__control/requests, /__control/faults, /__control/reset           what was asked; what to do wrong
//
// A repository ORG/NAME is the directory ROOT/ORG/NAME, or ROOT itself if that does not exist.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tierpack::support {

// One thing to do wrong. `action` is a name from hub_faults.cpp; the meaning of the other members is told there.
struct Fault {
  std::string match;    // substring of the request target; "" = any
  std::string range;    // substring of the Range header; "" = any
  std::string action;
  int skip = 0;         // matching requests to let pass first
  int times = 1;        // then this many get it; -1 = all
  int64_t bytes = 0;
  int status = 0;
  double seconds = 0;
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct HubRequest {
  std::string method;
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  bool on_cdn = false;
  std::string header(const std::string& name) const;
  std::string path() const;                               // decoded, without query
  std::string parameter(const std::string& name) const;   // decoded
};

struct HubOptions {
  std::filesystem::path root;
  int port = 0;                 // 0 = any
  size_t page_entries = 1000;   // of a tree
  uint64_t lfs_from_bytes = 256 << 10;  // files at least this large (and weights of any size) have a SHA-256
  int64_t url_seconds = 3600;   // life of a signed URL
  std::string token;            // not empty: every repository is gated, this token opens it
  bool registry_auth = false;   // the registry wants an anonymous token
  std::filesystem::path certificate;  // with `key`: the hub, and the delivery network unless plain_cdn, speak TLS
  std::filesystem::path key;
  bool plain_cdn = false;
};

class HubServer {
 public:
  explicit HubServer(HubOptions options);
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  int port() const { return port_; }
  int cdn_port() const { return cdn_port_; }
  std::string url() const { return scheme(false) + "127.0.0.1:" + std::to_string(port_); }
  std::string cdn_url() const { return scheme(true) + "127.0.0.1:" + std::to_string(cdn_port_); }

  void add_fault(Fault fault);
  void clear_faults();
  std::vector<HubRequest> requests() const;
  void clear_requests();
  // Signed URLs handed out so far stop working.
  void expire_urls() { ++signature_epoch_; }
  // Forgets hashes and the commit, after files below the root have been changed.
  void refresh();
  std::string commit(const std::string& repo);

 private:
  friend class HubConnection;
  struct Entry {
    std::string path;
    std::filesystem::path file;
    uint64_t size = 0;
    bool lfs = false;
    std::string sha256;
    std::string git_sha1;
  };
  struct Repo {
    std::string name;
    std::string commit;
    std::vector<Entry> entries;  // by path
  };

  std::string scheme(bool cdn) const { return tls_ && !(cdn && options_.plain_cdn) ? "https://" : "http://"; }
  void accept_loop(int listener, bool on_cdn);
  std::filesystem::path repo_directory(const std::string& name) const;
  std::shared_ptr<const Repo> repo(const std::string& name);
  std::optional<Entry> find_by_digest(const std::string& repo_name, const std::string& hex);
  std::optional<Fault> take_fault(const HubRequest& request);
  std::string sign(const std::string& path, int64_t expires) const;
  void handle_control(class HubConnection& connection, const HubRequest& request);

  HubOptions options_;
  std::shared_ptr<void> tls_;  // an SSL_CTX
  int port_ = 0;
  int cdn_port_ = 0;
  int listener_ = -1;
  int cdn_listener_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<int> signature_epoch_{0};
  std::vector<std::thread> acceptors_;
  std::atomic<int> live_connections_{0};

  mutable std::mutex mutex_;
  std::set<int> sockets_;
  std::vector<std::pair<Fault, int>> faults_;  // with the number of matches seen
  std::vector<HubRequest> requests_;
  std::map<std::string, std::shared_ptr<const Repo>> repos_;
};

}  // namespace tierpack::support
