// Tokens, each bound to the origins it was given for. A request carries a token only if scheme, host and port of its
// URL equal such an origin exactly; nothing else in the program adds credentials.
#pragma once

#include <string>
#include <vector>

#include "fetch/url.h"

namespace tierpack::fetch {

class Credentials {
 public:
  // `token` without white space at its ends; an empty one is ignored. `cookie` additionally sends it as the named
  // cookie (ModelScope wants both).
  void add(const Origin& origin, std::string token, std::string cookie = "");
  // "Authorization: ..." and "Cookie: ..." lines for this URL.
  std::vector<std::string> headers_for(const Url& url) const;
  bool has(const Origin& origin) const;
  // `text` with every token in it replaced by "***".
  std::string redact(std::string text) const;

 private:
  struct Entry {
    Origin origin;
    std::string token;
    std::string cookie;
  };
  std::vector<Entry> entries_;
};

}  // namespace tierpack::fetch
