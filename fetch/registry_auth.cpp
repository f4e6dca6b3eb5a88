#include "fetch/registry_auth.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"

namespace tierpack::fetch {

namespace {

// Registries whose realm lives elsewhere by design.
struct KnownRealm {
  const char* registry;
  const char* realm;
};
constexpr KnownRealm kKnownRealms[] = {
    {"registry-1.docker.io", "auth.docker.io"},
    {"index.docker.io", "auth.docker.io"},
    {"registry.ollama.ai", "ollama.com"},
};

// key="value" pairs of a Bearer challenge.
std::optional<std::string> challenge_value(const std::string& challenge, const std::string& key) {
  const size_t at = challenge.find(key + "=\"");
  if (at == std::string::npos || (at > 0 && challenge[at - 1] != ' ' && challenge[at - 1] != ',')) return std::nullopt;
  const size_t from = at + key.size() + 2;
  const size_t to = challenge.find('"', from);
  if (to == std::string::npos) return std::nullopt;
  return challenge.substr(from, to - from);
}

bool may_issue(const Origin& registry, const Origin& realm) {
  if (realm == registry) return true;
  if (realm.scheme != "https") return false;
  for (const KnownRealm& known : kKnownRealms) {
    if (registry.host == known.registry && realm.host == known.realm) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> registry_token(HttpClient& client, const Url& registry, const ResponseHead& denied) {
  const std::string challenge = denied.value("www-authenticate");
  if (!challenge.starts_with("Bearer ")) return std::nullopt;
  const auto realm = challenge_value(challenge, "realm");
  if (!realm) return std::nullopt;
  auto url = Url::parse(*realm);
  if (!url) return std::nullopt;  // a sentence for people, as hubs send
  if (url->is_file() || url->has_credentials() || !may_issue(registry.origin(), url->origin())) {
    fail(ErrorKind::kRefused, "{} sends us for a token to '{}', which is not its own host; refused",
         registry.origin().text(), printable(*realm));
  }
  std::string query = url->query();
  for (const char* key : {"service", "scope"}) {
    if (const auto value = challenge_value(challenge, key)) {
      query += fmt::format("{}{}={}", query.empty() ? "" : "&", key, percent_encode(*value, ":/,"));
    }
  }
  const Url full = Url::require(url->origin().text() + url->path() + (query.empty() ? "" : "?" + query), "realm");
  const HttpAnswer answer = client.get(full, {.max_bytes = 1 << 20});
  if (answer.head.status != 200) return std::nullopt;
  const Json body = parse_json(answer.body, full.redacted());
  for (const char* key : {"token", "access_token"}) {
    if (!body.is_object() || !body.contains(key) || !body[key].is_string()) continue;
    std::string token = body[key].get<std::string>();
    if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c <= 0x20 || c == 0x7f; })) {
      fail(ErrorKind::kCorrupt, "{} gives a token with white space or control characters in it", full.redacted());
    }
    return token;
  }
  return std::nullopt;
}

}  // namespace tierpack::fetch
