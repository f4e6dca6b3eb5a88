#include "runtime/expert_report.h"

#include <array>

#include <fmt/core.h>

#include "base/bytes.h"

namespace tierpack {

namespace {

constexpr std::array kFields = {
    ExpertCounterField{"requests", "Experts that the model asked for.", &ExpertCounters::requests},
    ExpertCounterField{"vram_hits", "Experts found in VRAM.", &ExpertCounters::vram_hits},
    ExpertCounterField{"ram_hits", "Experts found in RAM.", &ExpertCounters::ram_hits},
    ExpertCounterField{"late_hits", "Experts that were on their way already.", &ExpertCounters::late_hits},
    ExpertCounterField{"disk_reads", "Experts read from disk because they were asked for.", &ExpertCounters::disk_reads},
    ExpertCounterField{"disk_bytes", "Bytes of experts read from disk for any reason.", &ExpertCounters::disk_bytes},
    ExpertCounterField{"stall_us", "Microseconds that the model waited for experts.", &ExpertCounters::stall_us},
    ExpertCounterField{"prefetches", "Experts read ahead.", &ExpertCounters::prefetches},
    ExpertCounterField{"prefetches_used", "Experts read ahead and then asked for.", &ExpertCounters::prefetches_used},
    ExpertCounterField{"guesses", "Guesses about the next layer's experts.", &ExpertCounters::guesses},
    ExpertCounterField{"guesses_right", "Guesses that came true.", &ExpertCounters::guesses_right},
    ExpertCounterField{"evictions", "Experts dropped for others.", &ExpertCounters::evictions},
    ExpertCounterField{"moves", "Experts moved between RAM and VRAM.", &ExpertCounters::moves},
    ExpertCounterField{"move_bytes", "Bytes moved between RAM and VRAM.", &ExpertCounters::move_bytes},
    ExpertCounterField{"retries", "Reads repeated after an error or a wrong checksum.", &ExpertCounters::retries},
    ExpertCounterField{"cpu_computed", "Experts outside of VRAM that the CPU computed beside a GPU.", &ExpertCounters::cpu_computed},
    ExpertCounterField{"gpu_copies", "Experts outside of VRAM copied to the GPU to be computed.", &ExpertCounters::gpu_copies},
    ExpertCounterField{"gpu_copy_bytes", "Bytes of those copies.", &ExpertCounters::gpu_copy_bytes},
};
static_assert(kFields.size() * sizeof(uint64_t) == sizeof(ExpertCounters), "every counter has a field");

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::span<const ExpertCounterField> expert_counter_fields() { return kFields; }

ExpertCounters operator-(const ExpertCounters& after, const ExpertCounters& before) {
  ExpertCounters difference;
  for (const ExpertCounterField& field : kFields) difference.*field.value = after.*field.value - before.*field.value;
  return difference;
}

double hit_rate(const ExpertCounters& c) {
  return c.requests == 0 ? 0 : static_cast<double>(c.vram_hits + c.ram_hits) / static_cast<double>(c.requests);
}

std::string expert_summary(const ExpertCounters& c) {
  if (c.requests == 0) return "no experts";
  std::string out = fmt::format("experts {} (", format_count(c.requests));
  if (c.vram_hits > 0) out += fmt::format("{:.1f} % from VRAM, ", percent(c.vram_hits, c.requests));
  out += fmt::format("{:.1f} % from RAM, ", percent(c.ram_hits, c.requests));
  if (c.late_hits > 0) out += fmt::format("{} on their way, ", format_count(c.late_hits));
  out += fmt::format("{} read from disk, {}), stalled {:.3f} s", format_count(c.disk_reads), format_size(c.disk_bytes),
                     static_cast<double>(c.stall_us) / 1e6);
  if (c.prefetches > 0) {
    out += fmt::format("; {} read ahead, {:.0f} % of them used", format_count(c.prefetches), percent(c.prefetches_used, c.prefetches));
  }
  if (c.guesses > 0) out += fmt::format("; {:.0f} % of guesses right", percent(c.guesses_right, c.guesses));
  if (c.moves > 0) out += fmt::format("; {} moves between RAM and VRAM", format_count(c.moves));
  if (c.cpu_computed + c.gpu_copies > 0) {
    out += fmt::format("; beside VRAM {} computed by the CPU, {} copied ({})", format_count(c.cpu_computed), format_count(c.gpu_copies), format_size(c.gpu_copy_bytes));
  }
  if (c.retries > 0) out += fmt::format("; {} reads repeated", format_count(c.retries));
  return out;
}

std::string expert_layer_table(std::span<const ExpertLayerCounters> layers) {
  std::string out = fmt::format("{:>5} {:>12} {:>8} {:>8} {:>8} {:>8} {:>10}\n", "block", "experts", "vram %", "ram %", "late %",
                                "disk %", "stall ms");
  for (const ExpertLayerCounters& l : layers) {
    out += fmt::format("{:>5} {:>12} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>10.1f}\n", l.layer, format_count(l.requests),
                       percent(l.vram_hits, l.requests), percent(l.ram_hits, l.requests), percent(l.late_hits, l.requests),
                       percent(l.disk_reads, l.requests), static_cast<double>(l.stall_us) / 1e3);
  }
  return out;
}

Json expert_json(const ExpertCounters& counters) {
  Json out = Json::object();
  for (const ExpertCounterField& field : kFields) out[field.name] = counters.*field.value;
  out["hit_rate"] = hit_rate(counters);
  return out;
}

Json expert_json(const ExpertCounters& counters, std::span<const ExpertLayerCounters> layers) {
  Json out = expert_json(counters);
  Json list = Json::array();
  for (const ExpertLayerCounters& l : layers) {
    list.push_back({{"block", l.layer}, {"requests", l.requests}, {"vram_hits", l.vram_hits}, {"ram_hits", l.ram_hits},
                    {"late_hits", l.late_hits}, {"disk_reads", l.disk_reads}, {"stall_us", l.stall_us}});
  }
  out["layers"] = list;
  return out;
}

}  // namespace tierpack
