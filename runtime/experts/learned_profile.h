// A profile learned while serving: which experts this machine's own work uses, kept between runs for the next one to begin
// with. Saved as a profile (formats/profile.h) under the user's state directory, one file a model and workload, so that
// neither an upgrade nor a set-up run again touches it, and every command that takes a profile takes it.
//
// Counts fade: whenever kHalfLifeTokens more tokens were seen, everything before counts half. What an earlier run left counts
// as that many tokens at most, so that present use wins within a run.
//
// One thread adds and saves at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/profile.h"

namespace tierpack::experts {

// Where the profile of a workload is kept; empty when the user has no state directory. `workload` becomes a file name: throws
// kUsage unless it is 1 to 64 letters, digits, dots, hyphens and underscores and does not begin with a dot.
std::filesystem::path learned_profile_path(const Sha256Digest& routing_id, std::string_view workload);

class LearnedProfile {
 public:
  static constexpr uint64_t kHalfLifeTokens = 32768;

  // `model` says which model: its counts and corpora are not looked at.
  LearnedProfile(const Profile& model, std::filesystem::path path);

  // Begins with what an earlier run left. Returns why that could not be used (damaged, another model); the file is replaced at
  // the next save. Nothing is there the first time, which is no reason.
  std::optional<std::string> load();

  // One token's experts in a block, and their router weights. Never allocates.
  void add(uint32_t block, std::span<const uint32_t> experts, std::span<const float> weights);
  // After all blocks of `tokens` tokens were added. Never allocates.
  void end_tokens(uint32_t tokens);

  uint64_t tokens() const;  // what the counts stand for
  Profile profile() const;
  // The whole file or none of it, whenever the process dies; creates its directory. Throws kIo.
  void save() const;

 private:
  void scale(double factor);
  Profile model_;
  std::filesystem::path path_;
  std::vector<double> counts_;   // (blocks, experts)
  std::vector<double> weights_;
  double tokens_ = 0;
  uint64_t until_half_ = kHalfLifeTokens;
};

}  // namespace tierpack::experts
