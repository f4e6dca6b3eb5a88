// pack.json and records.bin: their encoding, and the reading of their fields. What the fields must say together is
// checked in pack_check.cpp.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "formats/pack.h"
#include "formats/pack_check.h"
#include "formats/row_groups.h"

namespace tierpack {

namespace {

constexpr const char* kFormat = "tierpack-pack";
constexpr const char* kGroupRowsKey = "row_group_rows";
constexpr std::string_view kRecordsMagic = "TPRECORD";
// The end of pack.json: the SHA-256 of all text before the 64 hex digits.
constexpr std::string_view kSealBefore = "\"sha256\": \"";
constexpr std::string_view kSealAfter = "\"\n}\n";

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (uint32_t i = 0; i < shape.dims; ++i) out.push_back(shape.ne[i]);
  return out;
}

Json part_json(const ExpertPart& part) {
  return {{"tensor", part.tensor}, {"type", dtype_name(part.dtype)}, {"in", part.in},
          {"out", part.out},       {"offset", part.offset},          {"bytes", part.bytes}};
}

Json piece_json(const SourcePiece& piece) {
  switch (piece.from) {
    case SourcePiece::From::kSource: return {"source", piece.bytes, piece.offset};
    case SourcePiece::From::kZeros: return {"zeros", piece.bytes};
    case SourcePiece::From::kTensor: return {"tensor", piece.bytes, piece.tensor};
  }
  TIERPACK_CHECK(false);
  return {};
}

// "key": value of an object, on one line; names that are not UTF-8 cannot be written and are refused.
std::string line(const Json& value) {
  try {
    return value.dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::kUnsupported, "a pack cannot hold a name that is not valid UTF-8");
  }
}

template <typename Item, typename ToJson>
void append_list(std::string& out, const char* key, const std::vector<Item>& items, ToJson&& to_json) {
  out += fmt::format(" \"{}\": [", key);
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "\n  " : ",\n  ") + line(to_json(items[i]));
  out += items.empty() ? "],\n" : "\n ],\n";
}

}  // namespace

std::string encode_pack_json(const PackManifest& manifest, const ModelConfig& config) {
  std::string out = "{\n";
  out += fmt::format(" \"format\": \"{}\",\n \"version\": {},\n \"{}\": {},\n", kFormat, kPackVersion, kGroupRowsKey, kGroupRows);
  out += " \"tool\": " + line(Json{{"name", "tierpack"}, {"version", manifest.tool_version}}) + ",\n";
  out += " \"model\": " + line(Json{{"architecture", config.architecture_text},
                                    {"name", config.name},
                                    {"layers", config.layers},
                                    {"mtp_layers", config.mtp_layers},
                                    {"hidden", config.hidden},
                                    {"vocab", config.vocab},
                                    {"context", config.context},
                                    {"experts", config.experts},
                                    {"experts_used", config.experts_used},
                                    {"expert_ff", config.expert_ff},
                                    {"routing_id", manifest.routing_id.hex()}}) + ",\n";
  out += " \"profile_id\": " + line(manifest.profile_id ? Json(manifest.profile_id->hex()) : Json(nullptr)) + ",\n";
  append_list(out, "files", manifest.files, [](const PackFile& file) {
    return Json{{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256.hex()}};
  });
  append_list(out, "dense", manifest.dense, [](const DenseTensor& tensor) {
    return Json{{"name", tensor.name}, {"type", dtype_name(tensor.dtype)}, {"shape", shape_json(tensor.shape)},
                {"record", tensor.record}};
  });
  append_list(out, "experts", manifest.expert_layers, [](const ExpertLayer& layer) {
    return Json{{"layer", layer.layer},
                {"experts", layer.experts},
                {"first_record", layer.first_record},
                {"record_bytes", layer.record_bytes},
                {"gate", part_json(layer.gate)},
                {"up", part_json(layer.up)},
                {"down", part_json(layer.down)}};
  });
  append_list(out, "rows", manifest.rows, [](const RowTable& table) {
    return Json{{"name", table.name},
                {"type", dtype_name(table.dtype)},
                {"shape", shape_json(table.shape)},
                {"row_bytes", table.row_bytes},
                {"rows_per_page", table.rows_per_page},
                {"pages_per_row", table.pages_per_row},
                {"first_page", table.first_page},
                {"pages", table.pages}};
  });
  append_list(out, "sources", manifest.sources, [](const SourceShard& shard) {
    Json pieces = Json::array();
    for (const SourcePiece& piece : shard.pieces) pieces.push_back(piece_json(piece));
    return Json{{"path", shard.path}, {"bytes", shard.bytes}, {"sha256", shard.sha256.hex()}, {"pieces", pieces}};
  });
  out += " ";
  out += kSealBefore;
  out += Sha256::of(as_bytes(out)).hex();
  out += kSealAfter;
  return out;
}

