// What the fields of a pack must say together.
#pragma once

#include <string>

#include "formats/pack.h"

namespace tierpack {

// Throws kCorrupt unless: every file is one of a pack's and there once; records tile their segments; every tensor and
// expert has its record and every record its owner; parts, pages and pieces lie where the layout's formulas put them;
// each shard is made of all its pieces and each tensor and each byte of source.bin is used once. `records_bytes` is the
// size of records.bin.
void check_manifest(const PackManifest& manifest, uint64_t records_bytes, const std::string& source);

}  // namespace tierpack
