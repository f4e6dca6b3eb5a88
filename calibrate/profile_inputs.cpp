#include "calibrate/profile_inputs.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "formats/imatrix.h"
#include "formats/profile_import.h"

namespace tierpack::calibrate {
namespace {

constexpr uint64_t kCsvBytesMax = uint64_t{1} << 30;

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

ImportedProfile import_imatrix(const ProfileTarget& target, const std::string& path) {
  const File file = File::open(path, File::Mode::kRead);
  const Imatrix imatrix = read_imatrix(file);
  return import_imatrix_counts(target, imatrix, file_name(path), sha256_of(file));
}

ImportedProfile import_csv(const ProfileTarget& target, const std::string& path) {
  return import_csv_counts(target, read_text_file(path, kCsvBytesMax), path, file_name(path));
}

}  // namespace

WeightedPath parse_weighted_path(const std::string& text) {
  const auto exists = [](const std::string& path) { return std::filesystem::exists(path); };
  if (exists(text)) return {text, 1, false};
  const size_t equals = text.rfind('=');
  const std::string path = text.substr(0, equals);
  if (equals == std::string::npos || !exists(path)) fail(ErrorKind::kUsage, "{}: there is no such file", path);
  const std::string_view number = std::string_view(text).substr(equals + 1);
  double weight = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
  if (error != std::errc() || end != number.data() + number.size() || !(weight > 0) || !std::isfinite(weight)) {
    fail(ErrorKind::kUsage, "{}: the weight '{}' is not a positive number", path, number);
  }
  return {path, weight, true};
}

ReadInputs read_profile_inputs(const ProfileInputs& inputs, const Pack& pack, const std::string& tool_version) {
  ReadInputs out;
  const auto keep = [&](const WeightedPath& from, Profile profile) {
    out.profiles.push_back({std::move(profile), from.weight});
    out.weighted |= from.weighted;
  };
  const auto keep_import = [&](const WeightedPath& from, ImportedProfile imported) {
    for (const std::string& note : imported.notes) out.notes.push_back(from.path + ": " + note);
    keep(from, std::move(imported.profile));
  };
  const ModelConfig& config = pack.config();
  for (const std::string& text : inputs.merge) {
    const WeightedPath from = parse_weighted_path(text);
    Profile profile = read_profile(from.path);
    require_profile_matches(profile, pack.manifest().routing_id, config.layers, config.experts, from.path);
    keep(from, std::move(profile));
  }
  const ProfileTarget target = profile_target(pack, tool_version);
  for (const std::string& text : inputs.import_imatrix) {
    const WeightedPath from = parse_weighted_path(text);
    keep_import(from, import_imatrix(target, from.path));
  }
  for (const std::string& text : inputs.import_counts) {
    const WeightedPath from = parse_weighted_path(text);
    keep_import(from, import_csv(target, from.path));
  }
  return out;
}

Profile combine(const ReadInputs& inputs) {
  TIERPACK_CHECK(!inputs.profiles.empty());
  if (inputs.weighted) return mix_profiles(inputs.profiles);
  Profile sum = inputs.profiles.front().profile;
  for (size_t i = 1; i < inputs.profiles.size(); ++i) sum = merge_profiles(sum, inputs.profiles[i].profile);
  return sum;
}

}  // namespace tierpack::calibrate
