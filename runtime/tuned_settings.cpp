#include "runtime/tuned_settings.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "formats/tuned.h"
#include "runtime/kernels/kernels.h"
#include "runtime/machine_probe.h"

namespace tierpack {

namespace {

bool runs_here(const std::string& isa) {
  const std::vector<const kernels::KernelTable*> tables = kernels::available();
  return std::any_of(tables.begin(), tables.end(), [&](const kernels::KernelTable* table) { return table->name == isa; });
}

}  // namespace

std::string apply_tuned(const Pack& pack, EngineOptions& options) {
  if (options.threads != 0 && options.chunk_given && !options.isa.empty()) return "";
  const std::filesystem::path path = default_tuned_path();
  std::error_code absent;
  if (path.empty() || !std::filesystem::exists(path, absent)) return "";
  TunedFile file;
  try {
    file = read_tuned(path);
  } catch (const Error& e) {
    return fmt::format("tuned settings are not used: {}", e.what());
  }
  const MachineInfo machine = machine_info();
  const TunedEntry* const entry =
      file.find(pack.manifest().routing_id, machine.cpu, static_cast<uint32_t>(machine.cores));
  if (entry == nullptr) return "";
  std::string taken;
  const auto take = [&](const std::string& what) { taken += taken.empty() ? what : ", " + what; };
  if (options.threads == 0) {
    options.threads = static_cast<int>(entry->threads);
    take(fmt::format("{} thread{}", entry->threads, entry->threads == 1 ? "" : "s"));
  }
  if (!options.chunk_given) {
    options.chunk = entry->chunk;
    take(fmt::format("chunks of {}", entry->chunk));
  }
  if (options.isa.empty() && runs_here(entry->isa)) {
    options.isa = entry->isa;
    take(fmt::format("{} kernels", entry->isa));
  }
  return taken.empty() ? "" : fmt::format("as tuned on this machine ({}): {}", path.string(), taken);
}

}  // namespace tierpack
