// What a verification found, as data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tierpack::verify {

struct Finding {
  enum class Kind {
    kMissing,     // a promised file is not there
    kSize,        // a file has another size than promised
    kDigest,      // a file has another SHA-256 than promised
    kStructure,   // a container contradicts itself
    kRecord,      // a record of a pack does not match its checksum
    kPage,        // a page of a pack's rows does not match its checksum
    kPadding,     // bytes that must be zero are not
    kNotFinite,   // weights that are NaN or infinite
    kShard,       // a pack does not give back a source shard
    kUnreadable,  // the operating system cannot read it
    kUnlisted,    // a file that nothing promises anything about
    kUnfinished,  // what an interrupted download or repack left
    kUnproved,    // nothing to hold the content against
  };
  Kind kind = Kind::kStructure;
  std::string where;    // file, relative to the path verified
  std::string message;  // what was found and what was expected
  // The last three kinds are notes: they do not make a verification fail.
  bool is_problem() const { return kind < Kind::kUnlisted; }
};

const char* finding_kind_name(Finding::Kind kind);

struct Report {
  std::string path;
  std::string what;                     // "directory", "file", "pack"
  std::vector<std::string> references;  // what the content was held against
  std::vector<Finding> findings;
  uint64_t files = 0;                   // looked at
  uint64_t proved_files = 0;            // whose SHA-256 is the promised one
  uint64_t hashed_bytes = 0;
  uint64_t records = 0;                 // of a pack, checked
  uint64_t pages = 0;
  uint64_t shards = 0;                  // of a pack, recomputed
  double seconds = 0;

  size_t problems() const;
  bool ok() const { return problems() == 0; }
  void add(Finding::Kind kind, std::string where, std::string message);
};

// Problems first, then notes, each by place.
void sort_findings(Report& report);

}  // namespace tierpack::verify
