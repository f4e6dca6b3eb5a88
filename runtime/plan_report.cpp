#include "runtime/plan_report.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/json.h"

namespace tierpack {

namespace {

using planning::MemoryPlan;
using planning::PlanItem;
using planning::PlannedClass;
using planning::Placement;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string rate(double tokens_s) { return fmt::format("{:.{}f}", tokens_s, tokens_s < 10 ? 2 : tokens_s < 100 ? 1 : 0); }

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); }

const char* placement_name(Placement placement) {
  switch (placement) {
    case Placement::kFree: return "free";
    case Placement::kVram: return "vram";
    case Placement::kRam: return "ram";
    case Placement::kDisk: return "disk";
  }
  return "";
}

// {0, 1, 2, 5} -> "0-2, 5".
std::string block_ranges(const PackManifest& manifest, const std::vector<uint32_t>& layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i;
    while (end + 1 < layers.size() && manifest.expert_layers[layers[end + 1]].layer == manifest.expert_layers[layers[end]].layer + 1) ++end;
    const uint32_t first = manifest.expert_layers[layers[i]].layer;
    const uint32_t last = manifest.expert_layers[layers[end]].layer;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
    i = end + 1;
  }
  return out;
}

uint64_t bytes_of(const PackManifest& manifest, bool rows) {
  uint64_t bytes = 0;
  if (rows) {
    for (const RowTable& table : manifest.rows) bytes += table.pages * kPageBytes;
  } else {
    for (const ExpertLayer& layer : manifest.expert_layers) bytes += layer.experts * layer.record_bytes;
  }
  return bytes;
}

class Text {
 public:
  Text(const PlanReport& report, bool explain) : r_(report), explain_(explain) {}

