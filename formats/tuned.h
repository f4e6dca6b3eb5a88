// Settings that were found to be fastest for a model on a machine: `calibrate --tune` writes them, run, serve and bench use
// them where the user chose nothing. They never change an answer.
//
// A JSON file {"format": "tierpack-tuned", "version": 1, "entries": [...]}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace tierpack {

struct TunedEntry {
  // Where it holds: a model, a processor, and as many cores as the process could use.
  Sha256Digest routing_id;
  std::string cpu;
  uint32_t cores = 0;
  // The settings.
  uint32_t threads = 0;  // 1 .. 1024
  uint32_t chunk = 0;    // 1 .. 4096
  std::string isa;       // kernel table
  // What they reached.
  double decode_tokens_s = 0;
  double prefill_tokens_s = 0;
  std::string tool_version;
  std::string measured_at;  // UTC, ISO 8601
};

struct TunedFile {
  std::vector<TunedEntry> entries;  // one for each place

  const TunedEntry* find(const Sha256Digest& routing_id, std::string_view cpu, uint32_t cores) const;
  void set(TunedEntry entry);  // replaces the one of the same place
};

std::string encode_tuned(const TunedFile& file);
// Throws kCorrupt for anything else than such a file, kUnsupported for another version of it.
TunedFile parse_tuned(std::string_view text, const std::string& source);
TunedFile read_tuned(const std::filesystem::path& path);
void write_tuned(const std::filesystem::path& path, const TunedFile& file);  // atomic; makes the directory
// tuned.json in this user's state directory; empty when there is none.
std::filesystem::path default_tuned_path();

}  // namespace tierpack
