#include "fetch/redirect_rules.h"

#include <fmt/core.h>

namespace tierpack::fetch {

Hop first_hop(const Url& url) {
  return {.url = url, .https_only = url.origin().scheme == "https", .first_peer = classify_literal(url.origin().host)};
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

RedirectDecision follow_redirect(const Hop& from, const ResponseHead& head, bool allow_private) {
  const std::string here = from.url.redacted();
  const auto refuse = [&](std::string why) { return RedirectDecision{std::nullopt, here + " " + std::move(why)}; };

  if (from.number >= kMaxRedirects) return refuse(fmt::format("redirects more than {} times", kMaxRedirects));
  if (head.count("location") != 1 || head.find("location")->empty()) {
    return refuse(fmt::format("answers {} without one Location", head.status));
  }
  const std::string& location = *head.find("location");
  const auto target = from.url.resolve(location);
  if (!target) return refuse("redirects to something that is not an http or https URL");
  const std::string& scheme = target->origin().scheme;
  if (scheme != "http" && scheme != "https") return refuse(fmt::format("redirects to a {}: URL; refused", scheme));
  if (target->has_credentials()) return refuse("redirects to a URL with a user name or password in it; refused");
  if (from.https_only && scheme != "https") {
    return refuse(fmt::format("redirects from https to {}; refused, because nothing there is protected",
                              target->redacted()));
  }
  if (from.first_peer && !allow_private) {
    const auto literal = classify_literal(target->origin().host);
    if (literal && !redirect_may_reach(*from.first_peer, *literal)) {
      return refuse(fmt::format("redirects to the {} address {}; refused (--allow-private-redirects permits it)",
                                address_class_name(*literal), target->origin().host));
    }
  }
  Hop next = from;
  next.url = *target;
  ++next.number;
  next.on_hub = from.on_hub && location.find("://") == std::string::npos && location.substr(0, 2) != "//";
  return {next, {}};
}

}  // namespace tierpack::fetch
