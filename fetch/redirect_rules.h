// Where a redirect may lead. Redirects are followed by our own loop, hop by hop, because each hop decides anew which
// credentials it may see, whether its address may be reached, and whose validators may be believed.
#pragma once

#include <optional>
#include <string>

#include "fetch/address.h"
#include "fetch/http_head.h"
#include "fetch/url.h"

namespace tierpack::fetch {

inline constexpr int kMaxRedirects = 10;

// A request on its way through redirects.
struct Hop {
  Url url;
  int number = 0;          // 0: the URL that was asked for
  // Still the hub (or the host the user named): hop 0 and relative redirects from there. An absolute redirect leads to
  // a delivery network, whose validators and 403s mean something else.
  bool on_hub = true;
  bool https_only = false;  // the first URL was https: nothing later may be less
  std::optional<AddressClass> first_peer = {};  // where hop 0 really connected to
};

struct RedirectDecision {
  std::optional<Hop> next;  // nullopt: refused
  std::string refusal;      // a sentence for the user
};

Hop first_hop(const Url& url);
bool is_redirect(int status);  // 301, 302, 303, 307, 308
// `allow_private` is the user's --allow-private-redirects.
RedirectDecision follow_redirect(const Hop& from, const ResponseHead& head, bool allow_private);

}  // namespace tierpack::fetch
