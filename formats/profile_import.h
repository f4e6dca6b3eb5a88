// Profiles from what other programs counted, bound to a pack's model: importance matrices and CSV files.
// docs/profiles.md describes the CSV forms for people.
//
// Nothing in such a file names the model's routers, so that an import believes its caller about the model and checks
// what can be checked: layers, experts, experts a token, tensor names and shapes. Router weights are not in these
// files; every use counts as an equal share of its token, 1 / experts a token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/imatrix.h"
#include "formats/pack.h"
#include "formats/profile.h"

namespace tierpack {

// The model that an import is for.
struct ProfileTarget {
  struct Stack {
    std::string tensor;    // "blk.0.ffn_gate_exps.weight"
    uint64_t columns = 0;  // of each expert's matrix
  };
  struct Layer {
    uint32_t layer = 0;  // block number
    std::vector<Stack> stacks;
  };
  std::string model;          // for messages
  Profile identity;           // without corpora; counts and weights of the right size, all 0
  std::vector<Layer> layers;  // those with routed experts, ascending; blocks from identity.layers on draft tokens
  uint32_t blocks = 0;        // all of the model, drafting ones counted
  std::vector<Stack> dense;   // the other matrices, by name
};
ProfileTarget profile_target(const Pack& pack, const std::string& tool_version);

struct ImportedProfile {
  Profile profile;
  std::vector<std::string> notes;  // whole sentences about what was odd but usable
};

// Counts of the experts' matrices in an importance matrix. `file_sha256` names the file in the profile. gate, up and
// down of a layer must agree; where they do not, the largest counts and a note. Throws kUsage when the file is of
// another model or holds no counts of experts.
ImportedProfile import_imatrix_counts(const ProfileTarget& target, const Imatrix& imatrix,
                                      const std::string& corpus_name, const Sha256Digest& file_sha256);

// A table of counts ("layer,expert,count" or one column for each workload) or a trace ("token,layer,expert..."), told
// apart by the header line. Throws kCorrupt for malformed content, kUsage when it is of another model.
ImportedProfile import_csv_counts(const ProfileTarget& target, std::string_view text, const std::string& source,
                                  const std::string& corpus_name);

}  // namespace tierpack
