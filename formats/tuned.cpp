#include "formats/tuned.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/user_directories.h"

namespace tierpack {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "tierpack-tuned";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kTunedBytesMax = uint64_t{1} << 20;
constexpr uint64_t kCoresMax = 65536;
constexpr uint64_t kThreadsMax = 1024;
constexpr uint64_t kChunkMax = 4096;

uint32_t count_in(const Json& object, const char* key, uint64_t high, const std::string& source) {
  const uint64_t value = json_u64(object, key, source);
  if (value < 1 || value > high) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is {}; it must be from 1 to {}", source, key, value, high);
  }
  return static_cast<uint32_t>(value);
}

double rate_in(const Json& object, const char* key, const std::string& source) {
  const Json& value = json_member(object, key, source);
  if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is not a rate", source, key);
  }
  return value.get<double>();
}

TunedEntry parse_entry(const Json& json, const std::string& source) {
  TunedEntry entry;
  if (!from_hex(json_string(json, "routing_id", source), entry.routing_id.bytes)) {
    fail(ErrorKind::kCorrupt, "{}: 'routing_id' is not 64 hex digits", source);
  }
  entry.cpu = json_string(json, "cpu", source);
  entry.cores = count_in(json, "cores", kCoresMax, source);
  entry.threads = count_in(json, "threads", kThreadsMax, source);
  entry.chunk = count_in(json, "chunk", kChunkMax, source);
  entry.isa = json_string(json, "isa", source);
  entry.decode_tokens_s = rate_in(json, "decode_tokens_s", source);
  entry.prefill_tokens_s = rate_in(json, "prefill_tokens_s", source);
  entry.tool_version = json_string(json, "tool_version", source);
  entry.measured_at = json_string(json, "measured_at", source);
  return entry;
}

}  // namespace

const TunedEntry* TunedFile::find(const Sha256Digest& routing_id, std::string_view cpu, uint32_t cores) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const TunedEntry& e) {
    return e.routing_id == routing_id && e.cpu == cpu && e.cores == cores;
  });
  return found == entries.end() ? nullptr : &*found;
}

void TunedFile::set(TunedEntry entry) {
  std::erase_if(entries, [&](const TunedEntry& e) {
    return e.routing_id == entry.routing_id && e.cpu == entry.cpu && e.cores == entry.cores;
  });
  entries.push_back(std::move(entry));
}

std::string encode_tuned(const TunedFile& file) {
  Json entries = Json::array();
  for (const TunedEntry& e : file.entries) {
    TIERPACK_CHECK(std::isfinite(e.decode_tokens_s) && std::isfinite(e.prefill_tokens_s));
    entries.push_back({{"routing_id", e.routing_id.hex()},
                       {"cpu", e.cpu},
                       {"cores", e.cores},
                       {"threads", e.threads},
                       {"chunk", e.chunk},
                       {"isa", e.isa},
                       {"decode_tokens_s", e.decode_tokens_s},
                       {"prefill_tokens_s", e.prefill_tokens_s},
                       {"tool_version", e.tool_version},
                       {"measured_at", e.measured_at}});
  }
  return dump_json({{"format", kFormat}, {"version", kVersion}, {"entries", std::move(entries)}});
}

TunedFile parse_tuned(std::string_view text, const std::string& source) {
  JsonLimits limits;
  limits.max_bytes = kTunedBytesMax;
  limits.max_depth = 8;
  const Json root = parse_json(text, source, limits);
  if (json_string(root, "format", source) != kFormat) {
    fail(ErrorKind::kCorrupt, "{}: these are not tuned settings of tierpack: 'format' is not '{}'", source, kFormat);
  }
  if (const uint64_t version = json_u64(root, "version", source); version != kVersion) {
    fail(ErrorKind::kUnsupported, "{}: tuned settings of version {}; this program reads version {}", source, version, kVersion);
  }
  const Json& entries = json_member(root, "entries", source);
  if (!entries.is_array()) fail(ErrorKind::kCorrupt, "{}: 'entries': expected an array, found {}", source, entries.type_name());
  TunedFile file;
  for (const Json& json : entries) {
    TunedEntry entry = parse_entry(json, fmt::format("{}: entry {}", source, file.entries.size()));
    if (file.find(entry.routing_id, entry.cpu, entry.cores) != nullptr) {
      fail(ErrorKind::kCorrupt, "{}: entry {} is for the same model and machine as an earlier one", source, file.entries.size());
    }
    file.entries.push_back(std::move(entry));
  }
  return file;
}

TunedFile read_tuned(const fs::path& path) { return parse_tuned(read_text_file(path, kTunedBytesMax), path.string()); }

void write_tuned(const fs::path& path, const TunedFile& file) {
  if (path.empty()) {
    fail(ErrorKind::kUsage, "there is no place for tuned settings: neither HOME nor XDG_STATE_HOME is set");
  }
  std::error_code ignored;  // writing says what is wrong
  fs::create_directories(path.parent_path(), ignored);
  write_file_atomically(path, as_bytes(encode_tuned(file)));
}

fs::path default_tuned_path() {
  const fs::path state = user_state_directory();
  return state.empty() ? fs::path() : state / "tuned.json";
}

}  // namespace tierpack
