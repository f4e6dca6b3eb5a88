// What the fields of a pack must say together.
#pragma once

#include <string>

#include "formats/pack.h"

namespace tierpack {

// Throws kCorrupt unless: every file is one of a pack's and there once; records tile their segments; every tensor and
// expert has its record and every record its owner; parts, pages and pieces lie where the layout's formulas put them;
// each file of the source is made of all its pieces, each byte of source.bin is used once, and a tensor's bytes are all in pieces or, where it was computed, none.
// `records_bytes` and `sources_bytes` are the sizes of records.bin and sources.bin.
void check_manifest(const PackManifest& manifest, uint64_t records_bytes, uint64_t sources_bytes, const std::string& source);

}  // namespace tierpack
