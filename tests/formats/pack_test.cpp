#include "formats/pack.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "formats/row_groups.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"
#include "tests/support/tiny_pack.h"

namespace tierpack {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing_support::read_file;
using testing_support::seal_json_body;
using testing_support::TempDirectory;
using testing_support::Thrown;
using testing_support::thrown_by;
using testing_support::TinyPack;
using testing_support::write_file;

std::string with_seal(Json json) {
  json.erase("sha256");
  std::string body = json.dump();
  body.pop_back();
  return seal_json_body(body);
}

PackManifest parse(const TinyPack& tiny, const std::string& json) {
  return parse_pack(json, tiny.files.at(kPackRecordsName), tiny.files.at(kPackSourcesName), "tiny");
}

TEST(PackFormat, EncodesWhatItParses) {
  for (const bool profile : {false, true}) {
    const TinyPack tiny(profile);
    const PackManifest parsed = parse(tiny, tiny.pack_json);
    EXPECT_EQ(encode_pack_json(parsed, tiny.config), tiny.pack_json);
    EXPECT_EQ(encode_records(parsed.records), tiny.files.at(kPackRecordsName));
    EXPECT_EQ(encode_sources(parsed.sources), tiny.files.at(kPackSourcesName));
    EXPECT_EQ(parsed.tool_version, "test");
    EXPECT_EQ(parsed.routing_id, tiny.manifest.routing_id);
    EXPECT_EQ(parsed.profile_id.has_value(), profile);
    ASSERT_EQ(parsed.sources.size(), 2u);
    EXPECT_EQ(parsed.sources[0].pieces.size(), 8u);
    EXPECT_EQ(parsed.rows[1].pages_per_row, 3u);
    EXPECT_EQ(parsed.expert_layers[0].down.offset, 3328u);
    EXPECT_FALSE(parsed.nonfinite_allowed);
    EXPECT_TRUE(parsed.reversible());
  }
}

TEST(PackFormat, EncodesWhatItParsesOfACheckpoint) {
  TinyPack tiny = TinyPack::of_checkpoint();
  tiny.manifest.nonfinite_allowed = true;
  tiny.seal();
  const PackManifest parsed = parse(tiny, tiny.pack_json);
  EXPECT_EQ(encode_pack_json(parsed, tiny.config), tiny.pack_json);
  EXPECT_EQ(encode_sources(parsed.sources), tiny.files.at(kPackSourcesName));
  EXPECT_TRUE(parsed.nonfinite_allowed);
  ASSERT_EQ(parsed.sources.size(), 3u);
  const std::vector<SourcePiece>& pieces = parsed.sources[2].pieces;
  ASSERT_EQ(pieces.size(), 29u);
  EXPECT_EQ(pieces[2].rows.tiles, (ColumnTiles{2, 2, 32}));
  EXPECT_EQ(pieces[2].rows.first_column, 64u);
  EXPECT_EQ(parsed.tensor_name(pieces[9].tensor), "blk.1.bf");
  EXPECT_EQ(pieces[9].rows.ways, 2u);
  EXPECT_EQ(parsed.tensor_name(pieces[9].rows.other), "blk.1.bg");
  const ExpertLayer& layer = parsed.expert_layers.at(1);
  EXPECT_EQ(layer.down.scale_rows, 64u);
  EXPECT_EQ(layer.down.scale_bytes(), 256u);
  EXPECT_EQ(layer.gate.scale_offset, 4352u);
}

// Dense tensors, tables, then gate, up and down of each layer.
TEST(PackFormat, TensorsAreNumbered) {
  const TinyPack tiny = TinyPack::of_checkpoint();
  const PackManifest& manifest = tiny.manifest;
  ASSERT_EQ(manifest.tensor_count(), 8u + 3u + 6u);
  EXPECT_EQ(manifest.tensor_name(0), "token_embd.weight");
  EXPECT_EQ(manifest.tensor_name(6), "blk.1.bg");
  EXPECT_EQ(manifest.tensor_name(8), "table_a");
  EXPECT_EQ(manifest.tensor_name(11), "blk.0.ffn_gate_exps.weight");
  EXPECT_EQ(manifest.tensor_name(16), "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(manifest.tensor_dtype(16), DType::kF8_E4M3);
  EXPECT_EQ(manifest.tensor_dtype(8), DType::kQ4_0);
  for (uint32_t i = 0; i < manifest.tensor_count(); ++i) EXPECT_EQ(manifest.find_tensor(manifest.tensor_name(i)), i);
  EXPECT_EQ(manifest.find_tensor("nothing"), std::nullopt);
  // Of a merged stack gate's number stands for both.
  PackManifest merged = manifest;
  merged.expert_layers[0].up.tensor = merged.expert_layers[0].gate.tensor;
  EXPECT_EQ(merged.find_tensor(merged.expert_layers[0].gate.tensor), 11u);
}

TEST(PackFormat, TranscodedTensorsAreListed) {
  TinyPack tiny;
  tiny.manifest.transcoded.push_back({"token_embd.weight", DType::kF8_E4M3, DType::kF32, 0.0625});
  tiny.seal();
  EXPECT_THAT(thrown_by([&] { parse(tiny, tiny.pack_json); }).message, HasSubstr("no pieces"));
  for (SourceShard& shard : tiny.manifest.sources) shard.pieces.clear();
  tiny.files[kPackSourceName].clear();
  tiny.seal();
  const PackManifest parsed = parse(tiny, tiny.pack_json);
  EXPECT_FALSE(parsed.reversible());
  ASSERT_EQ(parsed.transcoded.size(), 1u);
  EXPECT_EQ(parsed.transcoded[0].tensor, "token_embd.weight");
  EXPECT_EQ(parsed.transcoded[0].from, DType::kF8_E4M3);
  EXPECT_EQ(parsed.transcoded[0].to, DType::kF32);
  EXPECT_EQ(parsed.transcoded[0].error, 0.0625);
  EXPECT_EQ(encode_pack_json(parsed, tiny.config), tiny.pack_json);
}

// What a later writer may add.
TEST(PackFormat, UnknownMembersAreIgnored) {
  const TinyPack tiny;
  Json json = parse_json(tiny.pack_json, "tiny");
  json["novelty"] = {1, 2, 3};
  json["dense"][0]["novelty"] = "x";
  json["experts"][0]["gate"]["novelty"] = nullptr;
  parse(tiny, with_seal(json));
}

TEST(PackFormat, EveryByteOfPackJsonIsBound) {
  const TinyPack tiny;
  for (const unsigned char flip : {0x01, 0x20}) {
    for (size_t i = 0; i < tiny.pack_json.size(); ++i) {
      std::string text = tiny.pack_json;
      text[i] = static_cast<char>(text[i] ^ flip);
      const Thrown thrown = thrown_by([&] { parse(tiny, text); });
      ASSERT_TRUE(thrown.kind == ErrorKind::kCorrupt || thrown.kind == ErrorKind::kUnsupported) << i << ": " << thrown.message;
    }
  }
}

TEST(PackFormat, CutPackJsonIsRefused) {
  const TinyPack tiny;
  for (size_t size = 0; size < tiny.pack_json.size(); size += 7) {
    const Thrown thrown =
        thrown_by([&] { parse(tiny, tiny.pack_json.substr(0, size)); });
    ASSERT_EQ(thrown.kind, ErrorKind::kCorrupt) << size;
  }
}

TEST(PackFormat, OtherVersionsAreUnsupported) {
  const TinyPack tiny;
  Json json = parse_json(tiny.pack_json, "tiny");
  for (const int version : {0, 2}) {
    json["version"] = version;
    EXPECT_EQ(thrown_by([&] { parse(tiny, with_seal(json)); }).kind,
              ErrorKind::kUnsupported);
  }
  for (const size_t index : {1, 2}) {
    std::vector<std::byte> files[] = {tiny.files.at(kPackRecordsName), tiny.files.at(kPackSourcesName)};
    files[index - 1][8] = std::byte{2};
    json = parse_json(tiny.pack_json, "tiny");
    json["files"][index]["sha256"] = Sha256::of(files[index - 1]).hex();
    EXPECT_EQ(thrown_by([&] { parse_pack(with_seal(json), files[0], files[1], "tiny"); }).kind, ErrorKind::kUnsupported);
  }
}

TEST(PackFormat, PacksWithoutRowGroupsAreUnsupportedAndSaySo) {
  const TinyPack tiny;
  const auto refused = [&](const std::function<void(Json&)>& change) {
    Json json = parse_json(tiny.pack_json, "tiny");
    change(json);
    return thrown_by([&] { parse(tiny, with_seal(json)); });
  };
  const Thrown missing = refused([](Json& j) { j.erase("row_group_rows"); });
  EXPECT_EQ(missing.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(missing.message, HasSubstr("row by row"));
  EXPECT_THAT(missing.message, HasSubstr("repack the source again"));
  for (const uint64_t rows : {0, 1, 8, 32}) {
    const Thrown other = refused([&](Json& j) { j["row_group_rows"] = rows; });
    EXPECT_EQ(other.kind, ErrorKind::kUnsupported);
    EXPECT_THAT(other.message, HasSubstr(fmt::format("groups of {} rows", rows)));
    EXPECT_THAT(other.message, HasSubstr("repack the source again"));
  }
  EXPECT_EQ(refused([](Json& j) { j["row_group_rows"] = "16"; }).kind, ErrorKind::kCorrupt);
}

struct HostileChange {
  const char* name;
  std::function<void(Json&)> change;
  const char* message;  // what the complaint must mention
};

// Changes to a sealed pack.json that a hostile writer could make; each must be refused.
const std::vector<HostileChange>& hostile_changes() {
  static const std::vector<HostileChange> changes{
      {"format", [](Json& j) { j["format"] = "zip"; }, "zip"},
      {"format missing", [](Json& j) { j.erase("format"); }, "format"},
      {"files missing", [](Json& j) { j.erase("files"); }, "files"},
      {"files not an array", [](Json& j) { j["files"] = 3; }, "files"},
      {"file missing", [](Json& j) { j["files"].erase(4); }, "files"},
      {"file twice", [](Json& j) { j["files"][1] = j["files"][0]; }, "records.bin"},
      {"file outside", [](Json& j) { j["files"][3]["name"] = "../dense.bin"; }, "dense.bin"},
      {"file huge", [](Json& j) { j["files"][0]["bytes"] = UINT64_MAX; }, "impossible size"},
      {"file negative", [](Json& j) { j["files"][0]["bytes"] = -1; }, "non-negative"},
      {"file size fractional", [](Json& j) { j["files"][0]["bytes"] = 1.5; }, "non-negative"},
      {"digest short", [](Json& j) { j["files"][0]["sha256"] = "abcd"; }, "64 hex digits"},
      {"digest not hex", [](Json& j) { j["files"][0]["sha256"] = std::string(64, 'g'); }, "64 hex digits"},
      {"records.bin other size", [](Json& j) { j["files"][1]["bytes"] = 1000; }, "records.bin"},
      {"sources.bin other size", [](Json& j) { j["files"][2]["bytes"] = 1000; }, "sources.bin"},
      {"dense.bin other size", [](Json& j) { j["files"][3]["bytes"] = 4096; }, "dense.bin"},
      {"experts.bin other size", [](Json& j) { j["files"][4]["bytes"] = 4096 * 9; }, "experts.bin"},
      {"rows.bin other size", [](Json& j) { j["files"][5]["bytes"] = 4096; }, "rows.bin"},
      {"source.bin other size", [](Json& j) { j["files"][6]["bytes"] = 152; }, "source.bin"},
      {"profile id without file", [](Json& j) { j["profile_id"] = std::string(64, '0'); }, "files"},
      {"routing id missing", [](Json& j) { j["model"].erase("routing_id"); }, "routing_id"},
      {"tool missing", [](Json& j) { j.erase("tool"); }, "tool"},
      {"dense record out of range", [](Json& j) { j["dense"][0]["record"] = 99; }, "record 99"},
      {"dense record beyond 32 bits", [](Json& j) { j["dense"][0]["record"] = uint64_t{1} << 33; }, "32 bits"},
      {"dense record shared", [](Json& j) { j["dense"][0]["record"] = 1; }, "token_embd.weight"},
      {"dense record of an expert", [](Json& j) { j["dense"][0]["record"] = 2; }, "not in dense.bin"},
      {"dense shape other", [](Json& j) { j["dense"][0]["shape"] = {64, 5}; }, "does not fill"},
      {"dense shape zero", [](Json& j) { j["dense"][0]["shape"] = {64, 0}; }, "does not fill"},
      {"dense shape overflow", [](Json& j) { j["dense"][0]["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40}; }, "does not fill"},
      {"dense shape of 5", [](Json& j) { j["dense"][0]["shape"] = {1, 1, 1, 1, 1}; }, "dimensions"},
      {"dense shape of text", [](Json& j) { j["dense"][0]["shape"] = {"64", 4}; }, "shape"},
      {"dense type unknown", [](Json& j) { j["dense"][0]["type"] = "Q9"; }, "Q9"},
      {"dense type other", [](Json& j) { j["dense"][0]["type"] = "F16"; }, "does not fill"},
      {"dense blocks not whole", [](Json& j) { j["dense"][0]["type"] = "Q4_K"; }, "does not fill"},
      {"dense name twice", [](Json& j) { j["dense"][0]["name"] = j["dense"][1]["name"]; }, "twice"},
      {"dense name empty", [](Json& j) { j["dense"][0]["name"] = ""; }, "name"},
      {"dense name with a newline", [](Json& j) { j["dense"][0]["name"] = "a\nb"; }, "name"},
      {"dense removed", [](Json& j) { j["dense"].erase(0); }, "record 0"},
      {"experts none", [](Json& j) { j["experts"] = Json::array(); }, "record 2"},
      {"experts twice", [](Json& j) { j["experts"].push_back(j["experts"][0]); }, "ascending"},
      {"experts zero", [](Json& j) { j["experts"][0]["experts"] = 0; }, "none"},
      {"experts more", [](Json& j) { j["experts"][0]["experts"] = 4; }, "record 5"},
      {"experts many", [](Json& j) { j["experts"][0]["experts"] = 4000000000u; }, "more than records"},
      {"experts fewer", [](Json& j) { j["experts"][0]["experts"] = 2; }, "record 4"},
      {"experts first record", [](Json& j) { j["experts"][0]["first_record"] = 1; }, "not in experts.bin"},
      {"expert record size", [](Json& j) { j["experts"][0]["record_bytes"] = 7423; }, "7423"},
      {"part moved", [](Json& j) { j["experts"][0]["up"]["offset"] = 2112; }, "2112"},
      {"part larger", [](Json& j) { j["experts"][0]["down"]["bytes"] = 8192; }, "8192"},
      {"part shape", [](Json& j) { j["experts"][0]["gate"]["out"] = 31; }, "record of 7424"},
      {"part shapes apart",
       [](Json& j) {
         j["experts"][0]["down"]["in"] = 64;
         j["experts"][0]["down"]["out"] = 32;
       },
       "do not fit together"},
      {"part huge", [](Json& j) { j["experts"][0]["gate"]["out"] = uint64_t{1} << 62; }, "record of 7424"},
      {"parts of one stack, two types", [](Json& j) { j["experts"][0]["up"]["tensor"] = j["experts"][0]["gate"]["tensor"]; },
       "two types"},
      {"down in gate's stack", [](Json& j) { j["experts"][0]["down"]["tensor"] = j["experts"][0]["gate"]["tensor"]; }, "twice"},
      {"rows removed", [](Json& j) { j["rows"].erase(0); }, "pages"},
      {"rows page shared", [](Json& j) { j["rows"][1]["first_page"] = 0; }, "table_b"},
      {"rows per page", [](Json& j) { j["rows"][0]["rows_per_page"] = 46; }, "table_a"},
      {"rows per page zero", [](Json& j) { j["rows"][0]["rows_per_page"] = 0; }, "table_a"},
      {"row bytes", [](Json& j) { j["rows"][0]["row_bytes"] = 1; }, "table_a"},
      {"pages", [](Json& j) { j["rows"][0]["pages"] = uint64_t{1} << 60; }, "table_a"},
      {"pages per row", [](Json& j) { j["rows"][1]["pages_per_row"] = 2; }, "table_b"},
      {"row count", [](Json& j) { j["rows"][0]["shape"] = {160, uint64_t{1} << 57}; }, "table_a"},
      {"sources none", [](Json& j) { j["sources"] = Json::array(); }, "source"},
      {"shard path with folders", [](Json& j) { j["sources"][0]["path"] = "a/b.gguf"; }, "a/b.gguf"},
      {"shard path upwards", [](Json& j) { j["sources"][0]["path"] = ".."; }, ".."},
      {"shard path absolute", [](Json& j) { j["sources"][0]["path"] = "/etc/passwd"; }, "/etc/passwd"},
      {"shard twice", [](Json& j) { j["sources"][1]["path"] = j["sources"][0]["path"]; }, "twice"},
      {"shard size", [](Json& j) { j["sources"][0]["bytes"] = 5; }, "pieces"},
      {"pieces more", [](Json& j) { j["sources"][0]["pieces"] = 99; }, "sources.bin"},
      {"pieces fewer", [](Json& j) { j["sources"][0]["pieces"] = 7; }, "pieces"},
      {"pieces many", [](Json& j) { j["sources"][0]["pieces"] = UINT64_MAX; }, "sources.bin"},
      {"pieces a list", [](Json& j) { j["sources"][0]["pieces"] = Json::array(); }, "pieces"},
      {"tensor in no shard", [](Json& j) { j["sources"].erase(1); }, "belong to no file"},
      {"nonfinite missing", [](Json& j) { j.erase("nonfinite_scales_allowed"); }, "nonfinite_scales_allowed"},
      {"nonfinite a number", [](Json& j) { j["nonfinite_scales_allowed"] = 1; }, "true or false"},
      {"reversible contradicts", [](Json& j) { j["reversible"] = false; }, "contradicts"},
      {"transcoded and reversible",
       [](Json& j) { j["transcoded"].push_back({{"tensor", "a"}, {"from", "F32"}, {"to", "F16"}, {"error", 0}}); }, "contradicts"},
      {"transcoded to nothing", [](Json& j) { j["transcoded"].push_back({{"tensor", "a"}, {"from", "F32"}, {"to", "F17"}, {"error", 0}}); },
       "F17"},
      {"transcoded error a text",
       [](Json& j) { j["transcoded"].push_back({{"tensor", "a"}, {"from", "F32"}, {"to", "F16"}, {"error", "0"}}); }, "number"},
      {"scales that are not there",
       [](Json& j) { j["experts"][0]["gate"]["scales"] = {{"rows", 1}, {"columns", 1}, {"offset", 7424}}; }, "record of 7424"},
  };
  return changes;
}

TEST(PackFormat, HostileManifestsAreRefused) {
  const TinyPack tiny;
  const Json good = parse_json(tiny.pack_json, "tiny");
  parse(tiny, with_seal(good));
  for (const HostileChange& item : hostile_changes()) {
    Json json = good;
    item.change(json);
    const Thrown thrown = thrown_by([&] { parse(tiny, with_seal(json)); });
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << item.name << ": " << thrown.message;
    EXPECT_THAT(thrown.message, HasSubstr(item.message)) << item.name;
    EXPECT_THAT(thrown.message, AnyOf(HasSubstr("tiny/pack.json"), HasSubstr("tiny/sources.bin"))) << item.name;
  }
}

TEST(PackFormat, RowGroupsHaveABound) {
  const uint64_t blocks = kGroupBytesMax / kGroupRows / 18;
  const TinyPack largest(false, {{"wide", DType::kQ4_0, {blocks * 32, 16}}});
  parse(largest, largest.pack_json);
  const TinyPack larger(false, {{"wide", DType::kQ4_0, {(blocks + 1) * 32, 16}}});
  const Thrown thrown = thrown_by([&] { parse(larger, larger.pack_json); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("row group"));
  // Without a whole group there is none to bound.
  const TinyPack few_rows(false, {{"wide", DType::kQ4_0, {(blocks + 1) * 32, 15}}});
  parse(few_rows, few_rows.pack_json);
}

TEST(PackFormat, HostileRecordsAreRefused) {
  const TinyPack tiny;
  const std::vector<std::byte>& good = tiny.files.at(kPackRecordsName);
  const auto with_u64 = [&](size_t offset, uint64_t value) {
    std::vector<std::byte> out = good;
    store(&out[offset], value);
    return out;
  };
  // With the SHA-256 that the changed index has.
  const auto refused = [&](const std::vector<std::byte>& records) {
    Json json = parse_json(tiny.pack_json, "tiny");
    json["files"][1]["bytes"] = records.size();
    json["files"][1]["sha256"] = Sha256::of(records).hex();
    return thrown_by([&] { parse_pack(with_seal(json), records, tiny.files.at(kPackSourcesName), "tiny"); }).kind == ErrorKind::kCorrupt;
  };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(std::vector<std::byte>(good.begin(), good.end() - 1)));
  EXPECT_TRUE(refused(with_u64(0, 0)));                        // magic
  EXPECT_TRUE(refused(with_u64(16, UINT64_MAX)));              // count
  EXPECT_TRUE(refused(with_u64(16, good.size() / 48 + 1)));    // count
  EXPECT_TRUE(refused(with_u64(24, 4096)));                    // offset: gap and overlap
  EXPECT_TRUE(refused(with_u64(24, 1)));                       // offset: misaligned
  EXPECT_TRUE(refused(with_u64(24, UINT64_MAX - 4095)));       // offset: overflow
  EXPECT_TRUE(refused(with_u64(32, 0)));                       // empty
  EXPECT_TRUE(refused(with_u64(32, UINT64_MAX)));              // size: overflow
  EXPECT_TRUE(refused(with_u64(32, 1023)));                    // size: not the tensor's
  EXPECT_TRUE(refused(with_u64(40, 1)));                       // segment: another one
  EXPECT_TRUE(refused(with_u64(40, 2)));                       // segment: rows have no records
  EXPECT_TRUE(refused(with_u64(40, uint64_t{1} << 32)));       // zeros
  EXPECT_TRUE(refused(with_u64(64, 1)));                       // zeros
}

TEST(PackReader, ReadsEveryRecordAndRow) {
  const TempDirectory dir;
  const TinyPack tiny(true);
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  EXPECT_EQ(pack.config().experts, 3u);
  EXPECT_EQ(pack.metadata().string("general.name"), "tiny");
  EXPECT_EQ(pack.profile()->counts, (std::vector<uint64_t>{20, 10, 30}));
  for (const DenseTensor& dense : pack.manifest().dense) {
    std::vector<std::byte> out(pack.manifest().records[dense.record].bytes);
    pack.read_record(dense.record, out);
    EXPECT_EQ(out, tiny.tensors.at(dense.name));
  }
  const ExpertLayer& layer = *pack.find_expert_layer(0);
  for (uint32_t e = 0; e < 3; ++e) {
    std::vector<std::byte> out(layer.record_bytes);
    pack.read_record(layer.first_record + e, out);
    for (const ExpertPart* part : layer.parts()) {
      std::vector<std::byte> row(part->bytes / part->out);
      for (uint64_t r = 0; r < part->out; ++r) {
        load_grouped_row(part->dtype, out.data() + part->offset, part->out, part->in, r, row.data());
        EXPECT_TRUE(std::equal(row.begin(), row.end(),
                               tiny.tensors.at(part->tensor).begin() + static_cast<ptrdiff_t>(e * part->bytes + r * row.size())));
      }
    }
  }
  for (const char* name : {"table_a", "table_b"}) {
    const RowTable& table = *pack.find_rows(name);
    for (uint64_t row = 0; row < table.shape.rows(); ++row) {
      std::vector<std::byte> out(table.row_bytes);
      pack.read_row(table, row, out);
      EXPECT_TRUE(std::equal(out.begin(), out.end(),
                             tiny.tensors.at(name).begin() + static_cast<ptrdiff_t>(row * table.row_bytes)))
          << name << " row " << row;
    }
  }
}

// Every byte of every file is under some proof of the reader: opening, reading a record, a row or the profile. Only the
// padding of segments and source.bin, which no reader of tensors looks at, are left to verify.
TEST(PackReader, EveryFlippedByteIsNoticed) {
  const TempDirectory dir;
  const TinyPack tiny(true, {}, true);
  const auto path = dir / "tiny.tierpack";
  tiny.write(path);
  const auto read_everything = [&] {
    const Pack pack = Pack::open(path);
    pack.profile();
    std::vector<std::byte> out(65536);
    for (uint32_t i = 0; i < pack.manifest().records.size(); ++i) pack.read_record(i, out);
    for (const RowTable& table : pack.manifest().rows) {
      for (uint64_t row = 0; row < table.shape.rows(); ++row) pack.read_row(table, row, out);
    }
  };
  read_everything();
  const auto in_record = [&](const std::string& name, size_t offset) {
    if (name == "rows.bin") return true;
    for (const Record& record : tiny.manifest.records) {
      if (segment_file_name(record.segment) == name && offset >= record.offset && offset < record.offset + record.bytes) {
        return true;
      }
    }
    return false;
  };
  for (const auto& [name, bytes] : tiny.files) {
    if (name == kPackSourceName) continue;
    const bool segment = name == "dense.bin" || name == "experts.bin" || name == "rows.bin";
    const std::string good = read_file(path / name);
    for (size_t i = 0; i < bytes.size(); i += segment ? 173 : 11) {
      if (segment && !in_record(name, i)) continue;
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      write_file(path / name, bad);
      const Thrown thrown = thrown_by(read_everything);
      ASSERT_TRUE(thrown.kind == ErrorKind::kCorrupt || thrown.kind == ErrorKind::kUnsupported) << name << " byte " << i;
      ASSERT_THAT(thrown.message, HasSubstr(name)) << i;
    }
    write_file(path / name, good);
  }
}

TEST(PackReader, FilesOfOtherSizesAreRefused) {
  const TempDirectory dir;
  const TinyPack tiny;
  const auto path = dir / "tiny.tierpack";
  tiny.write(path);
  for (const auto& [name, bytes] : tiny.files) {
    const std::string good = read_file(path / name);
    write_file(path / name, good.substr(0, good.size() - 1));
    EXPECT_EQ(thrown_by([&] { Pack::open(path); }).kind, ErrorKind::kCorrupt) << name;
    write_file(path / name, good + '\0');
    EXPECT_EQ(thrown_by([&] { Pack::open(path); }).kind, ErrorKind::kCorrupt) << name;
    std::filesystem::remove(path / name);
    // Without sources.bin a pack may be of another version, which is looked at first.
    EXPECT_EQ(thrown_by([&] { Pack::open(path); }).kind, name == kPackSourcesName ? ErrorKind::kCorrupt : ErrorKind::kIo) << name;
    write_file(path / name, good);
  }
  Pack::open(path);
}

TEST(PackReader, ManifestMustFitTheModel) {
  const TinyPack tiny;
  ModelConfig config = tiny.config;
  config.experts = 4;
  EXPECT_EQ(thrown_by([&] { require_manifest_fits(tiny.manifest, config, "tiny"); }).kind, ErrorKind::kCorrupt);
  config = tiny.config;
  config.expert_ff = 64;
  EXPECT_EQ(thrown_by([&] { require_manifest_fits(tiny.manifest, config, "tiny"); }).kind, ErrorKind::kCorrupt);
  config = tiny.config;
  config.layers = 0;
  EXPECT_EQ(thrown_by([&] { require_manifest_fits(tiny.manifest, config, "tiny"); }).kind, ErrorKind::kCorrupt);
  // An unknown architecture is held only to what it says.
  config = tiny.config;
  config.architecture = Architecture::kOther;
  config.layers = config.experts = config.hidden = config.expert_ff = 0;
  require_manifest_fits(tiny.manifest, config, "tiny");
  config.experts = 4;
  EXPECT_EQ(thrown_by([&] { require_manifest_fits(tiny.manifest, config, "tiny"); }).kind, ErrorKind::kCorrupt);
}

TEST(PackReader, WhatIsNoPackIsSaid) {
  const TempDirectory dir;
  const Thrown none = thrown_by([&] { Pack::open(dir / "nothing"); });
  EXPECT_EQ(none.kind, ErrorKind::kUsage);
  const Thrown empty = thrown_by([&] { Pack::open(dir.path()); });
  EXPECT_EQ(empty.kind, ErrorKind::kUsage);
  EXPECT_THAT(empty.message, HasSubstr("tierpack repack"));
}

TEST(PackReader, MissingSegmentIsSaid) {
  const TempDirectory dir;
  TinyPack tiny;
  // The same pack without tables.
  for (const char* name : {"table_a", "table_b"}) tiny.tensors.erase(name);
  for (SourcePiece& piece : tiny.manifest.sources[0].pieces) {
    if (piece.tensor >= tiny.manifest.dense.size()) piece.tensor -= 2;
  }
  tiny.manifest.rows.clear();
  tiny.files.erase("rows.bin");
  tiny.manifest.sources.pop_back();
  tiny.files[kPackSourceName].resize(103);
  tiny.seal();
  tiny.write(dir / "tiny.tierpack");
  const Pack pack = Pack::open(dir / "tiny.tierpack");
  EXPECT_EQ(pack.find_rows("table_a"), nullptr);
  EXPECT_EQ(thrown_by([&] { pack.segment(Segment::kRows); }).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace tierpack