std::vector<std::byte> encode_records(const std::vector<Record>& records) {
  std::vector<std::byte> out(kRecordsHeaderBytes + records.size() * kRecordEntryBytes);
  std::copy_n(as_bytes(kRecordsMagic).begin(), kRecordsMagic.size(), out.begin());
  store(&out[8], kPackVersion);
  store(&out[16], static_cast<uint64_t>(records.size()));
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

namespace {

// Reads the fields of pack.json; every complaint names the file and the place in it.
class ManifestReader {
 public:
  explicit ManifestReader(std::string source) : source_(std::move(source)) {}

  PackManifest read(const Json& json) {
    PackManifest out;
    out.tool_version = json_string(json_member(json, "tool", source_), "version", source_ + ": tool");
    out.routing_id = digest(json_member(json, "model", source_), "routing_id", source_ + ": model");
    const Json& profile = json_member(json, "profile_id", source_);
    if (!profile.is_null()) out.profile_id = digest(json, "profile_id", source_);
    read_list(json, "files", out.files, [&](const Json& item, const std::string& at) {
      return PackFile{json_string(item, "name", at), json_u64(item, "bytes", at), digest(item, "sha256", at)};
    });
    read_list(json, "dense", out.dense, [&](const Json& item, const std::string& at) {
      return DenseTensor{json_string(item, "name", at), dtype(item, at), shape(item, at), u32(item, "record", at)};
    });
    read_list(json, "experts", out.expert_layers, [&](const Json& item, const std::string& at) {
      ExpertLayer layer;
      layer.layer = u32(item, "layer", at);
      layer.experts = u32(item, "experts", at);
      layer.first_record = u32(item, "first_record", at);
      layer.record_bytes = json_u64(item, "record_bytes", at);
      layer.gate = part(item, "gate", at);
      layer.up = part(item, "up", at);
      layer.down = part(item, "down", at);
      return layer;
    });
    read_list(json, "rows", out.rows, [&](const Json& item, const std::string& at) {
      RowTable table;
      table.name = json_string(item, "name", at);
      table.dtype = dtype(item, at);
      table.shape = shape(item, at);
      table.row_bytes = json_u64(item, "row_bytes", at);
      table.rows_per_page = json_u64(item, "rows_per_page", at);
      table.pages_per_row = json_u64(item, "pages_per_row", at);
      table.first_page = json_u64(item, "first_page", at);
      table.pages = json_u64(item, "pages", at);
      return table;
    });
    read_list(json, "sources", out.sources, [&](const Json& item, const std::string& at) {
      SourceShard shard;
      shard.path = json_string(item, "path", at);
      shard.bytes = json_u64(item, "bytes", at);
      shard.sha256 = digest(item, "sha256", at);
      for (const Json& piece_item : array(item, "pieces", at)) {
        shard.pieces.push_back(piece(piece_item, fmt::format("{}: piece {}", at, shard.pieces.size())));
      }
      return shard;
    });
    return out;
  }

 private:
  template <typename Item, typename Read>
  void read_list(const Json& json, const char* key, std::vector<Item>& out, Read&& read_item) {
    for (const Json& item : array(json, key, source_)) {
      out.push_back(read_item(item, fmt::format("{}: {} {}", source_, key, out.size())));
    }
  }

  static const Json& array(const Json& json, const char* key, const std::string& at) {
    const Json& value = json_member(json, key, at);
    if (!value.is_array()) fail(ErrorKind::kCorrupt, "{}: '{}': expected an array, found {}", at, key, value.type_name());
    return value;
  }

  static uint32_t u32(const Json& json, const char* key, const std::string& at) {
    const uint64_t value = json_u64(json, key, at);
    if (value > UINT32_MAX) fail(ErrorKind::kCorrupt, "{}: '{}': {} does not fit 32 bits", at, key, value);
    return static_cast<uint32_t>(value);
  }

  static Sha256Digest digest(const Json& json, const char* key, const std::string& at) {
    const std::string hex = json_string(json, key, at);
    Sha256Digest out;
    if (!from_hex(hex, out.bytes)) {
      fail(ErrorKind::kCorrupt, "{}: '{}': expected 64 hex digits, found '{}'", at, key, hex);
    }
    return out;
  }

  static DType dtype(const Json& json, const std::string& at) {
    const std::string name = json_string(json, "type", at);
    const std::optional<DType> type = dtype_from_name(name);
    if (!type) fail(ErrorKind::kCorrupt, "{}: unknown tensor type '{}'", at, name);
    return *type;
  }

  static Shape shape(const Json& json, const std::string& at) {
    const Json& dims = array(json, "shape", at);
    Shape out;
    if (dims.size() > out.ne.size()) fail(ErrorKind::kCorrupt, "{}: {} dimensions, at most 4 exist", at, dims.size());
    out.dims = static_cast<uint32_t>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!dims[i].is_number_unsigned()) {
        fail(ErrorKind::kCorrupt, "{}: shape: expected non-negative integers, found {}", at, dims[i].dump());
      }
      out.ne[i] = dims[i].get<uint64_t>();
    }
    return out;
  }

  static ExpertPart part(const Json& json, const char* key, const std::string& at) {
    const Json& item = json_member(json, key, at);
    const std::string here = at + ": " + key;
    ExpertPart out;
    out.tensor = json_string(item, "tensor", here);
    out.dtype = dtype(item, here);
    out.in = json_u64(item, "in", here);
    out.out = json_u64(item, "out", here);
    out.offset = json_u64(item, "offset", here);
    out.bytes = json_u64(item, "bytes", here);
    return out;
  }

  static SourcePiece piece(const Json& json, const std::string& at) {
    const bool shaped = json.is_array() && json.size() >= 2 && json[0].is_string() && json[1].is_number_unsigned();
    const std::string kind = shaped ? json[0].get<std::string>() : "";
    SourcePiece out;
    out.bytes = shaped ? json[1].get<uint64_t>() : 0;
    if (kind == "zeros" && json.size() == 2) return out;
    if (kind == "source" && json.size() == 3 && json[2].is_number_unsigned()) {
      out.from = SourcePiece::From::kSource;
      out.offset = json[2].get<uint64_t>();
      return out;
    }
    if (kind == "tensor" && json.size() == 3 && json[2].is_string()) {
      out.from = SourcePiece::From::kTensor;
      out.tensor = json[2].get<std::string>();
      return out;
    }
    fail(ErrorKind::kCorrupt, "{}: expected [\"source\", bytes, offset], [\"zeros\", bytes] or [\"tensor\", bytes, name]",
         at);
  }

  std::string source_;
};

