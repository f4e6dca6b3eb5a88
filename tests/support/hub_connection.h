// One connection of the test hub: reads requests, writes responses. Internal to tests/support/hub_*.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/hub_server.h"

namespace tierpack::support {

using Headers = std::vector<std::pair<std::string, std::string>>;

class HubConnection {
 public:
  HubConnection(HubServer& hub, int socket, bool on_cdn);
  ~HubConnection();
  void serve();  // until closed

  // A whole small response.
  void respond(int status, const Headers& headers, const std::string& body);
  void respond_json(int status, const std::string& body, Headers headers = {});

 private:
  friend class HubServer;
  // Bytes received, 0 at the end, negative on failure; over TLS if the hub speaks it.
  ssize_t receive(char* data, size_t size);
  bool read_request(HubRequest& request);
  void handle(const HubRequest& request);
  void handle_hf_api(const HubRequest& request, const std::vector<std::string>& parts);
  void handle_hf_tree(const HubRequest& request, const std::string& type, const std::string& repo_name);
  void handle_resolve(const HubRequest& request, const std::string& repo_name, const std::string& path);
  void handle_modelscope(const HubRequest& request, const std::vector<std::string>& parts);
  void handle_registry(const HubRequest& request, const std::string& path);
  bool is_authorised(const HubRequest& request);

  // A file, by range, honest unless `fault` says otherwise (hub_faults.cpp).
  struct FileAnswer {
    std::filesystem::path file;
    std::string etag = {};
    Headers headers = {};
  };
  void send_file(const HubRequest& request, const FileAnswer& answer);
  void send_wrong(const HubRequest& request, const FileAnswer& answer, const Fault& fault, uint64_t size, uint64_t first,
                  uint64_t last, bool ranged);
  // Faults that replace the whole answer; true if this was one.
  bool answer_fault(const HubRequest& request, const Fault& fault);

  void write_head(int status, const Headers& headers);
  bool write_all(std::string_view text);
  // Bytes [first, last] of a file; at most `limit` of them; `rate` bytes a second if not 0.
  bool write_file(const std::filesystem::path& file, uint64_t first, uint64_t last, uint64_t limit, double rate);
  std::string read_file(const std::filesystem::path& file, uint64_t first, uint64_t last) const;
  void close_now(bool reset);
  void sleep_unless_stopped(double seconds);

  HubServer& hub_;
  int socket_;
  bool on_cdn_;
  void* tls_ = nullptr;  // an SSL
  bool open_ = true;
  bool head_only_ = false;
  std::string pending_;  // read, not yet used
  std::optional<Fault> fault_;
};

std::string quote(const std::string& text);  // as a JSON string
const char* reason_of(int status);

}  // namespace tierpack::support
