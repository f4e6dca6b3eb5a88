// What hubs answer, as pure functions from text to files: everything a hub can say about a file passes through here. Throw
// kCorrupt, naming `where`, for anything that makes no sense. Paths are not yet checked (check_listing does that), URLs
// are not yet set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fetch/listing.h"

namespace tierpack::fetch {

// One page of GET /api/models/{repo}/tree/{commit}.
std::vector<RemoteFile> parse_huggingface_tree(std::string_view body, const std::string& where);

// GET /api/v1/models/{repo}/repo/files, in its envelope, which must say success. `entries` is the number of entries on
// the page, folders included.
std::vector<RemoteFile> parse_modelscope_files(std::string_view body, const std::string& where, size_t& entries);

// A registry's manifest; `model` names files that the manifest gives no title. Every file has its digest as sha256.
std::vector<RemoteFile> parse_registry_manifest(std::string_view body, const std::string& where, const std::string& model);

}  // namespace tierpack::fetch
