#include "formats/pack_index.h"

#include <algorithm>

#include "base/error.h"

namespace tierpack {

namespace {

constexpr std::string_view kRecordsMagic = "TPRECORD";
constexpr std::string_view kSourcesMagic = "TPSOURCE";

enum PieceFlags : uint32_t { kAlternate = 1, kTransposed = 2 };

std::vector<std::byte> header(std::string_view magic, uint64_t count, uint64_t entry_bytes) {
  std::vector<std::byte> out(kRecordsHeaderBytes + count * entry_bytes);
  std::copy_n(as_bytes(magic).begin(), magic.size(), out.begin());
  store(&out[8], kPackVersion);
  store(&out[16], count);
  return out;
}

// Proves an index's header and returns the number of entries behind it.
uint64_t read_header(ByteReader& in, std::string_view magic, uint64_t entry_bytes, const std::string& source) {
  if (as_text(in.take(magic.size(), "the magic")) != magic) fail(ErrorKind::kCorrupt, "{}: does not begin with {}", source, magic);
  const auto version = in.read<uint32_t>("the version");
  if (version != kPackVersion) {
    fail(ErrorKind::kUnsupported, "{}: index version {}; this program reads version {}", source, version, kPackVersion);
  }
  if (in.read<uint32_t>("zeros") != 0) in.fail_here("expected four zero bytes");
  const auto count = in.read<uint64_t>("the number of entries");
  if (count > UINT32_MAX || in.remaining() != count * entry_bytes) {
    fail(ErrorKind::kCorrupt, "{}: promises {} entries, but {} bytes follow", source, count, in.remaining());
  }
  return count;
}

}  // namespace

std::vector<std::byte> encode_records(const std::vector<Record>& records) {
  std::vector<std::byte> out = header(kRecordsMagic, records.size(), kRecordEntryBytes);
  std::byte* at = out.data() + kRecordsHeaderBytes;
  for (const Record& record : records) {
    store(at, record.offset);
    store(at + 8, record.bytes);
    store(at + 16, static_cast<uint32_t>(record.segment));
    store(at + 24, record.checksum.low);
    store(at + 32, record.checksum.high);
    at += kRecordEntryBytes;
  }
  return out;
}

std::vector<Record> parse_records(Bytes bytes, const std::string& source) {
  ByteReader in(bytes, source);
  std::vector<Record> out(read_header(in, kRecordsMagic, kRecordEntryBytes, source));
  for (Record& record : out) {
    record.offset = in.read<uint64_t>("a record");
    record.bytes = in.read<uint64_t>("a record");
    const auto segment = in.read<uint32_t>("a record");
    if (segment > static_cast<uint32_t>(Segment::kExperts)) in.fail_here(fmt::format("unknown segment {}", segment));
    record.segment = static_cast<Segment>(segment);
    if (in.read<uint32_t>("a record") != 0) in.fail_here("expected four zero bytes");
    record.checksum.low = in.read<uint64_t>("a record");
    record.checksum.high = in.read<uint64_t>("a record");
    if (in.read<uint64_t>("a record") != 0) in.fail_here("expected eight zero bytes");
  }
  return out;
}

std::vector<std::byte> encode_sources(const std::vector<SourceShard>& shards) {
  uint64_t count = 0;
  for (const SourceShard& shard : shards) count += shard.pieces.size();
  std::vector<std::byte> out = header(kSourcesMagic, count, kSourceEntryBytes);
  std::byte* at = out.data() + kSourcesHeaderBytes;
  for (const SourceShard& shard : shards) {
    for (const SourcePiece& piece : shard.pieces) {
      const RowPiece& rows = piece.rows;
      store(at, static_cast<uint32_t>(piece.from));
      store(at + 8, piece.bytes);
      store(at + 16, piece.offset);
      store(at + 24, piece.tensor);
      if (piece.from == SourcePiece::From::kRows) {
        store(at + 4, static_cast<uint32_t>(rows.field));
        store(at + 28, rows.other);
        store(at + 32, rows.first_row);
        store(at + 40, rows.other_first_row);
        store(at + 48, rows.rows);
        store(at + 56, rows.first_column);
        store(at + 64, rows.columns);
        store(at + 72, rows.tiles.groups);
        store(at + 76, rows.tiles.per_group);
        store(at + 80, rows.tiles.block);
        store(at + 84, (rows.ways == 2 ? uint32_t{kAlternate} : 0) | (rows.transposed ? uint32_t{kTransposed} : 0));
      }
      at += kSourceEntryBytes;
    }
  }
  return out;
}

namespace {

// Whether a field that means nothing in a piece of this kind is not zero.
bool has_unused(const SourcePiece& piece, uint32_t flags) {
  using From = SourcePiece::From;
  const RowPiece& rows = piece.rows;
  if (piece.from != From::kSource && piece.offset != 0) return true;
  if (piece.from == From::kRows) return rows.ways == 1 && (rows.other != 0 || rows.other_first_row != 0);
  if (piece.from != From::kTensor && piece.tensor != 0) return true;
  return rows.field != RowField::kValues || rows.other != 0 || rows.first_row != 0 || rows.other_first_row != 0 || rows.rows != 0 ||
         rows.first_column != 0 || rows.columns != 0 || !(rows.tiles == ColumnTiles{}) || flags != 0;
}

SourcePiece read_piece(ByteReader& in) {
  const char* const what = "a piece";
  SourcePiece piece;
  const auto kind = in.read<uint32_t>(what);
  if (kind > static_cast<uint32_t>(SourcePiece::From::kRows)) in.fail_here(fmt::format("unknown kind of piece {}", kind));
  piece.from = static_cast<SourcePiece::From>(kind);
  const auto field = in.read<uint32_t>(what);
  if (field >= kRowFields) in.fail_here(fmt::format("unknown field {}", field));
  RowPiece& rows = piece.rows;
  rows.field = static_cast<RowField>(field);
  piece.bytes = in.read<uint64_t>(what);
  piece.offset = in.read<uint64_t>(what);
  piece.tensor = in.read<uint32_t>(what);
  rows.other = in.read<uint32_t>(what);
  rows.first_row = in.read<uint64_t>(what);
  rows.other_first_row = in.read<uint64_t>(what);
  rows.rows = in.read<uint64_t>(what);
  rows.first_column = in.read<uint64_t>(what);
  rows.columns = in.read<uint64_t>(what);
  rows.tiles.groups = in.read<uint32_t>(what);
  rows.tiles.per_group = in.read<uint32_t>(what);
  rows.tiles.block = in.read<uint32_t>(what);
  const auto flags = in.read<uint32_t>(what);
  if (flags > (kAlternate | kTransposed)) in.fail_here(fmt::format("unknown flags {}", flags));
  rows.ways = (flags & kAlternate) != 0 ? 2 : 1;
  rows.transposed = (flags & kTransposed) != 0;
  if (in.read<uint64_t>(what) != 0) in.fail_here("expected eight zero bytes");
  if (has_unused(piece, flags)) in.fail_here("a piece with a field that its kind does not have");
  return piece;
}

}  // namespace

void parse_sources(Bytes bytes, const std::vector<uint64_t>& counts, PackManifest& manifest, const std::string& source) {
  ByteReader in(bytes, source);
  uint64_t left = read_header(in, kSourcesMagic, kSourceEntryBytes, source);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > left) fail(ErrorKind::kCorrupt, "{}: holds fewer pieces than {} speaks of", source, kPackManifestName);
    left -= counts[i];
    std::vector<SourcePiece>& pieces = manifest.sources[i].pieces;
    pieces.reserve(counts[i]);
    for (uint64_t k = 0; k < counts[i]; ++k) pieces.push_back(read_piece(in));
  }
  if (left > 0) fail(ErrorKind::kCorrupt, "{}: holds {} pieces that belong to no file", source, left);
}

}  // namespace tierpack
