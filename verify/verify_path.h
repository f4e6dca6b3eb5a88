// Verification of what is on disk: a source directory, a GGUF file, a repository in the hub's cache, or a pack.
#pragma once

#include <filesystem>
#include <string>

#include "base/progress.h"
#include "verify/remote.h"
#include "verify/report.h"

namespace tierpack::verify {

struct VerifyOptions {
  std::filesystem::path path;
  // "" = the lock or SHA256SUMS beside the files; a path of one; "hub" = where the lock says the files come from, asked
  // again; or a reference such as "hf:org/name@revision", whose list is asked for.
  std::string against = {};
  bool deep = false;     // packs: recompute the source shards' SHA-256; models: look into every value
  int jobs = 1;
  ProgressStyle progress = ProgressStyle::kSilent;
  bool repair = false;   // download again what is damaged or missing
  bool dry_run = false;  // with `repair`: only say what that would be
  FileSelection selection = {};
  Remote remote = {};

  bool selects(const std::string& name) const {
    return selection.is_everything() || !remote.selects || remote.selects(selection, name);
  }
};

// Everything wrong with the bytes becomes a finding; only a path that does not exist or a reference that cannot be read
// or asked is thrown.
Report verify_path(const VerifyOptions& options);

// The two halves of verify_path.
Report verify_files(const VerifyOptions& options);  // directory or file
Report verify_pack(const VerifyOptions& options);

}  // namespace tierpack::verify
