// Verification of what is on disk: a source directory, a GGUF file or a pack.
#pragma once

#include <filesystem>
#include <optional>

#include "base/progress.h"
#include "verify/report.h"

namespace tierpack::verify {

struct VerifyOptions {
  std::filesystem::path path;
  std::optional<std::filesystem::path> against;  // lock or SHA256SUMS; else the ones beside the files
  bool deep = false;                             // packs: recompute the source shards' SHA-256; safetensors: NaN scan
  int jobs = 1;
  ProgressStyle progress = ProgressStyle::kSilent;
};

// Everything wrong with the bytes becomes a finding; only a path that does not exist or a reference that cannot be read
// is thrown.
Report verify_path(const VerifyOptions& options);

// The two halves of verify_path.
Report verify_files(const VerifyOptions& options);  // directory or file
Report verify_pack(const VerifyOptions& options);

}  // namespace tierpack::verify