  std::string write() {
    head();
    parts();
    budgets();
    hits();
    rates();
    for (const std::string& note : r_.notes) line("note: {}", note);
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  template <typename... Args>
  void because(fmt::format_string<Args...> format, Args&&... args) {
    if (explain_) out_ += fmt::format("             {}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  void head() {
    const ModelConfig& c = r_.subject.config;
    line("{}: {}, {} {}", r_.subject.name, architecture_name(c.architecture), r_.subject.is_pack ? "a pack of" : "as a pack",
         format_size(r_.subject.pack_bytes));
    line("  context    {} tokens ({}), chunks of {}, {} KV cache, {} thread{}", format_count(r_.plan.context),
         r_.options.context > 0 ? "as asked" : r_.plan.context == c.context ? "the model's own limit" : "chosen", r_.plan.chunk, kv_type_name(r_.options.kv),
         r_.options.threads, r_.options.threads == 1 ? "" : "s");
    if (r_.options.context == 0 && r_.plan.context < std::min(c.context, planning::kContextDefault)) {
      because("halved from {} until a session took at most a quarter of the room for experts", format_count(std::min(c.context, planning::kContextDefault)));
    }
    because("up to {} tokens would fit beside the fewest experts; the model's own limit is {}", format_count(r_.plan.context_most), format_count(c.context));
    line("");
  }

  void parts() {
    line("  {:<22}{:<6}{:>10}", "part", "tier", "bytes");
    for (const PlanItem& item : r_.plan.items) {
      line("  {:<22}{:<6}{:>10}", item.name, planning::tier_name(item.tier), format_size(item.bytes));
      because("{}", item.how);
    }
    const PackManifest& manifest = r_.subject.manifest;
    line("  {:<22}{:<6}{:>10}", "all experts", "disk", format_size(bytes_of(manifest, false)));
    if (!manifest.rows.empty()) line("  {:<22}{:<6}{:>10}", "lookup tables", "disk", format_size(bytes_of(manifest, true)));
    line("");
  }

  void budgets() {
    const auto budget = [&](Tier tier, uint64_t bytes) {
      if (bytes == UINT64_MAX) {
        line("  {:<10} {} used, no limit known", planning::tier_name(tier), format_size(r_.plan.used(tier)));
      } else {
        line("  {:<10} {} of {} used, {} left", planning::tier_name(tier), format_size(r_.plan.used(tier)), format_size(bytes), format_size(r_.plan.left(tier)));
      }
    };
    if (r_.plan.vram_bytes > 0) budget(Tier::kVram, r_.plan.vram_bytes);
    budget(Tier::kRam, r_.plan.ram_bytes);
    if (explain_) {
      for (const PlannedClass& c : r_.plan.slots.classes) {
        because("layer{} {}: slots of {}, {} in VRAM and {} in RAM for {} experts, at least {} in RAM{}", c.layers.size() == 1 ? "" : "s", block_ranges(r_.subject.manifest, c.layers),
                format_size(c.slot_bytes), format_count(c.vram_slots), format_count(c.ram_slots), format_count(c.entries), format_count(c.least_ram_slots),
                c.placement == Placement::kFree ? "" : fmt::format(" (--place {})", placement_name(c.placement)));
      }
      if (!r_.plan.slots.classes.empty()) {
        because("{}", r_.hits.profiled ? "slots go to the experts with the most expected uses per byte" : "without a profile every class gets the same share of its experts");
      }
    }
  }

  void hits() {
    const planning::HitRates& h = r_.hits;
    if (h.entries == 0) return;
    std::string tiers;
    if (h.vram_entries > 0) tiers += fmt::format("vram {} ({} experts), ", percent(h.vram), format_count(h.vram_entries));
    tiers += fmt::format("ram {} ({} experts), disk {} ({} of {})", percent(h.ram), format_count(h.ram_entries), percent(h.disk),
                         format_count(h.entries - h.vram_entries - h.ram_entries), format_count(h.entries));
    line("  hits       {}", tiers);
    if (h.profiled) {
      because("{} of all uses in {} ({} tokens) are of experts that are resident from the start", percent(h.vram + h.ram - h.misses_saved), r_.profile_name,
              format_count(r_.profile_tokens));
      if (h.disk > 0) because("following a text of that kind, the store saves {} more; another kind does worse until it has adapted", percent(h.misses_saved));
    } else if (h.disk > 0) {
      line("             without a profile: every expert counts alike, so a model with uneven routing hits more often");
    }
  }

  void rates() {
    if (r_.options.gpu) {
      line("  speed      not predicted: there is no model of a GPU's rates yet; `tierpack bench` measures them");
      return;
    }
    if (r_.hardware_name.empty()) {
      line("  speed      not predicted: this machine was not measured; `tierpack calibrate --hardware` does that");
      return;
    }
    if (r_.rates.decode) {
      const planning::DecodeRate& d = *r_.rates.decode;
      line("  decode     {} tokens/s{}", rate(d.tokens_s), r_.hits.profiled || d.missed_records == 0 ? "" : " or more");
      because("a token: {} for dense weights, {} for its experts, {} waiting for {:.2f} records ({}) from disk", milliseconds(d.dense_s), milliseconds(d.experts_s),
              milliseconds(d.stall_s), d.missed_records, format_size(static_cast<uint64_t>(d.missed_bytes)));
    }
    if (r_.rates.prefill) {
      const planning::PrefillRate& p = *r_.rates.prefill;
      line("  prefill    {} tokens/s in chunks of {}", rate(p.tokens_s), format_count(p.chunk));
      because("a chunk: {} computing, {} reading {:.0f} records ({}), the longer of the two layer by layer", milliseconds(p.compute_s), milliseconds(p.disk_s), p.records,
              format_size(static_cast<uint64_t>(p.read_bytes)));
    }
    if (r_.rates.decode) because("rates of {}, at short contexts", r_.hardware_name);
  }

  const PlanReport& r_;
  bool explain_;
  std::string out_;
};

}  // namespace

std::string plan_text(const PlanReport& report, bool explain) { return Text(report, explain).write(); }

std::string plan_json(const PlanReport& r) {
  const MemoryPlan& plan = r.plan;
  const auto budget = [](uint64_t bytes) { return bytes == UINT64_MAX ? Json() : Json(bytes); };
  Json out = {{"model", r.subject.config.name},
              {"architecture", architecture_name(r.subject.config.architecture)},
              {"pack_bytes", r.subject.pack_bytes},
              {"context", plan.context},
              {"context_most", plan.context_most},
              {"chunk", plan.chunk},
              {"threads", r.options.threads},
              {"kv", kv_type_name(r.options.kv)},
              {"activations", activation_type_name(r.options.activations)}};
  out["ram"] = {{"budget_bytes", budget(plan.ram_bytes)}, {"used_bytes", plan.used(Tier::kRam)}};
  out["vram"] = {{"budget_bytes", budget(plan.vram_bytes)}, {"used_bytes", plan.used(Tier::kVram)}};
  out["parts"] = Json::array();
  for (const PlanItem& item : plan.items) {
    out["parts"].push_back({{"name", item.name}, {"tier", planning::tier_name(item.tier)}, {"bytes", item.bytes}, {"how", item.how}});
  }
  out["expert_slots"] = Json::array();
  for (const PlannedClass& c : plan.slots.classes) {
    std::vector<uint32_t> blocks;
    for (const uint32_t layer : c.layers) blocks.push_back(r.subject.manifest.expert_layers[layer].layer);
    out["expert_slots"].push_back({{"slot_bytes", c.slot_bytes}, {"layers", blocks}, {"experts", c.entries}, {"vram_slots", c.vram_slots},
                                   {"ram_slots", c.ram_slots}, {"place", placement_name(c.placement)}});
  }
  const planning::HitRates& h = r.hits;
  out["hits"] = {{"profile", r.profile_name.empty() ? Json() : Json(r.profile_name)},
                 {"experts", h.entries},
                 {"vram", {{"share", h.vram}, {"experts", h.vram_entries}}},
                 {"ram", {{"share", h.ram}, {"experts", h.ram_entries}}},
                 {"disk", {{"share", h.disk}, {"experts", h.entries - h.vram_entries - h.ram_entries}}}};
  out["hardware"] = r.hardware_name.empty() ? Json() : Json(r.hardware_name);
  out["decode"] = Json();
  if (const auto& d = r.rates.decode) {
    out["decode"] = {{"tokens_per_second", d->tokens_s}, {"dense_s", d->dense_s}, {"experts_s", d->experts_s}, {"stall_s", d->stall_s},
                     {"missed_records", d->missed_records}, {"missed_bytes", d->missed_bytes}};
  }
  out["prefill"] = Json();
  if (const auto& p = r.rates.prefill) {
    out["prefill"] = {{"tokens_per_second", p->tokens_s}, {"chunk", p->chunk}, {"compute_s", p->compute_s}, {"disk_s", p->disk_s},
                      {"records", p->records}, {"read_bytes", p->read_bytes}};
  }
  out["notes"] = r.notes;
  return dump_json(out);
}

}  // namespace tierpack
