// Whether model files are well-formed: headers, ranges, sets that must be complete; and whether they are what their names
// say at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/threads.h"
#include "verify/report.h"

namespace tierpack::verify {

struct ContainerFile {
  std::string name;  // for findings
  std::filesystem::path path;
  bool is_proved = false;  // its hash is the promised one: what is odd about it is the publisher's
};

// .gguf, .safetensors and .safetensors.index.json.
bool is_container(const std::string& name);

// Looks at the heads of all `files` (pointers instead of weights, error pages, pickles), and closely at the containers
// among them. With `sets`, the files are all there is: split GGUF models, safetensors indexes and numbered shards must be
// complete. With `deep`, all values are searched for NaN and infinity (of quantised blocks, the scales) and for long runs
// of zeros.
std::vector<Finding> check_structure(const std::vector<ContainerFile>& files, bool sets, bool deep, ThreadTeam& team);

}  // namespace tierpack::verify
