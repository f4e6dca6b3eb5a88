// The profiles that calibrate starts from instead of running a model: other profiles and what other programs counted.
// Needs formats/ alone.
#pragma once

#include <string>
#include <vector>

#include "formats/pack.h"
#include "formats/profile.h"

namespace tierpack::calibrate {

// As given on the command line: FILE or FILE=WEIGHT.
struct ProfileInputs {
  std::vector<std::string> merge;           // profiles
  std::vector<std::string> import_imatrix;  // importance matrices
  std::vector<std::string> import_counts;   // CSV files
  bool empty() const { return merge.empty() && import_imatrix.empty() && import_counts.empty(); }
};

struct ReadInputs {
  std::vector<WeightedProfile> profiles;  // in the order above
  bool weighted = false;                  // a weight was given
  std::vector<std::string> notes;         // one sentence each, beginning with the file's name
};

// Reads everything and checks that it is of the pack's model.
ReadInputs read_profile_inputs(const ProfileInputs& inputs, const Pack& pack, const std::string& tool_version);

// "FILE=2.5" -> {FILE, 2.5}; a file whose whole name exists comes first. Throws kUsage for a file that does not exist
// and for weights that are not positive numbers.
struct WeightedPath {
  std::string path;
  double weight = 1;
  bool weighted = false;
};
WeightedPath parse_weighted_path(const std::string& text);

// The sum, or where weights were given the mix.
Profile combine(const ReadInputs& inputs);

}  // namespace tierpack::calibrate
