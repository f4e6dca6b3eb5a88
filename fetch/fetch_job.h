// What `tierpack fetch` does, from its options to its exit code: list, select, check, download, lock.
#pragma once

#include <string>
#include <vector>

#include "fetch/glob.h"
#include "fetch/network_options.h"

namespace tierpack::fetch {

struct FetchOptions : NetworkOptions {
  std::string reference;
  std::string to;
  Selection selection;
  std::string revision;
  std::string sha256;
  std::string lock;
  int jobs = 4;
  double checkpoint_s = 2;
  bool reread = false;
  bool force = false;
  bool accept_unknown_size = false;
  bool no_structure_check = false;
  bool use_hf_cache = false;
  bool no_cache = false;  // do not look for the files in the hub's cache
  std::string hf_cache;  // "" = the environment's
  bool offline = false;
  bool dry_run = false;
  bool no_space_check = false;
  bool wait = false;
  bool json = false;
};

// Returns the exit code; throws what ends the run.
int run_fetch(const FetchOptions& options);

}  // namespace tierpack::fetch
