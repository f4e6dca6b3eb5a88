// A safetensors checkpoint as the source of a pack: its weight files, and the small files beside them that belong to it.
#pragma once

#include <filesystem>

#include "formats/pack.h"
#include "repack/repack_source.h"

namespace tierpack::repack {

// Whether a directory or file is a safetensors checkpoint rather than a GGUF.
bool is_checkpoint(const std::filesystem::path& path);
// The files of a checkpoint, weights first, each group in order of their names: the shards that its index names, or the one file, and all plain files
// beside them that are not hidden, not weights and not tierpack's own.
std::vector<std::filesystem::path> checkpoint_files(const std::filesystem::path& path);

// Fills layouts, tensors, derived values and metadata from source.shards, whose bytes are readable. Throws kUnsupported for what the tables do not know.
void read_checkpoint(RepackSource& source);

}  // namespace tierpack::repack
