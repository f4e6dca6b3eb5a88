// `tierpack gguf`: a pack as one GGUF file that other programs read.
#pragma once

#include <filesystem>
#include <optional>

#include "base/command.h"
#include "base/progress.h"
#include "formats/dtype.h"

namespace tierpack::repack {

struct GgufExportOptions {
  std::filesystem::path pack;
  std::filesystem::path target;
  // What tensors become that GGUF cannot hold (FP8 with its factors, NVFP4 rows that are no whole blocks): BF16, F16 or F32. Refused when unset.
  std::optional<DType> others;
  bool dequantize = false;  // all quantised tensors become `others`
  bool force = false;       // replace a file
  ProgressStyle progress = ProgressStyle::kSilent;
};

struct GgufExportReport {
  uint64_t bytes = 0;
  size_t tensors = 0;
  std::vector<std::string> converted;  // tensors that were written as `others`
};

// Writes all tensors of a pack, in load order, with the pack's metadata. Every record is proved before it is used. The file appears whole or not
// at all. Throws kUnsupported for types that GGUF cannot hold, kUsage when the target exists, kCapacity when the disk is too small.
GgufExportReport export_gguf(const GgufExportOptions& options);

CommandRun setup_gguf(CLI::App& app);

}  // namespace tierpack::repack
