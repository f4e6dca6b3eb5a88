// Decides what the files of a verification are held against, and where they could be downloaded from again.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "verify/hub_cache.h"
#include "verify/promises.h"
#include "verify/verify_path.h"

namespace tierpack::verify {

struct ChosenReference {
  std::optional<Reference> reference;  // nullopt: nothing promises anything
  std::optional<HubCache> cache;       // the files are a repository in the hub's cache, named relative to it
  std::string repair_from;             // a lock's path or a reference; "" = nothing says where
  std::string repair_endpoint;
  std::set<std::string> repairable;    // what `repair_from` lists (all of `reference` for a cache)
  std::vector<Finding> findings;       // references that contradict each other
};

// `directory` is where the files are. Throws kUsage for an `against` that is neither a file nor a reference; what
// Remote::list throws; kCorrupt for references that cannot be read.
ChosenReference choose_reference(const VerifyOptions& options, const std::filesystem::path& directory);

// The reference that `against` names, which must not be "" or "hub": for packs, whose files are not the reference's.
Reference read_against(const VerifyOptions& options);

}  // namespace tierpack::verify
