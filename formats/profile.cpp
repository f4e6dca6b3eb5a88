#include "formats/profile.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace tierpack {
namespace {

constexpr const char* kFormat = "tierpack-profile";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kProfileBytesMax = uint64_t{64} << 20;
constexpr uint64_t kLayersMax = 4096;
constexpr uint64_t kExpertsMax = 65536;
constexpr uint64_t kCellsMax = uint64_t{1} << 21;  // layers * experts

uint32_t count_in(const Json& object, const char* key, uint64_t high, const std::string& source) {
  const uint64_t value = json_u64(object, key, source);
  if (value < 1 || value > high) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is {}; it must be from 1 to {}", source, key, value, high);
  }
  return static_cast<uint32_t>(value);
}

Sha256Digest digest_in(const Json& object, const char* key, const std::string& source) {
  Sha256Digest digest;
  if (!from_hex(json_string(object, key, source), digest.bytes)) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is not 64 hex digits", source, key);
  }
  return digest;
}

const Json& array_in(const Json& object, const char* key, const std::string& source) {
  const Json& value = json_member(object, key, source);
  if (!value.is_array()) {
    fail(ErrorKind::kCorrupt, "{}: '{}': expected an array, found {}", source, key, value.type_name());
  }
  return value;
}

void parse_layer(const Json& layer, size_t index, const std::string& source, Profile& out) {
  const Json& counts = array_in(layer, "counts", source);
  const Json& weights = array_in(layer, "weights", source);
  if (counts.size() != out.experts || weights.size() != out.experts) {
    fail(ErrorKind::kCorrupt, "{}: layer {} has {} counts and {} weights for {} experts", source, index, counts.size(),
         weights.size(), out.experts);
  }
  for (const Json& count : counts) {
    if (!count.is_number_unsigned()) {
      fail(ErrorKind::kCorrupt, "{}: layer {} has a count that is not a non-negative integer", source, index);
    }
    out.counts.push_back(count.get<uint64_t>());
  }
  for (const Json& weight : weights) {
    if (!weight.is_number() || !(weight.get<double>() >= 0) || !std::isfinite(weight.get<double>())) {
      fail(ErrorKind::kCorrupt, "{}: layer {} has a weight that is not a non-negative number", source, index);
    }
    out.weights.push_back(weight.get<double>());
  }
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

template <typename T>
std::string number_list(const std::vector<T>& values, size_t first, size_t count) {
  std::string out = "[";
  for (size_t i = first; i < first + count; ++i) {
    if (i != first) out += ',';
    out += Json(values[i]).dump();
  }
  return out + "]";
}

std::string identity(const Profile& profile) {
  return fmt::format("{} with {} layers of {} experts, {} a token, routers {}", profile.architecture, profile.layers,
                     profile.experts, profile.used, profile.routing_id.hex().substr(0, 16));
}

}  // namespace

uint64_t Profile::tokens() const {
  uint64_t sum = 0;
  for (const ProfileCorpus& corpus : corpora) sum += corpus.tokens;
  return sum;
}

Sha256Digest Profile::id() const { return Sha256::of(as_bytes(encode_profile(*this))); }

Profile parse_profile(std::string_view text, const std::string& source) {
  JsonLimits limits;
  limits.max_bytes = kProfileBytesMax;
  limits.max_depth = 8;
  const Json root = parse_json(text, source, limits);
  if (json_string(root, "format", source) != kFormat) {
    fail(ErrorKind::kCorrupt, "{}: this is not a tierpack profile: 'format' is not '{}'", source, kFormat);
  }
  if (const uint64_t version = json_u64(root, "version", source); version != kVersion) {
    fail(ErrorKind::kUnsupported, "{}: profile version {}; this program reads version {}", source, version, kVersion);
  }

  Profile profile;
  const Json& model = json_member(root, "model", source);
  profile.architecture = json_string(model, "architecture", source);
  profile.routing_id = digest_in(model, "routing_id", source);
  profile.layers = count_in(model, "layers", kLayersMax, source);
  profile.experts = count_in(model, "experts", kExpertsMax, source);
  profile.used = count_in(model, "used", profile.experts, source);
  if (uint64_t{profile.layers} * profile.experts > kCellsMax) {
    fail(ErrorKind::kCorrupt, "{}: {} layers of {} experts are more than any model has", source, profile.layers,
         profile.experts);
  }
  profile.tool_version = json_string(json_member(root, "tool", source), "version", source);

  uint64_t tokens = 0;
  for (const Json& entry : array_in(root, "corpora", source)) {
    ProfileCorpus corpus{json_string(entry, "name", source), digest_in(entry, "sha256", source),
                         json_u64(entry, "tokens", source)};
    const auto sum = checked_add(tokens, corpus.tokens);
    if (!sum) fail(ErrorKind::kCorrupt, "{}: the numbers of tokens overflow", source);
    tokens = *sum;
    profile.corpora.push_back(std::move(corpus));
  }

  const Json& layers = array_in(root, "layers", source);
  if (layers.size() != profile.layers) {
    fail(ErrorKind::kCorrupt, "{}: statistics of {} layers for a model of {}", source, layers.size(), profile.layers);
  }
  for (size_t i = 0; i < layers.size(); ++i) parse_layer(layers[i], i, source, profile);
  return profile;
}