// The text ends in its own SHA-256, so that no byte of it can change unnoticed.
void require_sealed(std::string_view text, const std::string& source) {
  constexpr size_t kHexDigits = 64;
  const size_t tail = kHexDigits + kSealAfter.size();
  if (text.size() < tail + kSealBefore.size() || !text.ends_with(kSealAfter) ||
      !text.substr(0, text.size() - tail).ends_with(kSealBefore)) {
    fail(ErrorKind::kCorrupt, "{}: does not end with its own SHA-256; the file is cut short or was edited", source);
  }
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view promised = text.substr(body.size(), kHexDigits);
  const std::string found = Sha256::of(as_bytes(body)).hex();
  if (found != promised) {
    fail(ErrorKind::kCorrupt, "{}: its text has SHA-256 {}, but says {}; the file is damaged or was edited", source, found,
         promised);
  }
}

// The record index is the one that pack.json speaks of.
void require_promised(const PackManifest& manifest, Bytes records_bin, const std::string& source) {
  for (const PackFile& file : manifest.files) {
    if (file.name != kPackRecordsName) continue;
    const Sha256Digest found = Sha256::of(records_bin);
    if (found != file.sha256) {
      fail(ErrorKind::kCorrupt, "{}: SHA-256 is {}, {} says {}", source, found.hex(), kPackManifestName, file.sha256.hex());
    }
  }
}

