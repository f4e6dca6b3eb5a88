// Whether model files are well-formed: headers, ranges, and sets that must be complete.
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

// Looks at those of `files` that are containers. With `sets`, split GGUF models and safetensors indexes must be complete.
// With `deep`, the values of safetensors files are searched for NaN and infinity (GGUF's quantised blocks are not).
std::vector<Finding> check_containers(const std::vector<ContainerFile>& files, bool sets, bool deep, ThreadTeam& team);

}  // namespace tierpack::verify
