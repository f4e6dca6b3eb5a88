// Anonymous tokens of container registries: a 401 names a realm, the realm gives a token for the one repository.
#pragma once

#include <optional>
#include <string>

#include "fetch/http_client.h"

namespace tierpack::fetch {

// The token that `denied` (an answer of `registry`) asks for; nullopt if it does not ask in a way we know. Throws kRefused
// when the realm is at a host that has no business handing out tokens for this registry.
std::optional<std::string> registry_token(HttpClient& client, const Url& registry, const ResponseHead& denied);

}  // namespace tierpack::fetch
