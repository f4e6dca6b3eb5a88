// One HTTP request and its response on one hop, over a reusable libcurl handle. Nothing is followed, decoded, retried or
// believed here: the receiver sees the head before any byte of the body and may stop at either.
//
// An exchange is driven either by perform() or by a libcurl multi handle that the caller owns.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "fetch/http_head.h"
#include "fetch/redirect_rules.h"

namespace tierpack::fetch {

struct HttpSettings {
  std::string user_agent = "tierpack";
  double connect_timeout_s = 15;
  double stall_timeout_s = 30;      // less than stall_bytes_per_s for this long ends the exchange
  uint64_t stall_bytes_per_s = 1024;
  double total_timeout_s = 0;       // for a whole exchange; 0 = none, for payloads
  std::string http_proxy;           // for http URLs; "" = as libcurl reads the environment
  std::string ca_file;              // "" = the system's
  std::string ca_directory;
  bool insecure = false;            // --insecure: certificates are not verified
  int ip_version = 0;               // 4, 6 or 0 = any
  uint64_t receive_buffer_bytes = uint64_t{512} << 10;  // large reads: fewer system calls per byte
  bool allow_private_redirects = false;
};

enum class BodyStep {
  kTaken,
  kStop,   // the rest is not wanted
  kLater,  // not now: the same bytes come again after resume()
};

class ExchangeReceiver {
 public:
  virtual ~ExchangeReceiver() = default;
  // false: stop here, the body is not wanted.
  virtual bool on_head(const ResponseHead& head) = 0;
  virtual BodyStep on_body(Bytes data) = 0;
};

struct ExchangeResult {
  enum class Kind {
    kComplete,   // a whole response, as its framing says
    kStopped,    // the receiver said stop
    kTransient,  // worth another try
    kPermanent,  // not worth one
  };
  Kind kind = Kind::kComplete;
  std::string message;  // "connecting to host failed: ..."; empty for the first two
};

class HttpExchange {
 public:
  explicit HttpExchange(const HttpSettings& settings);
  ~HttpExchange();
  HttpExchange(HttpExchange&&) noexcept;
  HttpExchange& operator=(HttpExchange&&) noexcept;

  // Configures the handle for a GET of hop.url; `headers` are complete lines. The receiver must live until the exchange
  // has ended.
  void prepare(const Hop& hop, const std::vector<std::string>& headers, ExchangeReceiver& receiver);
  // Runs it on this thread; stops when the user interrupts.
  ExchangeResult perform();
  // For a multi handle: what its completion code means.
  ExchangeResult finished(int curl_code);
  // After kLater, on the thread that drives the exchange; may call the receiver.
  void resume();

  // The hop as it went, with the class of the peer filled in when it was the first.
  const Hop& hop() const;
  void* handle() const;  // CURL*

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tierpack::fetch
