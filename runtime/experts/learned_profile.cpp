#include "runtime/experts/learned_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "base/user_directories.h"

namespace tierpack::experts {

std::filesystem::path learned_profile_path(const Sha256Digest& routing_id, std::string_view workload) {
  const bool plain = std::all_of(workload.begin(), workload.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_');
  });
  if (workload.empty() || workload.size() > 64 || workload.front() == '.' || !plain) {
    fail(ErrorKind::kUsage, "'{}' cannot name a workload: use 1 to 64 letters, digits, dots, hyphens and underscores, not a dot first",
         workload);
  }
  const std::filesystem::path state = user_state_directory();
  if (state.empty()) return {};
  return state / "learned" / routing_id.hex().substr(0, 16) / (std::string(workload) + ".json");
}

LearnedProfile::LearnedProfile(const Profile& model, std::filesystem::path path)
    : model_(model), path_(std::move(path)), counts_(size_t{model.layers} * model.experts, 0.0),
      weights_(size_t{model.layers} * model.experts, 0.0) {
  model_.counts.clear();
  model_.weights.clear();
  model_.corpora.clear();
}

std::optional<std::string> LearnedProfile::load() {
  std::error_code problem;
  if (!std::filesystem::exists(path_, problem)) return std::nullopt;
  try {
    const Profile earlier = read_profile(path_);
    require_profile_matches(earlier, model_.routing_id, model_.layers, model_.experts, path_.string());
    std::copy(earlier.counts.begin(), earlier.counts.end(), counts_.begin());
    weights_ = earlier.weights;
    tokens_ = static_cast<double>(earlier.tokens());
  } catch (const Error& e) {
    return fmt::format("what was learned earlier is not used: {}", e.what());
  }
  const double most = static_cast<double>(kHalfLifeTokens);
  if (tokens_ > most) scale(most / tokens_);
  return std::nullopt;
}

void LearnedProfile::add(uint32_t block, std::span<const uint32_t> experts, std::span<const float> weights) {
  TIERPACK_CHECK(block < model_.layers && experts.size() == weights.size());
  const size_t first = size_t{block} * model_.experts;
  for (size_t i = 0; i < experts.size(); ++i) {
    TIERPACK_CHECK(experts[i] < model_.experts);
    counts_[first + experts[i]] += 1;
    weights_[first + experts[i]] += static_cast<double>(weights[i]);
  }
}

void LearnedProfile::end_tokens(uint32_t tokens) {
  tokens_ += tokens;
  if (tokens < until_half_) {
    until_half_ -= tokens;
    return;
  }
  scale(0.5);
  until_half_ = kHalfLifeTokens;
}

void LearnedProfile::scale(double factor) {
  for (double& count : counts_) count *= factor;
  for (double& weight : weights_) weight *= factor;
  tokens_ *= factor;
}

uint64_t LearnedProfile::tokens() const { return static_cast<uint64_t>(std::llround(tokens_)); }

Profile LearnedProfile::profile() const {
  Profile profile = model_;
  profile.corpora = {{"learned from use", Sha256Digest{}, tokens()}};
  profile.weights = weights_;
  profile.counts.reserve(counts_.size());
  for (const double count : counts_) profile.counts.push_back(static_cast<uint64_t>(std::llround(count)));
  return profile;
}

void LearnedProfile::save() const {
  std::error_code problem;
  std::filesystem::create_directories(path_.parent_path(), problem);
  if (problem) fail(ErrorKind::kIo, "{}: cannot be created: {}", path_.parent_path().string(), problem.message());
  write_profile(path_, profile());
}

}  // namespace tierpack::experts
