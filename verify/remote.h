// What verification needs from a network, as functions: verify/ does not know fetch/, main.cpp joins them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/promised_file.h"

namespace tierpack::verify {

struct RepairRequest {
  std::string reference;            // what to download from; may be the path of a lock
  std::string endpoint;             // of that source, "" for its own
  std::filesystem::path directory;  // the files', or a repository's folder in the hub's cache
  bool is_cache = false;
  std::vector<std::string> paths;   // as the reference lists them
};

struct RepairedFile {
  std::string path;               // as the reference lists it
  uint64_t bytes = 0;             // of the whole file
  uint64_t downloaded_bytes = 0;  // by this run
  std::optional<ErrorKind> failure;
  std::string message;            // of a failure
  std::string kept_as;            // where the damaged bytes are, if they are kept
};

// What the user wants looked at, as for fetch.
struct FileSelection {
  std::vector<std::string> include;  // patterns; none: everything
  std::vector<std::string> exclude;
  bool is_everything() const { return include.empty() && exclude.empty(); }
};

// Any of them may be empty: then only what is on disk can be used.
struct Remote {
  // What `reference` ("hf:org/name", a URL, ...) promises about the selected files. `endpoint` may be "".
  std::function<PromisedList(const std::string& reference, const std::string& endpoint, const FileSelection& selection)> list;
  // Downloads files again; a damaged file is replaced only by a proved one. One result per path.
  std::function<std::vector<RepairedFile>(const RepairRequest& request)> repair;
  // Whether a path is selected; patterns are those of fetch.
  std::function<bool(const FileSelection& selection, const std::string& path)> selects;
};

}  // namespace tierpack::verify
