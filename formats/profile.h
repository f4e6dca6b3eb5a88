// How often each routed expert was used: written by calibrate, read by repack, plan and the expert store.
//
// A JSON file: {"format": "tierpack-profile", "version": 1, "model": {architecture, routing_id, layers, experts, used},
// "tool": {name, version}, "corpora": [{name, sha256, tokens}], "layers": [{"counts": [...], "weights": [...]}, ...]}.
// routing_id names the routers themselves (SHA-256 over their dequantised f32 matrices, in block order), so that a
// profile taken from one quantisation serves every other quantisation of the same model, and no other model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/digest.h"

namespace tierpack {

struct ProfileCorpus {
  std::string name;
  Sha256Digest sha256;
  uint64_t tokens = 0;
};

struct Profile {
  std::string architecture;
  Sha256Digest routing_id;
  uint32_t layers = 0;  // trunk blocks
  uint32_t experts = 0;
  uint32_t used = 0;  // experts per token
  std::string tool_version;
  std::vector<ProfileCorpus> corpora;
  std::vector<uint64_t> counts;  // (layers, experts): times routed to
  std::vector<double> weights;   // (layers, experts): summed router weight

  uint64_t tokens() const;  // over all corpora
  uint64_t count(uint32_t layer, uint32_t expert) const { return counts[size_t{layer} * experts + expert]; }
  // SHA-256 of the canonical encoding; names this profile in packs.
  Sha256Digest id() const;
};

Profile parse_profile(std::string_view text, const std::string& source);
std::string encode_profile(const Profile& profile);  // deterministic
Profile read_profile(const std::filesystem::path& path);
void write_profile(const std::filesystem::path& path, const Profile& profile);  // atomic

// Sums counts and weights; throws kUsage unless both are profiles of the same model.
Profile merge_profiles(const Profile& a, const Profile& b);

// Profiles mixed as shares of the work: each counts as much as its weight says, however long its texts were. The result
// stands for as many tokens as the profiles have together; counts are rounded, one that was not 0 stays at least 1, and
// the corpora's names say their weight. Weights must be positive. Throws kUsage for another model's, for a profile
// without tokens and for no profiles.
struct WeightedProfile {
  Profile profile;
  double weight = 1;
};
Profile mix_profiles(const std::vector<WeightedProfile>& profiles);

// Throws kUsage with both identities unless the profile fits a model with this shape.
void require_profile_matches(const Profile& profile, const Sha256Digest& routing_id, uint32_t layers, uint32_t experts,
                             const std::string& profile_name);

}  // namespace tierpack
