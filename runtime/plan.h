// `tierpack plan`: what of a model sits where on a machine, and how fast it will be, before anything is loaded or downloaded.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/command.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "formats/profile.h"

namespace tierpack {

// What a plan is made for: a pack, or what a repack would make of a source.
struct PlanSubject {
  std::string name;         // for people
  PackManifest manifest;
  ModelConfig config;
  std::optional<Profile> profile;  // of a pack
  bool is_pack = false;
  bool routers_known = false;      // manifest.routing_id can be compared with a profile's
  uint64_t pack_bytes = 0;         // on disk
  std::filesystem::path place;     // where it lies; empty for one elsewhere
};

// Opens what is no pack: a checkpoint, a URL or a hub reference. `read_routers` is a wish: so that a profile can be compared.
using PlanOpener = std::function<PlanSubject(const std::string& reference, bool read_routers)>;

CommandRun setup_plan(CLI::App& app, PlanOpener open);

}  // namespace tierpack
