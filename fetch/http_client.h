// Small documents: API answers, manifests, checksum lists. Blocking, with redirects, credentials per hop, retries with
// backoff, and a limit on size. File contents go through the download engine instead.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "fetch/credentials.h"
#include "fetch/http_exchange.h"
#include "fetch/retry.h"

namespace tierpack::fetch {

struct HttpAnswer {
  ResponseHead head = {};
  std::string body = {};
  Url url;  // after redirects
};

struct GetOptions {
  std::vector<std::string> headers = {};  // complete lines
  uint64_t max_bytes = uint64_t{64} << 20;
  // The body of a 200 must be JSON: a login page or a cut answer is asked for again, in the end kCorrupt.
  bool json = false;
  // Stop after this many bytes of the body instead of failing: for a look at the beginning.
  std::optional<uint64_t> enough_bytes = {};
};

class HttpClient {
 public:
  HttpClient(HttpSettings settings, Credentials credentials, RetryPolicy retry);

  // Any status but those worth retrying (408, 425, 429, 5xx) is returned. Throws kNetwork when retries are used up,
  // kRefused for a redirect that may not be followed, kCorrupt for a body larger than allowed.
  HttpAnswer get(const Url& url, const GetOptions& options = {});

  const HttpSettings& settings() const { return settings_; }
  const Credentials& credentials() const { return credentials_; }
  const RetryPolicy& retry() const { return retry_; }
  void add_credential(const Origin& origin, std::string token) { credentials_.add(origin, std::move(token)); }
  // Called before each wait, with a sentence.
  void set_on_retry(std::function<void(const std::string&)> on_retry) { on_retry_ = std::move(on_retry); }

 private:
  HttpSettings settings_;
  Credentials credentials_;
  RetryPolicy retry_;
  HttpExchange exchange_;
  std::function<void(const std::string&)> on_retry_;
  std::minstd_rand random_;
};

// Sleeps, waking up for an interrupt, which is thrown.
void sleep_interruptibly(double seconds);

}  // namespace tierpack::fetch
