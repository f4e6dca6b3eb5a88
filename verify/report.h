// What a verification found, as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

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
    kSuspicious,  // nothing is wrong that can be proved, but healthy files do not look like this
    kTranscoded,  // how far the values of a pack are from its source's
  };
  Kind kind = Kind::kStructure;
  std::string where;    // file, relative to the path verified
  std::string message;  // what was found and what was expected
  // The last five kinds are notes: they do not make a verification fail.
  bool is_problem() const { return kind < Kind::kUnlisted; }
};

const char* finding_kind_name(Finding::Kind kind);

// What became of one file.
struct FileResult {
  enum class Status { kProved, kWrong, kMissing, kUnproved };
  std::string path;  // relative to the path verified
  uint64_t bytes = 0;
  Status status = Status::kUnproved;
  std::string proof;      // kProved: which hash, and who promised it: "SHA-256, promised by the hub"
  std::string reference;  // kProved, kWrong, kMissing: where the promise is written
};

const char* status_name(FileResult::Status status);

// A file that was downloaded again, or would be.
struct Repair {
  enum class Outcome { kPlanned, kRepaired, kFailed };
  std::string path;
  uint64_t bytes = 0;
  uint64_t downloaded_bytes = 0;
  Outcome outcome = Outcome::kPlanned;
  std::optional<ErrorKind> failure;
  std::string message;  // of a failure
  std::string kept_as;  // of a failure: where the damaged bytes are
};

struct Report {
  std::string path;
  std::string what;                     // "directory", "file", "pack"
  std::vector<std::string> references;  // what the content was held against
  std::vector<FileResult> results;      // of a directory or file, by path
  std::vector<Finding> findings;
  std::vector<Repair> repairs;
  std::string repair_source;            // where repairs come from
  std::vector<std::string> advice;      // what can be done about the problems
  uint64_t files = 0;                   // looked at
  uint64_t proved_files = 0;            // whose hash is the promised one
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
