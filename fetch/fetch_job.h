// What `tierpack fetch` does, from its options to its exit code: list, select, check, download, lock.
#pragma once

#include <string>
#include <vector>

#include "fetch/glob.h"

namespace tierpack::fetch {

struct FetchOptions {
  std::string reference;
  std::string to;
  Selection selection;
  std::string revision;
  std::string sha256;
  std::string lock;
  std::string endpoint;
  std::vector<std::string> mirrors;
  int jobs = 4;
  std::string connections = "auto";
  std::string limit_rate;
  std::string range_size;
  double stall_timeout_s = 30;
  double connect_timeout_s = 15;
  int retries = 8;
  double retry_wait_s = 1;
  std::string ca_file;
  bool ipv4 = false;
  bool ipv6 = false;
  std::string token_file;
  bool send_token = false;
  bool reread = false;
  bool force = false;
  bool accept_unknown_size = false;
  bool no_structure_check = false;
  bool allow_private = false;
  bool insecure = false;
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

// Downloads exactly these files of a lock again where their content in `directory` is not right, replacing it. Returns the
// exit code. For `verify --repair`.
int refetch_files(const std::string& lock, const std::string& directory, const std::vector<std::string>& paths);

}  // namespace tierpack::fetch
