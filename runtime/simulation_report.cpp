#include "runtime/simulation_report.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/json.h"

namespace tierpack {

namespace {

using experts::SimulationResult;
using experts::SimulationWindow;

struct Sum {
  uint64_t requests = 0;
  uint64_t hits = 0;
  void add(const SimulationWindow& w) { requests += w.requests, hits += w.hits; }
  double rate() const { return requests == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(requests); }
};

std::vector<SimulationWindow> windows_of(const SimulationResult& result, size_t recording) {
  std::vector<SimulationWindow> out;
  for (const SimulationWindow& w : result.windows) {
    if (w.recording == recording) out.push_back(w);
  }
  return out;
}

double stall_seconds(const SimulationReport& report, const SimulationResult& result) {
  return static_cast<double>(result.bytes_read) / report.disk_bytes_s;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

double SimulationRun::of_bound() const { return bound.hits == 0 ? 1 : static_cast<double>(result.hits) / static_cast<double>(bound.hits); }

Recovery recovery(const SimulationRun& run, size_t recording) {
  constexpr double kRecovered = 0.95;
  const std::vector<SimulationWindow> mine = windows_of(run.result, recording);
  const std::vector<SimulationWindow> best = windows_of(run.bound, recording);
  Recovery out;
  if (mine.empty()) return out;
  Sum steady;
  Sum steady_bound;
  for (size_t i = mine.size() / 2; i < mine.size(); ++i) {
    steady.add(mine[i]);
    steady_bound.add(best[i]);
  }
  const auto rate = [](const SimulationWindow& w) {
    Sum sum;
    sum.add(w);
    return sum.rate();
  };
  out.first = rate(mine.front());
  out.steady = steady.rate();
  out.by_256 = rate(mine.back());
  for (const SimulationWindow& w : mine) {
    if (w.first_token + w.tokens >= 256) {
      out.by_256 = rate(w);
      break;
    }
  }
  const double target = kRecovered * (steady_bound.hits == 0 ? 0 : steady.rate() / steady_bound.rate());
  for (size_t i = 0; i < mine.size(); ++i) {
    const double bound = rate(best[i]);
    if (bound > 0 && rate(mine[i]) / bound < target) continue;
    out.tokens = mine[i].first_token + mine[i].tokens;
    break;
  }
  return out;
}

std::string SimulationReport::table() const {
  std::string out = fmt::format("{} layers of {} experts, {} used, {}; {} tokens of {} {}, {}\n\n", layers, experts, used,
                                format_size(expert_bytes), format_count(tokens), traces.size(),
                                traces.size() == 1 ? "recording" : "recordings",
                                profile.empty() ? "begun cold" : "seeded by " + profile);
  out += fmt::format("{:>10} {:>7} {:>7}  {:<9} {:>8} {:>10} {:>13} {:>9}", "capacity", "experts", "slots", "policy", "hits",
                     "of belady", "read/token", "moves/tok");
  out += disk_bytes_s > 0 ? "   stall/token\n" : "\n";
  const double count = static_cast<double>(tokens);
  uint64_t last = 0;
  for (const SimulationRun& run : runs) {
    const SimulationResult& r = run.result;
    const bool same = last == run.capacity_bytes && last != 0;
    last = run.capacity_bytes;
    out += fmt::format("{:>10} {:>7} {:>7}  {:<9} {:>8} {:>10} {:>13} {:>9.2f}", same ? "" : format_size(run.capacity_bytes),
                       same ? "" : percent(run.share), same ? "" : format_count(r.slots), run.policy, percent(r.hit_rate()),
                       percent(run.of_bound()), format_size(static_cast<uint64_t>(static_cast<double>(r.bytes_read) / count + 0.5)),
                       static_cast<double>(r.moves) / count);
    if (disk_bytes_s > 0) out += fmt::format(" {:>10.3f} ms", 1000 * stall_seconds(*this, r) / count);
    out += "\n";
  }
  for (size_t recording = 1; recording < traces.size(); ++recording) {
    out += fmt::format("\nafter the change to {}: hits in the first window, in the window at token 256, in the second half; recovered\n",
                       traces[recording]);
    for (const SimulationRun& run : runs) {
      const Recovery r = recovery(run, recording);
      out += fmt::format("{:>10} {:>7}  {:<9} {:>8} {:>8} {:>8}   {}\n", format_size(run.capacity_bytes), percent(run.share), run.policy,
                         percent(r.first), percent(r.by_256), percent(r.steady),
                         r.tokens ? fmt::format("within {} tokens", *r.tokens) : "never");
    }
  }
  return out;
}

std::string SimulationReport::json() const {
  Json list = Json::array();
  for (const SimulationRun& run : runs) {
    const SimulationResult& r = run.result;
    Json recordings = Json::array();
    for (size_t i = 0; i < traces.size(); ++i) {
      Json windows = Json::array();
      Sum all;
      uint64_t of_tokens = 0;
      for (const SimulationWindow& w : windows_of(r, i)) {
        windows.push_back({{"token", w.first_token}, {"tokens", w.tokens}, {"requests", w.requests}, {"hits", w.hits}});
        all.add(w);
        of_tokens += w.tokens;
      }
      Json one = {{"trace", traces[i]}, {"tokens", of_tokens}, {"hit_rate", all.rate()}};
      if (i > 0) {
        const Recovery back = recovery(run, i);
        one["recovery"] = {{"first", back.first}, {"by_256", back.by_256}, {"steady", back.steady}};
        one["recovery"]["tokens"] = back.tokens ? Json(*back.tokens) : Json(nullptr);
      }
      one["windows"] = std::move(windows);
      recordings.push_back(std::move(one));
    }
    Json entry = {{"policy", run.policy},
                  {"capacity_bytes", run.capacity_bytes},
                  {"share", run.share},
                  {"slots", r.slots},
                  {"slot_bytes", r.slot_bytes},
                  {"seed_bytes", r.seed_bytes},
                  {"requests", r.requests},
                  {"hits", r.hits},
                  {"hit_rate", r.hit_rate()},
                  {"of_belady", run.of_bound()},
                  {"bytes_read", r.bytes_read},
                  {"moves", r.moves}};
    if (disk_bytes_s > 0) entry["stall_seconds"] = stall_seconds(*this, r);
    entry["recordings"] = std::move(recordings);
    list.push_back(std::move(entry));
  }
  Json out = {{"layers", layers}, {"experts", experts}, {"used", used}, {"expert_bytes", expert_bytes}, {"tokens", tokens}};
  out["profile"] = profile.empty() ? Json(nullptr) : Json(profile);
  if (disk_bytes_s > 0) out["disk_bytes_per_second"] = disk_bytes_s;
  out["runs"] = std::move(list);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Plot SimulationReport::plot() const {
  Plot plot;
  plot.title = "Hit rate by capacity";
  plot.x_label = "capacity, % of the experts' bytes";
  plot.y_label = "requests hit, %";
  plot.names_below = true;
  for (const SimulationRun& run : runs) {
    auto series = std::find_if(plot.series.begin(), plot.series.end(), [&](const PlotSeries& s) { return s.name == run.policy; });
    if (series == plot.series.end()) {
      plot.series.push_back({run.policy, {}, run.policy == experts::kBelady || run.policy == experts::kForesight});
      series = plot.series.end() - 1;
    }
    const double rate = 100 * run.result.hit_rate();
    series->points.push_back({100 * run.share, rate, rate, rate});
  }
  for (PlotSeries& series : plot.series) {
    std::sort(series.points.begin(), series.points.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  return plot;
}

}  // namespace tierpack
