// The journal beside an unfinished download: which of its bytes were on the disk, not merely written, when the journal
// was. It is replaced as a whole (temporary, fsync, rename), and checked by a checksum when read; a journal that is
// missing or damaged means that nothing is known and the part is begun anew.
//
// Text, one field a line, in this order:
//   tierpack-journal 1
//   size 1049088            bytes of the finished file, or "-" while unknown
//   sha256 <64 hex>         what the finished file must be, or "-"
//   validator "abc"         strong ETag that the bytes came with, or "-"
//   part <device> <inode> <birth>   the file that the extents speak about; birth in ns since 1970, 0 if unknown
//   extents 0-400 800-900   half-open byte ranges
//   xxh3 <32 hex>           XXH3-128 of everything above
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "fetch/extents.h"

namespace tierpack::fetch {

struct Journal {
  std::optional<uint64_t> size = {};
  std::optional<Sha256Digest> sha256 = {};
  std::string validator = {};  // "" = none
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t birth_ns = 0;  // inode numbers are reused, moments are not
  ExtentSet extents = {};
  bool operator==(const Journal&) const = default;
};

inline constexpr uint64_t kMaxJournalBytes = uint64_t{4} << 20;

std::string encode_journal(const Journal& journal);
// nullopt for anything but exactly what encode_journal wrote.
std::optional<Journal> parse_journal(std::string_view text);

}  // namespace tierpack::fetch