std::string encode_profile(const Profile& profile) {
  const size_t cells = size_t{profile.layers} * profile.experts;
  TIERPACK_CHECK(profile.counts.size() == cells && profile.weights.size() == cells);
  for (const double weight : profile.weights) TIERPACK_CHECK(weight >= 0 && std::isfinite(weight));

  // Written by hand for one line a layer; numbers are the shortest that read back as themselves.
  std::string out = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n", kFormat, kVersion);
  out += fmt::format(
      "\"model\": {{\"architecture\": {}, \"routing_id\": \"{}\", \"layers\": {}, \"experts\": {}, \"used\": {}}},\n",
      quoted(profile.architecture), profile.routing_id.hex(), profile.layers, profile.experts, profile.used);
  out += fmt::format("\"tool\": {{\"name\": \"tierpack\", \"version\": {}}},\n\"corpora\": [",
                     quoted(profile.tool_version));
  const char* separator = "\n";
  for (const ProfileCorpus& corpus : profile.corpora) {
    out += fmt::format("{}{{\"name\": {}, \"sha256\": \"{}\", \"tokens\": {}}}", separator, quoted(corpus.name),
                       corpus.sha256.hex(), corpus.tokens);
    separator = ",\n";
  }
  out += "\n],\n\"layers\": [";
  separator = "\n";
  for (size_t layer = 0; layer < profile.layers; ++layer) {
    const size_t first = layer * profile.experts;
    out += fmt::format("{}{{\"counts\": {},\n \"weights\": {}}}", separator,
                       number_list(profile.counts, first, profile.experts),
                       number_list(profile.weights, first, profile.experts));
    separator = ",\n";
  }
  return out + "\n]\n}\n";
}

Profile read_profile(const std::filesystem::path& path) {
  return parse_profile(read_text_file(path, kProfileBytesMax), path.string());
}

void write_profile(const std::filesystem::path& path, const Profile& profile) {
  write_file_atomically(path, as_bytes(encode_profile(profile)));
}

Profile merge_profiles(const Profile& a, const Profile& b) {
  const bool same = a.architecture == b.architecture && a.routing_id == b.routing_id && a.layers == b.layers &&
                    a.experts == b.experts && a.used == b.used;
  if (!same) {
    fail(ErrorKind::kUsage, "profiles of different models cannot be merged: {}; and {}", identity(a), identity(b));
  }
  TIERPACK_CHECK(a.counts.size() == b.counts.size() && a.weights.size() == b.weights.size());
  Profile merged = a;
  merged.corpora.insert(merged.corpora.end(), b.corpora.begin(), b.corpora.end());
  if (!checked_add(a.tokens(), b.tokens())) fail(ErrorKind::kUsage, "the merged profiles' numbers of tokens overflow");
  for (size_t i = 0; i < merged.counts.size(); ++i) {
    const auto sum = checked_add(a.counts[i], b.counts[i]);
    merged.weights[i] += b.weights[i];
    if (!sum || !std::isfinite(merged.weights[i])) {
      fail(ErrorKind::kUsage, "the merged profiles' counts of expert {} in layer {} overflow", i % a.experts,
           i / a.experts);
    }
    merged.counts[i] = *sum;
  }
  return merged;
}

Profile mix_profiles(const std::vector<WeightedProfile>& profiles) {
  if (profiles.empty()) fail(ErrorKind::kUsage, "there are no profiles to mix");
  double tokens = 0, weights = 0;
  for (const WeightedProfile& one : profiles) {
    TIERPACK_CHECK(one.weight > 0 && std::isfinite(one.weight));
    if (one.profile.tokens() == 0) {
      fail(ErrorKind::kUsage, "a profile without tokens has no share in a mix: {}", identity(one.profile));
    }
    tokens += static_cast<double>(one.profile.tokens());
    weights += one.weight;
  }
  std::optional<Profile> mixed;
  for (const WeightedProfile& one : profiles) {
    Profile p = one.profile;
    const double factor = one.weight / weights * (tokens / static_cast<double>(p.tokens()));
    for (uint64_t& count : p.counts) {
      const double scaled = static_cast<double>(count) * factor;
      if (!(scaled < 0x1p62)) fail(ErrorKind::kUsage, "the mixed profiles' counts overflow: {}", identity(p));
      if (count > 0) count = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(scaled)));
    }
    for (double& weight : p.weights) weight *= factor;
    for (ProfileCorpus& corpus : p.corpora) corpus.name += fmt::format(" (weight {})", one.weight);
    mixed = mixed ? merge_profiles(*mixed, p) : std::move(p);
  }
  return *mixed;
}

void require_profile_matches(const Profile& profile, const Sha256Digest& routing_id, uint32_t layers, uint32_t experts,
                             const std::string& profile_name) {
  if (profile.routing_id == routing_id && profile.layers == layers && profile.experts == experts) return;
  fail(ErrorKind::kUsage,
       "{}: the profile was taken from another model: {}; this one has {} layers of {} experts, routers {}. Calibrate "
       "this model or choose its own profile",
       profile_name, identity(profile), layers, experts, routing_id.hex().substr(0, 16));
}

}  // namespace tierpack
