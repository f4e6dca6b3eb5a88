// What a source promises, asked anew, and single files of it downloaded again: the half of `verify --against` and
// `verify --repair` that needs a network. main.cpp hands it to verify/, which does not know this folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fetch/glob.h"
#include "fetch/network_options.h"
#include "formats/promised_file.h"

namespace tierpack::fetch {

// Asks `reference` (see source_reference.h) what it holds, never for payload. `endpoint` is used where the options name
// none. Files that `selection` does not select are left out; an include pattern that matches nothing is kUsage. A plain
// URL without checksums gives a list without hashes.
PromisedList list_promises(const std::string& reference, const std::string& endpoint, const Selection& selection,
                           const NetworkOptions& options);

struct RefetchRequest {
  std::string reference;            // as for `fetch`; the path of a lock is one
  std::string endpoint;             // used where the options name none
  std::filesystem::path directory;  // of plain files, or a repository's folder in the hub's cache
  bool is_cache = false;
  std::vector<std::string> paths;   // as the reference lists them
};

struct RefetchedFile {
  std::string path;
  uint64_t bytes = 0;             // of the whole file
  uint64_t downloaded_bytes = 0;  // received by this run
  std::optional<ErrorKind> failure;
  std::string message;            // of a failure
  std::string kept_as;            // where the damaged file is kept; "" if there was none or it is replaced
};

// Downloads these files again, whatever is there under their names. A damaged file is moved into the state directory
// first, where it stays until the replacement is proved and has the name; nothing else in the directory is touched. What
// an interrupted or failed call received is continued by the next. One result per path, in their order. Throws what ends
// the run before it began: kUsage for a path that the reference does not list, kCapacity when it does not fit.
std::vector<RefetchedFile> refetch(const RefetchRequest& request, const NetworkOptions& options);

}  // namespace tierpack::fetch
