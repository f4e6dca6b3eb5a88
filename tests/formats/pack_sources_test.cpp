// What only packs of checkpoints have: scales of experts, and in sources.bin how files are put together again. What of it is refused.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/pack.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_pack.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::Thrown;
using testing_support::thrown_by;
using testing_support::TinyPack;

std::string with_seal(Json json) {
  json.erase("sha256");
  std::string body = json.dump();
  body.pop_back();
  return testing_support::seal_json_body(body);
}

PackManifest parse(const TinyPack& tiny, const std::string& json) {
  return parse_pack(json, tiny.files.at(kPackRecordsName), tiny.files.at(kPackSourcesName), "tiny");
}

TEST(PackFormat, ScalesOfExpertsHaveTheirPlaceAndShape) {
  const TinyPack tiny = TinyPack::of_checkpoint();
  const Json good = parse_json(tiny.pack_json, "tiny");
  const auto refused = [&](const char* part, const char* key, uint64_t value) {
    Json json = good;
    json["experts"][1][part]["scales"][key] = value;
    return thrown_by([&] { parse(tiny, with_seal(json)); }).kind == ErrorKind::kCorrupt;
  };
  EXPECT_FALSE(refused("gate", "rows", 1));
  EXPECT_TRUE(refused("gate", "rows", 2));
  EXPECT_TRUE(refused("gate", "rows", 0));
  EXPECT_TRUE(refused("gate", "columns", 0));
  EXPECT_TRUE(refused("gate", "columns", UINT32_MAX));
  EXPECT_TRUE(refused("gate", "rows", uint64_t{1} << 32));
  EXPECT_TRUE(refused("gate", "offset", 4353));
  EXPECT_TRUE(refused("up", "offset", 4352));
  EXPECT_TRUE(refused("down", "rows", 63));
  EXPECT_TRUE(refused("down", "columns", 2));
  // In the same 256 bytes.
  Json json = good;
  json["experts"][1]["down"]["scales"]["rows"] = 32;
  json["experts"][1]["down"]["scales"]["columns"] = 2;
  const Thrown shape = thrown_by([&] { parse(tiny, with_seal(json)); });
  EXPECT_EQ(shape.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(shape.message, HasSubstr("32 x 2 scales"));
}

// sources.bin with one piece changed, under the SHA-256 that it then has.
Thrown with_piece(const TinyPack& tiny, size_t piece, size_t field, uint64_t value, int bytes) {
  std::vector<std::byte> sources = tiny.files.at(kPackSourcesName);
  std::memcpy(&sources[kSourcesHeaderBytes + piece * kSourceEntryBytes + field], &value, static_cast<size_t>(bytes));
  Json json = parse_json(tiny.pack_json, "tiny");
  json["files"][2]["sha256"] = Sha256::of(sources).hex();
  return thrown_by([&] { parse_pack(with_seal(json), tiny.files.at(kPackRecordsName), sources, "tiny"); });
}

// The first 12 pieces are those of the two GGUF shards, the checkpoint's begin at 12.
TEST(PackFormat, HostilePiecesAreRefused) {
  const TinyPack tiny = TinyPack::of_checkpoint();
  struct Change {
    size_t piece, field;
    uint64_t value;
    int bytes;
    const char* message;
  };
  const uint64_t gate = tiny.manifest.find_tensor("blk.1.ffn_gate_exps.weight").value();
  constexpr size_t kMx = 13, kAlternate = 21, kTransposed = 32, kTable = 35;
  const Change changes[] = {
      {0, 0, 4, 4, "unknown kind"},
      {0, 4, 5, 4, "unknown field"},
      {0, 4, 1, 4, "does not have"},                    // a field in a piece that is no rows
      {0, 8, 0, 8, "piece of 0"},
      {0, 8, 99, 8, "source.bin"},
      {0, 16, 1, 8, "source.bin"},                      // elsewhere in source.bin
      {0, 24, 1, 4, "does not have"},
      {0, 28, 1, 4, "does not have"},
      {0, 32, 1, 8, "does not have"},
      {0, 48, 1, 8, "does not have"},
      {0, 72, 1, 4, "does not have"},
      {0, 84, 1, 4, "does not have"},
      {0, 88, 1, 8, "zero bytes"},
      {2, 8, 0, 8, "piece of 0"},                       // zeros
      {2, 8, UINT64_MAX, 8, "piece of"},
      {2, 8, uint64_t{1} << 60, 8, "overflow"},
      {2, 16, 1, 8, "does not have"},
      {1, 24, 99, 4, "piece of tensor 99"},             // a tensor
      {1, 24, 1, 4, "bytes"},
      {1, 8, 1025, 8, "1025"},
      {1, 16, 1, 8, "does not have"},
      {9, 24, 0, 4, "bytes"},
      {kMx, 24, 99, 4, "piece of tensor 99"},
      {kMx, 16, 1, 8, "does not have"},
      {kMx, 4, 1, 4, "type"},                           // NVFP4's codes in MXFP4
      {kMx, 4, 0, 4, "type"},
      {kMx, 24, 0, 4, "type"},
      {kMx, 28, 1, 4, "does not have"},                 // another tensor where rows do not alternate
      {kMx, 40, 1, 8, "does not have"},
      {kMx, 32, 1, 8, "rows leave"},
      {kMx, 32, UINT64_MAX, 8, "rows leave"},
      {kMx, 48, 21, 8, "another number of bytes"},
      {kMx, 48, 0, 8, "another number of bytes"},
      {kMx, 48, UINT64_MAX, 8, "another number of bytes"},
      {kMx, 56, 16, 8, "inside a block"},
      {kMx, 56, 160, 8, "leave"},
      {kMx, 64, 0, 8, "inside a block"},
      {kMx, 64, 96, 8, "another number of bytes"},
      {kMx, 64, UINT64_MAX - 31, 8, "leave"},
      {kMx, 72, 1, 4, "inside a block"},
      {kMx, 80, 32, 4, "without groups"},
      {kMx, 84, 2, 4, "transposed"},                    // codes cannot be
      {kMx, 84, 4, 4, "unknown flags"},
      {kMx + 1, 76, 1, 4, "make up"},
      {kMx + 1, 80, 16, 4, "inside a block"},
      {kAlternate, 28, 99, 4, "piece of tensor 99"},
      {kAlternate, 28, 0, 4, "unlike"},
      {kAlternate, 40, 1, 8, "rows leave"},
      {kAlternate, 48, 11, 8, "bytes"},
      {kAlternate, 84, 0, 4, "does not have"},
      {kAlternate, 84, 3, 4, "transposed"},
      {kTransposed, 56, 21, 8, "leave"},
      {kTransposed, 32, 129, 8, "rows leave"},
      {kTransposed, 72, 1, 4, "cut inside"},
      {kTable, 32, 101, 8, "rows leave"},
      {kTable, 24, gate, 4, "type"},
  };
  EXPECT_EQ(with_piece(tiny, 0, 8, 100, 8).kind, std::nullopt);
  for (const Change& c : changes) {
    const Thrown thrown = with_piece(tiny, c.piece, c.field, c.value, c.bytes);
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << c.piece << " " << c.field << " " << c.value;
    EXPECT_THAT(thrown.message, HasSubstr(c.message)) << c.piece << " " << c.field << " " << c.value;
  }
}

// Every tensor is whole in the pieces, or computed and in none.
TEST(PackFormat, TensorsAreUsedOnceAndWhole) {
  const auto thrown_with = [](auto change) {
    TinyPack tiny = TinyPack::of_checkpoint();
    change(tiny);
    tiny.seal();
    return thrown_by([&] { parse(tiny, tiny.pack_json); });
  };
  const auto drop = [](TinyPack& tiny, size_t shard, size_t piece) {
    SourceShard& out = tiny.manifest.sources[shard];
    out.bytes -= out.pieces[piece].bytes;
    out.pieces.erase(out.pieces.begin() + static_cast<ptrdiff_t>(piece));
  };
  EXPECT_EQ(thrown_with([](TinyPack&) {}).kind, std::nullopt);
  // A part of a tensor is missing; all of one that is not F32.
  EXPECT_THAT(thrown_with([&](TinyPack& t) { drop(t, 2, 1); }).message, HasSubstr("'blk.1.mx'"));
  EXPECT_THAT(thrown_with([&](TinyPack& t) { drop(t, 0, 3); }).message, HasSubstr("'blk.0.ffn_gate_exps.weight'"));
  // Rows that are filled up are longer than the source's.
  const Thrown filled = thrown_with([&](TinyPack& t) {
    drop(t, 2, 26);
    SourcePiece& piece = t.manifest.sources[2].pieces[26];
    t.manifest.sources[2].bytes += 17 * 72 - piece.bytes;
    piece = {SourcePiece::From::kTensor, 17 * 72, 0, piece.tensor, {}};
  });
  EXPECT_EQ(filled.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(filled.message, HasSubstr("filled up"));
  // All of one that is F32: it may be computed.
  EXPECT_EQ(thrown_with([&](TinyPack& t) { drop(t, 0, 1); }).kind, std::nullopt);
  const auto twice = [](TinyPack& tiny, size_t shard, size_t piece) {
    SourceShard& out = tiny.manifest.sources[shard];
    out.bytes += out.pieces[piece].bytes;
    out.pieces.push_back(out.pieces[piece]);
  };
  EXPECT_THAT(thrown_with([&](TinyPack& t) { twice(t, 0, 1); }).message, HasSubstr("used twice"));
  EXPECT_THAT(thrown_with([&](TinyPack& t) { twice(t, 2, 1); }).message, HasSubstr("used twice"));
  EXPECT_THAT(thrown_with([&](TinyPack& t) { twice(t, 2, 9); }).message, HasSubstr("used twice"));
  // A merged stack has no rows that pieces could speak of.
  const Thrown merged = thrown_with([](TinyPack& t) {
    ExpertLayer& layer = t.manifest.expert_layers[1];
    layer.up.tensor = layer.gate.tensor;
  });
  EXPECT_EQ(merged.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(merged.message, HasSubstr("merged"));
}

TEST(PackFormat, HostileSourcesIndexesAreRefused) {
  const TinyPack tiny;
  const std::vector<std::byte>& good = tiny.files.at(kPackSourcesName);
  const auto refused = [&](const std::vector<std::byte>& sources) {
    Json json = parse_json(tiny.pack_json, "tiny");
    json["files"][2]["bytes"] = sources.size();
    json["files"][2]["sha256"] = Sha256::of(sources).hex();
    return thrown_by([&] { parse_pack(with_seal(json), tiny.files.at(kPackRecordsName), sources, "tiny"); }).kind == ErrorKind::kCorrupt;
  };
  const auto with_u64 = [&](size_t offset, uint64_t value) {
    std::vector<std::byte> out = good;
    store(&out[offset], value);
    return out;
  };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(std::vector<std::byte>(good.begin(), good.end() - 1)));
  EXPECT_TRUE(refused(std::vector<std::byte>(good.begin(), good.begin() + 24)));
  EXPECT_TRUE(refused(with_u64(0, 0)));                      // magic
  EXPECT_TRUE(refused(with_u64(8, kPackVersion | 1ull << 32)));  // zeros
  EXPECT_TRUE(refused(with_u64(16, UINT64_MAX)));            // count
  EXPECT_TRUE(refused(with_u64(16, good.size() / 96 + 1)));  // count
  std::vector<std::byte> longer = good;  // one piece that belongs to no file
  longer.insert(longer.end(), good.end() - 96, good.end());
  store(&longer[16], uint64_t{good.size() / 96 + 1});
  EXPECT_TRUE(refused(longer));
}

}  // namespace
}  // namespace tierpack
