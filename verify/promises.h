// What the files of a directory are promised to be: from a lock, a SHA256SUMS file, both, or a source asked anew.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/promised_file.h"

namespace tierpack::verify {

inline constexpr const char* kSumsFileName = "SHA256SUMS";

using tierpack::PromisedFile;

struct Reference {
  std::vector<std::string> origins;  // files the promises came from, as paths for messages
  std::vector<PromisedFile> files;   // by path
  const PromisedFile* find(const std::string& path) const;
};

// Reads tierpack.lock.json and SHA256SUMS of `directory`, whichever exist; nullopt when neither does. Throws kCorrupt
// when they contradict each other.
std::optional<Reference> find_reference(const std::filesystem::path& directory);

// The reference of the nearest directory that has one, from `directory` up through `levels` parents, and that directory:
// a hub's folders of quantisations lie below the lock that speaks of them.
struct PlacedReference {
  Reference reference;
  std::filesystem::path directory;
};
std::optional<PlacedReference> find_reference_above(const std::filesystem::path& directory, int levels);

// A lock or a SHA256SUMS file, told apart by its first byte.
Reference read_reference(const std::filesystem::path& path);

// A list as a reference. Throws kCorrupt when it promises no hash at all.
Reference reference_of(const PromisedList& list);

// Whether `text` names a source on a network ("hf:...", "https://...") rather than a file.
bool is_remote_reference(const std::string& text);

}  // namespace tierpack::verify
