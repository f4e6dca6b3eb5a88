// The binary indexes of a pack: records.bin and sources.bin. docs/pack_format.md has their layouts.
#pragma once

#include <string>
#include <vector>

#include "formats/pack.h"

namespace tierpack {

// kCorrupt for anything but a whole index, kUnsupported for another version. What the fields must say together is checked in pack_check.cpp.
std::vector<Record> parse_records(Bytes bytes, const std::string& source);
// Fills the pieces of manifest.sources, `counts[i]` for file i.
void parse_sources(Bytes bytes, const std::vector<uint64_t>& counts, PackManifest& manifest, const std::string& source);

}  // namespace tierpack