// Packs of earlier versions hold quantised matrices row by row and do not say so; to read them as groups would give noise.
void require_row_groups(const Json& json, const std::string& source) {
  if (!json.contains(kGroupRowsKey)) {
    fail(ErrorKind::kUnsupported, "{}: holds its quantised matrices row by row, as earlier versions wrote them; this program reads "
         "groups of {} rows: repack the source again with it", source, kGroupRows);
  }
  const uint64_t rows = json_u64(json, kGroupRowsKey, source);
  if (rows != kGroupRows) {
    fail(ErrorKind::kUnsupported, "{}: holds quantised matrices in groups of {} rows; this program reads groups of {}: repack the "
         "source again with it", source, rows, kGroupRows);
  }
}

std::vector<Record> parse_records(Bytes bytes, const std::string& source) {
  ByteReader in(bytes, source);
  if (as_text(in.take(kRecordsMagic.size(), "the magic")) != kRecordsMagic) {
    fail(ErrorKind::kCorrupt, "{}: does not begin with {}", source, kRecordsMagic);
  }
  const auto version = in.read<uint32_t>("the version");
  if (version != kPackVersion) {
    fail(ErrorKind::kUnsupported, "{}: record index version {}; this program reads version {}", source, version,
         kPackVersion);
  }
  if (in.read<uint32_t>("zeros") != 0) in.fail_here("expected four zero bytes");
  const auto count = in.read<uint64_t>("the record count");
  if (count > UINT32_MAX || in.remaining() != count * kRecordEntryBytes) {
    fail(ErrorKind::kCorrupt, "{}: promises {} records, but {} bytes follow", source, count, in.remaining());
  }
  std::vector<Record> out(count);
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

}  // namespace

PackManifest parse_pack(std::string_view pack_json, Bytes records_bin, const std::string& source) {
  const std::string json_name = source + "/" + kPackManifestName;
  const Json json = parse_json(pack_json, json_name);
  const std::string format = json_string(json, "format", json_name);
  if (format != kFormat) fail(ErrorKind::kCorrupt, "{}: is a '{}', not a '{}'", json_name, format, kFormat);
  const uint64_t version = json_u64(json, "version", json_name);
  if (version != kPackVersion) {
    fail(ErrorKind::kUnsupported, "{}: pack version {}; this program reads version {}: repack the source again with it",
         json_name, version, kPackVersion);
  }
  require_sealed(pack_json, json_name);
  require_row_groups(json, json_name);
  PackManifest manifest = ManifestReader(json_name).read(json);
  const std::string records_name = source + "/" + kPackRecordsName;
  require_promised(manifest, records_bin, records_name);
  manifest.records = parse_records(records_bin, records_name);
  check_manifest(manifest, records_bin.size(), json_name);
  return manifest;
}

}  // namespace tierpack
