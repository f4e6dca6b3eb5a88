// pack.json: its encoding, and the reading of its fields. What the fields must say together is
// checked in pack_check.cpp.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "formats/pack.h"
#include "formats/pack_check.h"
#include "formats/pack_index.h"
#include "formats/row_groups.h"

namespace tierpack {

namespace {

constexpr const char* kFormat = "tierpack-pack";
constexpr const char* kGroupRowsKey = "row_group_rows";
// The end of pack.json: the SHA-256 of all text before the 64 hex digits.
constexpr std::string_view kSealBefore = "\"sha256\": \"";
constexpr std::string_view kSealAfter = "\"\n}\n";

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (uint32_t i = 0; i < shape.dims; ++i) out.push_back(shape.ne[i]);
  return out;
}

Json part_json(const ExpertPart& part) {
  Json out{{"tensor", part.tensor}, {"type", dtype_name(part.dtype)}, {"in", part.in},
           {"out", part.out},       {"offset", part.offset},          {"bytes", part.bytes}};
  if (part.scale_rows > 0) {
    out["scales"] = Json{{"rows", part.scale_rows}, {"columns", part.scale_columns}, {"offset", part.scale_offset}};
  }
  return out;
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
  out += fmt::format(" \"nonfinite_scales_allowed\": {},\n", manifest.nonfinite_allowed);
  out += fmt::format(" \"reversible\": {},\n", manifest.reversible());
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
    return Json{{"path", shard.path}, {"bytes", shard.bytes}, {"sha256", shard.sha256.hex()}, {"pieces", shard.pieces.size()}};
  });
  if (manifest.imatrix_id) out += fmt::format(" \"imatrix_sha256\": \"{}\",\n", manifest.imatrix_id->hex());
  append_list(out, "transcoded", manifest.transcoded, [](const Transcoded& item) {
    return Json{{"tensor", item.tensor}, {"from", dtype_name(item.from)}, {"to", dtype_name(item.to)}, {"error", item.error}};
  });
  out += " ";
  out += kSealBefore;
  out += Sha256::of(as_bytes(out)).hex();
  out += kSealAfter;
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
    out.nonfinite_allowed = boolean(json, "nonfinite_scales_allowed", source_);
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
      piece_counts_.push_back(json_u64(item, "pieces", at));
      return shard;
    });
    if (json.contains("imatrix_sha256")) out.imatrix_id = digest(json, "imatrix_sha256", source_);
    read_list(json, "transcoded", out.transcoded, [&](const Json& item, const std::string& at) {
      const Json& error = json_member(item, "error", at);
      if (!error.is_number()) fail(ErrorKind::kCorrupt, "{}: 'error': expected a number, found {}", at, error.type_name());
      return Transcoded{json_string(item, "tensor", at), dtype(item, at, "from"), dtype(item, at, "to"), error.get<double>()};
    });
    if (boolean(json, "reversible", source_) != out.reversible()) {
      fail(ErrorKind::kCorrupt, "{}: 'reversible' contradicts the list of transcoded tensors", source_);
    }
    return out;
  }

  // Of each source file, in order.
  const std::vector<uint64_t>& piece_counts() const { return piece_counts_; }

 private:
  static bool boolean(const Json& json, const char* key, const std::string& at) {
    const Json& value = json_member(json, key, at);
    if (!value.is_boolean()) fail(ErrorKind::kCorrupt, "{}: '{}': expected true or false, found {}", at, key, value.type_name());
    return value.get<bool>();
  }

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

  static DType dtype(const Json& json, const std::string& at, const char* key = "type") {
    const std::string name = json_string(json, key, at);
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
    if (item.contains("scales")) {
      const Json& scales = item["scales"];
      out.scale_rows = u32(scales, "rows", here + ": scales");
      out.scale_columns = u32(scales, "columns", here + ": scales");
      out.scale_offset = json_u64(scales, "offset", here + ": scales");
      if (out.scale_rows == 0 || out.scale_columns == 0) fail(ErrorKind::kCorrupt, "{}: scales: none", here);
    }
    return out;
  }

  std::string source_;
  std::vector<uint64_t> piece_counts_;
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

// An index is the one that pack.json speaks of.
void require_promised(const PackManifest& manifest, const char* name, Bytes content, const std::string& source) {
  for (const PackFile& file : manifest.files) {
    if (file.name != name) continue;
    const Sha256Digest found = Sha256::of(content);
    if (found == file.sha256) continue;
    fail(ErrorKind::kCorrupt, "{}/{}: SHA-256 is {}, {} says {}", source, name, found.hex(), kPackManifestName, file.sha256.hex());
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

}  // namespace

PackManifest parse_pack(std::string_view pack_json, Bytes records_bin, Bytes sources_bin, const std::string& source) {
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
  ManifestReader reader(json_name);
  PackManifest manifest = reader.read(json);
  require_promised(manifest, kPackRecordsName, records_bin, source);
  require_promised(manifest, kPackSourcesName, sources_bin, source);
  manifest.records = parse_records(records_bin, source + "/" + kPackRecordsName);
  parse_sources(sources_bin, reader.piece_counts(), manifest, source + "/" + kPackSourcesName);
  check_manifest(manifest, records_bin.size(), sources_bin.size(), json_name);
  return manifest;
}

}  // namespace tierpack
